"""Two libraries of dagc in one process, on NumPy or CuPy arrays. README.md says how they are made and where from."""

import sys

import numpy as np
from mpi4py import MPI

import dagc

spmv, heat = (dagc.load_library(folder) for folder in sys.argv[1:3])
if "cuda" in sys.argv[3:]:
    import cupy as xp

    xp.cuda.Device(MPI.COMM_WORLD.rank % xp.cuda.runtime.getDeviceCount()).use()
else:
    xp = np

comm = MPI.COMM_WORLD
n, up = 1000, comm.rank - 1
down = comm.rank + 1 if comm.rank + 1 < comm.size else -1

# y = A x: the 1-D Laplacian. The first and the last row need a value of a neighbour.
every = np.sin(0.01 * np.arange(comm.size * n)).astype("f4")
x = xp.asarray(every[comm.rank * n : comm.rank * n + n])
column = np.arange(n)[:, None] + [-1, 0, 1]
inside = (column >= 0) & (column < n)
value = np.broadcast_to(np.array([-1, 2, -1], "f4"), column.shape)[inside]
edges = [(row, peer) for row, peer in ((0, up), (n - 1, down)) if peer >= 0]
rows, peers = np.array(edges, "i4").reshape(-1, 2).T.copy()
ones = np.ones(len(edges), "i4")
remote = np.zeros(n, int)
remote[rows] = 1
start_l, start_r = (np.concatenate([[0], np.cumsum(k)]).astype("i4") for k in (inside.sum(1), remote))
y = xp.zeros(n, "f4")
product = spmv.Instance(
    comm, n=n, n_send=len(edges), n_recv=len(edges), n_to=len(edges), n_from=len(edges), x_l=x, y=y,
    row_ptr_l=xp.asarray(start_l), row_ptr_r=xp.asarray(start_r), col_l=xp.asarray(column[inside].astype("i4")),
    col_r=xp.arange(len(edges), dtype="i4"), val_l=xp.asarray(value), val_r=-xp.ones(len(edges), "f4"),
    send_index=xp.asarray(rows), send_ranks=peers, recv_ranks=peers, send_counts=ones, recv_counts=ones,
)  # fmt: skip

# A plate of 128 rows on each rank between two ghost rows: its first column is warm.
plate = xp.zeros((130, 512))
plate[:, 0] = 1
result = xp.empty((128, 512))
diffusion = heat.Instance(comm, n=512, m=128, up=up, down=down, u_0_=plate, u_1_=plate.copy(), result=result)

with product, diffusion:
    for _ in range(10):
        product.run()
        diffusion.run(2)

padded = np.concatenate([[0], every, [0]])[comm.rank * n : comm.rank * n + n + 2]
expected = 2 * padded[1:-1] - padded[:-2] - padded[2:]
right = bool(abs(y - xp.asarray(expected)).max() < 1e-5 and result[64, 1] > 0.5 and result[64, -1] == 0)
print(f"rank {comm.rank}: {'right' if right else 'wrong'}")
sys.exit(not right)

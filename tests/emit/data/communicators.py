"""What a library says of the application's communicators: `python communicators.py LIBRARY DATA`, on 4 ranks."""

import os
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

import dagc

comms, world = dagc.load_library(sys.argv[1]), MPI.COMM_WORLD
rank = world.rank
files = Path(sys.argv[2], f"rank-{rank:04d}").glob("*.npy")
values = {file.stem: np.load(file)[()] for file in files}
row, rows = world.Split(rank // 2), len(values["parts"])
outputs = {
    "result": np.zeros(100, np.float32), "got": np.zeros(rows, np.float32), "passed": np.zeros(5, np.float32),
    "total": np.zeros(1),
}  # fmt: skip
given = {**values, **outputs}
good = {
    "row": row,
    "col": world.Split(rank % 2, -rank),
    "io": world.Split(0 if rank % 2 == 0 else MPI.UNDEFINED),
}


def say(case, **changes):
    try:
        with comms.Instance(world, **{**good, **changes}, **given) as instance:
            instance.run(3)
        said = f"right {outputs['total'][0]:g}"
    except Exception as error:
        said = f"{type(error).__name__} {error}"
    os.write(1, f"{case}: {said}\n".encode())  # whole


say("given")
say("some", io=None, row=None)
say("not on all", row=row if rank < 2 else None)
say("null", col=good["col"] if rank != 1 else MPI.COMM_NULL)
say("other order", col=world.Split(rank % 2))
say("other size", row=world)
say("not a member", io=world)
say("no communicator", row=row if rank != 3 else "row")
say("freed and rebound", row=row)
bytes_ = comms.scratch_bytes(world, **given)
os.write(1, f"bytes: {bytes_[0] > 0}\n".encode())

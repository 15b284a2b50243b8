"""A ping-pong of two ranks: `python -m dagc.measure.ping_pong`. The first prints JSON: `hosts`, and for each of `sizes`
(bytes) the `seconds` of one message, half of the shortest round trip."""

from __future__ import annotations

import json
import time

import numpy as np

from dagc.measure.runner import world

SIZES = (8, 1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22)
ROUNDS = 200


def main() -> None:
    comm = world()
    first = comm.Get_rank() == 0
    seconds = []
    for size in SIZES:
        data, best = np.zeros(size, np.uint8), float("inf")
        for _ in range(ROUNDS):
            comm.Barrier()
            begin = time.perf_counter()
            if first:
                comm.Send(data, 1)
                comm.Recv(data, 1)
            else:
                comm.Recv(data, 0)
                comm.Send(data, 0)
            best = min(best, (time.perf_counter() - begin) / 2)
        seconds.append(best)
    from mpi4py.MPI import Get_processor_name  # MPI is initialised by `world`

    hosts = comm.gather(Get_processor_name())
    if first:
        print(json.dumps({"hosts": hosts, "sizes": SIZES, "seconds": seconds}))


if __name__ == "__main__":
    main()

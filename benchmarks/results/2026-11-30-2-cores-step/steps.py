"""CPU milliseconds of a step of the search with the update of its model, on invented times: `python steps.py SAMPLE
STEPS` in the checkout of a revision. Then the mean of each fifth of the steps, the seconds of the first proposal, and
checksums of all proposals up to the end of each fifth."""

import os
import sys
import time
from zlib import crc32

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import dagc
from dagc.base.sample import Sample
from dagc.ir.constraints import configuration_of
from dagc.lab.orders import domain_of
from dagc.lab.strategy import find


def main(sample: str, steps: int) -> None:
    graph = dagc.load_graph(sample, {"transport": "mpi_cuda"})
    strategy = find("model")(domain_of([(configuration_of(graph), graph)]), 1)
    took, digests, digest = [], [], 0
    for _ in range(1 + steps):
        begin = time.process_time()
        candidate = strategy.propose()
        text = repr(candidate).encode()
        strategy.observe(candidate, Sample(1e-6 * (1 + crc32(text) % 997)))
        took.append(time.process_time() - begin)
        digest = crc32(text, digest)
        digests.append(digest)
    first, *each = took
    fifth = steps // 5
    means = " ".join(f"{1e3 * sum(each[at : at + fifth]) / fifth:.2f}" for at in range(0, steps, fifth))
    known = " ".join(f"{digests[at]:08x}" for at in range(fifth, steps + 1, fifth))
    print(f"{sample}: {1e3 * sum(each) / steps:.2f} ms; {means}; first {first:.2f} s; {known}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

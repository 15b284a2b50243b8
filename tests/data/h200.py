"""All 2036 implementations of the SpMV on two streams, measured in five passes on four H200s, as results.

The figures are of spmv-2036-4xh200.csv: 150 000 rows, host-staged MPI, Open MPI 4.1.6, one GPU a rank.
"""

from __future__ import annotations

import csv
import tempfile
from functools import cache
from pathlib import Path

from dagc import api
from dagc.base.sample import Sample
from dagc.base.statistics import noise_floor
from dagc.ir.constraints import configuration_of
from dagc.ir.plan import program_hash
from dagc.ir.program import Graph
from dagc.store.records import Records
from dagc.store.results import Implementation, ImplementationId, MachineRecord, ProgramRecord, Results, Run, Taken

CSV = Path(__file__).with_name("spmv-2036-4xh200.csv")
SPMV = Path(__file__).parents[2] / "samples/spmv/spmv.dag"
PASSES = 5

MACHINE = MachineRecord(
    hosts=("h200",), cpu="x86-64", cores=64, gpus=("NVIDIA H200",) * 4, driver="", mpi="Open MPI 4.1.6", target="cuda",
    arch="sm_90",
)  # fmt: skip
RUN = Run(
    started="2026-11-20T00:00:00+00:00", machine=MACHINE, ranks=4, seed=0, strategy="exhaustive", seconds=0.01,
    revision="", version="0",
)  # fmt: skip


@cache
def h200_graph() -> Graph:
    """The graph that was measured."""
    return api.load_graph(SPMV, {"transport": "mpi_host"})


def program_of(graph: Graph) -> ProgramRecord:
    """What a results file keeps of a graph's program."""
    program = graph.program
    params = tuple((p.name, p.value) for p in program.params)
    sources = tuple((path, source.text) for path, source in sorted(program.sources.items()))
    return ProgramRecord(program.name, program.path, program_hash(program), sources, params)  # type: ignore[arg-type]


def h200_passes() -> list[tuple[str, tuple[float, ...]]]:
    """(traversal's text, seconds of the five passes), in the order of the traversals' IDs."""
    with CSV.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    return [(text, tuple(float(us) * 1e-6 for us in times)) for text, *times in rows]


@cache
def h200_results() -> Results:
    """As if one run had measured pass after pass. There was no drift reference; the noise floor is that of the passes.

    Implementation IDs are those of the traversals, so that the order of measurements is `pass * 2036 + ID`.
    """
    graph, passes = h200_graph(), h200_passes()
    configuration = configuration_of(graph)
    implementations = tuple(
        Implementation(
            ImplementationId(number), configuration, text,
            tuple(map(Sample, times)),
            taken=tuple(Taken(0, k * len(passes) + number) for k in range(len(times))),
        )
        for number, (text, times) in enumerate(passes)
    )  # fmt: skip
    noise = noise_floor(times for _, times in passes)
    return Results(program_of(graph), (RUN,), implementations, noise=noise)


def h200_file(directory: Path, passes: int = PASSES) -> Path:
    """The same as a results file, written by the writer of results files."""
    path = directory / "h200.db"
    path.write_bytes(_written(passes))
    return path


@cache
def _written(passes: int) -> bytes:
    graph, measured = h200_graph(), h200_passes()
    configuration = configuration_of(graph)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "h200.db"
        with Records.open(path, program_of(graph), RUN) as records:
            for number in range(passes):
                for text, times in measured:
                    records.add(records.begin(configuration, text), times[number], float("nan"), 100)
        return path.read_bytes()

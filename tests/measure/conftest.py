"""The samples, compiled small and built as runners, for tests that run many traversals of one program."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from random import Random

import pytest

from dagc import api
from dagc.build.builder import Build, build
from dagc.build.mpi import find_mpi, require_mpi, thread_sanitizer_environment
from dagc.build.toolchain import find_cxx
from dagc.emit.forms import table_line
from dagc.ir.plan import Plan
from dagc.ir.traversal import Entry, Traversal
from dagc.measure.launch import Finished, launch
from dagc.setup import run_setup
from dagc.space import Space
from dagc.space.proof import Prover
from tests.emit.together import build_together
from tests.precompiled import precompiled_flags

SAMPLES = Path(__file__).parents[2] / "samples"
SPMV, HALO = SAMPLES / "spmv/spmv.dag", SAMPLES / "halo3d/halo3d.dag"
GROUPS = Path(__file__).parent / "data/groups.dag"
SLABS = Path(__file__).parent / "data/slabs.dag"
MIXED = Path(__file__).parents[1] / "emit/data/transports.dag"
SMALL = {
    SPMV: {"rows": "2000"},
    HALO: {"nx": "12", "ny": "10", "nz": "8", "nq": "2", "g": "2"},
    GROUPS: {},
    SLABS: {},
    MIXED: {},
}
LOWERINGS = {
    "mpi_host": {"transport": "mpi_host"},
    "staging_ops": {"transport": "mpi_host", "staging": "ops"},
    "mpi_cuda": {"transport": "mpi_cuda"},
    "captured": {"transport": "mpi_cuda", "capture": "true"},
    "staged, captured": {"transport": "mpi_host", "capture": "true"},
    "nccl": {"transport": "nccl"},
    "peer, captured": {"transport": "peer", "capture": "true"},
}
LOWERINGS_OF = {
    SPMV: LOWERINGS,
    HALO: LOWERINGS,
    SLABS: {name: LOWERINGS[name] for name in ("mpi_host", "staging_ops")},
    MIXED: {
        "each its own": {
            "halo.transport": "mpi_cuda",
            "again.transport": "mpi_host",
            "all.transport": "peer",
            "most.transport": "nccl",
            "cast.transport": "mpi_host",
        },
        "groups of both kinds": {"transport": "peer", "all.transport": "nccl", "again.transport": "nccl"},
    },
    GROUPS: {"plain": {"transport": "nccl"}, "captured": {"transport": "nccl", "capture": "true"}},
}
RANKS = 4


def can_run() -> bool:
    """Whether programs of the host target can be built and started here."""
    mpi = find_mpi()
    return mpi is not None and mpi.mpiexec is not None and find_cxx() is not None


needs_mpi = [pytest.mark.mpi, pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")]


@dataclass(frozen=True)
class Built:
    """A sample with its choices made, as a runner program and the arrays of its ranks.

    `flags`: of the compiler. `built`: the runner, or the bench, where it was built with others.
    """

    plan: Plan
    space: Space
    directory: Path
    data: Path
    ranks: int
    sanitize: str
    capture: bool
    flags: tuple[str, ...] = ()
    built: Path | None = None

    @cached_property
    def runner(self) -> Path:
        if self.built is not None:
            return self.built
        source, out = self.directory / "runner.cpp", self.directory / "runner"
        main = ("DAGC_RUNNER_MAIN",)
        flags = (*self.flags, *precompiled_flags()) if "-O0" in self.flags else self.flags
        return build(Build([source], mpi=require_mpi(), sanitize=self.sanitize, defines=main, flags=flags), out)

    @cached_property
    def library(self) -> Path:
        """The runner as a library, not optimised."""
        source, out = self.directory / "runner.cpp", self.directory / "librunner.so"
        flags = ("-O0", *precompiled_flags())
        return build(Build([source], mpi=require_mpi(), sanitize=self.sanitize, shared=True, flags=flags), out)

    @cached_property
    def prover(self) -> Prover:
        return Prover(self.space.graph)

    def run(self, traversals: Iterable[Traversal], *, times: int = 1, first_report: bool = False) -> Finished:
        """One run and check of each traversal; each is issued `times` times in a row before its check.

        `first_report`: ThreadSanitizer ends the run with its first report, instead of collecting them.
        """
        tables = self.directory / "tables.txt"
        lines = (";".join([table_line(t, self.capture)] * times) + "\n" for t in traversals)
        tables.write_text("".join(lines))
        env = thread_sanitizer_environment(require_mpi()) if self.sanitize else {}
        if first_report:
            # With a long history, so that the stacks of earlier accesses are still known.
            env["TSAN_OPTIONS"] += " halt_on_error=1 history_size=7"
        return launch([self.runner, "--data", self.data, "--tables", tables], self.ranks, env=env, timeout=300)


Make = Callable[..., Built]
Lowered = Callable[..., Built]


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """`make(SPMV, transport="mpi_cuda", sanitize="thread")`; equal calls give the same."""
    known: dict[str, Built] = {}

    def made(path: Path, sanitize: str = "", ranks: int = RANKS, flags: tuple[str, ...] = (), **choices: str) -> Built:
        key = json.dumps([str(path), sanitize, ranks, flags, sorted(choices.items())])
        if key not in known:
            defines = {**SMALL[path], **choices}
            directory = tmp_path_factory.mktemp(path.stem) / "out"
            done = api.compile(path, directory, target="host", defines=defines, build=False)
            data = directory / "data"
            run_setup(done.plan.program, path.parent, ranks, 7, data)
            space = Space(done.plan.graph)
            known[key] = Built(done.plan, space, directory, data, ranks, sanitize, done.plan.capture, flags)
        return known[key]

    return made


@pytest.fixture(scope="session")
def lowered(make: Make, tmp_path_factory: pytest.TempPathFactory) -> Lowered:
    """`lowered(SPMV, "mpi_host", flags=("-O0",))` or `lowered(SPMV, "mpi_host", sanitize="thread")`.

    The runners (or, with `program="bench"`, the benches) of all lowerings are built together.
    """

    @cache
    def all_of(path: Path, program: str, flags: tuple[str, ...], sanitize: str) -> dict[str, Built]:
        made = {name: make(path, sanitize, **choices) for name, choices in LOWERINGS_OF[path].items()}
        plans = {re.sub(r"\W+", "-", name): built.plan for name, built in made.items()}
        folder = tmp_path_factory.mktemp(path.stem) / "together"
        programs = build_together(plans, folder, program, flags, sanitize).values()
        return {name: replace(one, built=built) for (name, one), built in zip(made.items(), programs, strict=True)}

    def one_of(
        path: Path, name: str, *, program: str = "runner", flags: tuple[str, ...] = (), sanitize: str = ""
    ) -> Built:
        return all_of(path, program, flags, sanitize)[name]

    return one_of


def wander(space: Space, random: Random) -> Traversal:
    """A traversal by fair choices among the offers: not uniform, but without counting the space."""
    entries: list[Entry] = []
    state = space.moves.start()
    while not space.moves.finished(state):
        offers = space.moves.offers(state)
        entry = random.choice(list(offers))
        entries.append(entry)
        state = space.moves.step(state, entry, offers[entry])
    return Traversal(tuple(entries))

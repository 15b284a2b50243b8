"""Two libraries of the samples, built for the host, and how programs are compiled against them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dagc import api
from dagc.build.mpi import find_mpi, require_mpi
from dagc.build.toolchain import find_cxx, require_cxx
from dagc.measure.launch import Finished, launch
from tests.precompiled import do_not_optimise

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples"

needs_mpi = [
    pytest.mark.mpi,
    pytest.mark.skipif(
        (mpi := find_mpi()) is None or mpi.mpiexec is None or find_cxx() is None,
        reason="needs an MPI and a C++ compiler",
    ),
]


@dataclass(frozen=True)
class Libraries:
    """Folders of the libraries `spmv` (transport peer, which needs no host) and `heat` (mpi_host, which does)."""

    spmv: Path
    heat: Path

    def compile(self, source: Path, out: Path, *flags: str) -> Path:
        """A C++ program with both libraries, warnings as errors."""
        mpi = require_mpi()
        words = [str(require_cxx().path), "-std=c++17", "-O0", "-pthread", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
        words += [*flags, *mpi.compile_flags(), f"-I{SAMPLES / 'apps'}", str(source), "-o", str(out)]
        for folder in (self.spmv, self.heat):
            words += [f"-I{folder / 'include'}", f"-L{folder / 'lib'}", f"-Wl,-rpath,{folder / 'lib'}"]
        words += ["-lspmv", "-lheat", *mpi.link_flags()]
        subprocess.run(words, check=True)
        return out


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    folder = tmp_path_factory.mktemp("libraries")
    with pytest.MonkeyPatch.context() as patch:
        do_not_optimise(patch, "-Werror")
        for name, transport in (("spmv", "peer"), ("heat", "mpi_host")):
            api.compile(
                SAMPLES / name / f"{name}.dag", folder / name, target="host", form="library",
                defines={"transport": transport},
            )  # fmt: skip
    return Libraries(folder / "spmv", folder / "heat")


Start = Callable[..., Finished]


@pytest.fixture
def start() -> Start:
    """Starts a program on some ranks, which may call MPI from several threads."""

    def run(*words: str | Path, ranks: int = 4, **environment: str) -> Finished:
        environment = {"MPI4PY_RC_THREAD_LEVEL": "multiple", "PYTHONPATH": str(ROOT), **environment}
        return launch([str(word) for word in words], ranks, env=environment, timeout=300)

    return run

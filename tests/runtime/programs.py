"""Builds the C++ programs of tests/runtime/cpp against the runtime headers, as they stand in the repository."""

from __future__ import annotations

from pathlib import Path

from dagc.base.resources import resource
from dagc.build.builder import Build, build
from dagc.build.mpi import MPI
from tests.precompiled import by_clang, precompiled_flags

SOURCES = Path(__file__).parent / "cpp"


def make(name: str, folder: Path, *, mpi: MPI | None = None, sanitize: str = "") -> Path:
    """The program of cpp/NAME.cpp. Without `mpi` it is built with DAGC_NO_MPI. Warnings are errors."""
    order = Build(
        [SOURCES / f"{name}.cpp"], directory=folder, include=[resource("templates/runtime")], mpi=mpi,
        sanitize=sanitize, defines=() if mpi else ("DAGC_NO_MPI",),
        flags=("-pthread", "-O0", *(precompiled_flags() if mpi else by_clang())),
    )  # fmt: skip
    return build(order, folder / name)

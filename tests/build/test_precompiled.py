"""Programs of the tests with the headers of the runtime that were compiled before."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from dagc.base.errors import BuildFailed
from dagc.build.builder import Build, build
from dagc.build.mpi import require_mpi
from tests.emit.build import write_headers
from tests.measure.conftest import can_run
from tests.precompiled import precompiled_flags

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI"),
    pytest.mark.skipif(not (shutil.which("g++") and shutil.which("clang++")), reason="needs g++ and clang++"),
]
# group_host.hpp is compiled with each program that sends messages: no header that is compiled before defines its names.
TEXT = """
#include "dagc/group_host.hpp"
#include "dagc/npy.hpp"
int main() { return dagc::load_npy("none").as<int>() == nullptr OTHER; }
"""


def compiled(folder: Path, other: str, *flags: str) -> Path:
    (folder / "a.cpp").write_text(TEXT.replace("OTHER", other))
    write_headers(folder / "include")
    return build(
        Build([folder / "a.cpp"], mpi=require_mpi(), flags=("-O0", *flags, *precompiled_flags())), folder / "a"
    )


@pytest.mark.parametrize(
    ("flag", "other", "clang"),
    [
        ("-g0", "", True),
        ("-fopenmp", '; } static_assert(_OPENMP > 0, "with OpenMP"); int other() { return 0', True),
        ("-fsanitize=undefined", "", False),
    ],
)
def test_only_what_suits_the_headers_is_compiled_with_them(tmp_path: Path, flag: str, other: str, clang: bool) -> None:
    program = compiled(tmp_path, other, flag)
    # What of the program is compiled by clang++; libraries are by g++.
    assert (b"clang version" in program.read_bytes()) is clang
    done = subprocess.run([program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("dagc: none: cannot open")


def test_static_assertions_are_those_of_clang(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match="g\\+\\+ refused a.cpp(?s:.*)static.assert.* failed.*two is not allowed"):
        compiled(tmp_path, '; } static_assert(false, "two is not allowed"); int other() { return 0')


def test_errors_are_those_of_gxx(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match="g\\+\\+ refused a.cpp(?s:.*)‘nothing’ was not declared in this scope"):
        compiled(tmp_path, "+ nothing")

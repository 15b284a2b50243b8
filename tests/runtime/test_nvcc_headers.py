"""The runtime headers under nvcc with its warnings, and the host compiler's, as errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.build.toolchain import find_mpi, find_nvcc
from tests.runtime.programs import make

pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.skipif(find_nvcc() is None or find_mpi() is None, reason="needs nvcc and an MPI"),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["npy", "options", "messages", "measure"])
def test_headers_compile_for_a_gpu(name: str, tmp_path: Path) -> None:
    assert make(name, tmp_path, mpi=find_mpi(), target="cuda").is_file()

"""The runtime headers under nvcc with its warnings, and the host compiler's, as errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dagc.base.resources import resource
from dagc.build.builder import Build, build
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_nvcc
from tests.emit.build import NVCC_ALONE
from tests.runtime.programs import SOURCES

pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.skipif(find_nvcc() is None or find_mpi() is None, reason="needs nvcc and an MPI"),
]


def test_headers_compile_for_a_gpu(tmp_path: Path) -> None:
    """As one program, since nvcc spends most of its time on the headers; by itself each is for tests of the host."""
    texts = {name: (SOURCES / f"{name}.cpp").read_text() for name in ("npy", "options", "messages", "measure")}
    include = re.compile(r"^#include .*\n", re.MULTILINE)
    lines = [line for text in texts.values() for line in include.findall(text)]
    lines += [f"namespace {name} {{\n{include.sub('', text)}}}\n" for name, text in texts.items()]
    source = tmp_path / "headers.cu"
    source.write_text("".join([*lines, "int main(int argc, char** argv) { return options::main(argc, argv); }\n"]))
    include_path = [resource("templates/runtime")]
    build(
        Build([source], target="cuda", include=include_path, mpi=find_mpi(), flags=NVCC_ALONE), tmp_path / "headers.ii"
    )

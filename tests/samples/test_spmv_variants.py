"""samples/spmv/kernels: every variant against SciPy on the host target, for all families of matrices; with nvcc."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from dagc import api
from dagc.build.builder import Build, build
from dagc.build.mpi import find_mpi, require_mpi
from dagc.build.toolchain import find_cxx, find_nvcc
from dagc.emit import linked
from dagc.measure.launch import launch
from tests.emit.build import NVCC_ALONE
from tests.tiers import representatives

SPMV = Path(__file__).parents[2] / "samples/spmv"
ALWAYS = ("thread_per_row", "lanes_per_row", "warp_per_row", "block_per_row", "merge", "segmented", "sell", "binned")
SOMETIMES = ("ell", "dia")  # a `require` keeps them to matrices that are not too large in this layout
LIBRARIES = ("cusparse1", "cusparse2")
AGAIN = ("merge", "segmented", "sell", "binned")  # two ops with one conversion

# Sizes that are multiples of nothing; with ELL and DIA where they fit.
EVERYWHERE = (
    "stencil(points=5, side=7)",
    "stencil(points=27, side=6)",
    "dense_band(rows=1030, half=3)",
    "dense(rows=1, cols=9)",
    "blocks(rows=1047, size=16)",
    "dense(rows=20, cols=33)",
)
ELSEWHERE = (
    "band(rows=3001, half=900, per_row=5)",
    "uniform(rows=777, per_row=3)",
    "uniform(rows=77, per_row=30, cols=200001)",
    "uniform(rows=5000, per_row=2, cols=9)",
    "fem(side=6, dof=3)",
    "zipf(rows=3000, mean=6)",
    "rmat(scale=11)",
    "arrow(rows=565, width=2)",
    "long_rows(rows=3000, per_row=2, long=2, share=0.2)",
    "circuit(rows=1300)",
    "staircase(rows=1000, longest=140)",
    "sparse_rows(rows=5000, share=0.01, per_row=5)",
    "two_lengths(rows=1000, short=2, long=150)",
    "dense(rows=1, cols=3000)",
    "dense(rows=8, cols=20000)",
    "uniform(rows=3000, per_row=40, cols=30000)",
)


UNEVEN = (
    "zipf(rows=3000, mean=6)",
    "long_rows(rows=3000, per_row=2, long=2, share=0.2)",
    "dense(rows=1, cols=3000)",
    "dense(rows=8, cols=20000)",  # 40 tiles a row
    "uniform(rows=77, per_row=30, cols=200001)",  # too wide for columns of 16 bits
)
MATRICES = {"regular": EVERYWHERE, "uneven": UNEVEN, "others": tuple(m for m in ELSEWHERE if m not in UNEVEN)}
needs_both = pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")


def program(folder: Path, variants: tuple[str, ...]) -> Path:
    """A program that computes the product once with each of the variants, which may repeat."""
    shutil.copytree(SPMV, folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (folder / "variants.dag").read_text()
    names = [f"y_{i}_{v}" for i, v in enumerate(variants)]
    lanes = {"lanes_per_row": ", lanes = 8"}
    ops = "\n".join(
        f"  op_{y} : gpu spmv.{v}({y}, row_ptr, col, val, x, n, cols, nnz{lanes.get(v, '')})"
        for y, v in zip(names, variants, strict=True)
    )
    text = text.replace("array y : f32[n] out", f"array {', '.join(names)} : f32[n] out")
    text = re.sub(r"dag \{.*", f"dag {{\n{ops}\n}}\n", text, flags=re.DOTALL)
    text += "\n".join(f"verify {y} ~ product() rtol 1e-4" for y in names) + "\n"
    setup = (folder / "variants.py").read_text()
    returned = "{name: y for name in (" + "".join(f'"{y}", ' for y in names) + ")}"
    setup = re.sub(r"    return \{\"y\": (.*)\}\n", rf"    y = \1\n    return {returned}\n", setup)
    (folder / "variants.py").write_text(setup)
    (folder / "all.dag").write_text(text)
    return folder / "all.dag"


def checked(path: Path, built: Path, matrices: tuple[str, ...], folder: Path) -> dict[str, str]:
    """What the program says of each matrix whose results are wrong."""
    out = {}
    for matrix in matrices:
        api.run_setup(path, 1, folder / "data", defines={"matrix": matrix})
        done = launch([built / "bench", "--data", str(folder / "data"), "--check-only"], 1, timeout=300)
        if done.returncode:
            out[matrix] = done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def always(tmp_path_factory: pytest.TempPathFactory, unoptimised: None) -> tuple[Path, Path]:
    """The program with `ALWAYS` and `AGAIN`, and where it was built."""
    folder = tmp_path_factory.mktemp("always")
    path = program(folder / "sample", ALWAYS + AGAIN)
    api.compile(path, folder / "built", target="host")
    return path, folder / "built"


@pytest.mark.mpi
@needs_both
@pytest.mark.parametrize("matrices", representatives(MATRICES, "uneven"))
def test_every_variant_computes_the_product(always: tuple[Path, Path], matrices: str, tmp_path: Path) -> None:
    assert checked(*always, MATRICES[matrices], tmp_path) == {}


@pytest.mark.mpi
@needs_both
def test_products_with_one_matrix_have_one_layout(always: tuple[Path, Path]) -> None:
    """Of those in `AGAIN`: what is written in each product is its own, all else is there once."""
    arrays = re.findall(r"dagc::Array<\w+(?:::\w+)?> op_y_\d+_(\w+);", (always[1] / "program.hpp").read_text())
    own = {"merge_start", "merge_mail", "binned_product"}
    assert {name: arrays.count(name) for name in arrays} == {name: 2 if name in own else 1 for name in arrays}
    assert {name.partition("_")[0] for name in arrays} == set(AGAIN)


@pytest.mark.mpi
@needs_both
def test_layouts_that_may_be_too_large(tmp_path: Path, unoptimised: None) -> None:
    """And `merge` as it is for large matrices."""
    path = program(tmp_path / "other", (*SOMETIMES, "merge"))
    merge = tmp_path / "other/kernels/merge.cu"
    text, changed = re.subn("1 << 20|7 << 18", lambda m: {"1": "300", "7": "9000"}[m[0][0]], merge.read_text())
    assert changed == 2
    merge.write_text(text)
    api.compile(path, tmp_path / "other-built", target="host")
    assert checked(path, tmp_path / "other-built", EVERYWHERE, tmp_path) == {}
    refused = checked(path, tmp_path / "other-built", ("arrow(rows=565, width=2)",), tmp_path)
    assert ["require" in text for text in refused.values()] == [True]


@pytest.mark.nvcc
@pytest.mark.skipif(find_nvcc() is None or find_mpi() is None, reason="needs nvcc and an MPI")
@pytest.mark.thorough
def test_nvcc_takes_every_variant(tmp_path: Path) -> None:
    path = program(tmp_path / "sample", ALWAYS + SOMETIMES + LIBRARIES)
    done = api.compile(path, tmp_path / "all", target="cuda", build=False)
    others = linked(done.plan)
    assert others.libraries == ("cusparse",)
    assert len(others.sources) == 7
    for source in ("bench.cu", *others.sources):
        order = Build(
            [done.directory / source], target="cuda", directory=done.directory, mpi=require_mpi(),
            include=("include", *others.include), flags=NVCC_ALONE,
        )  # fmt: skip
        build(order, tmp_path / "out.ii")

"""Coarsening: results as those of the kernels as written, which kernels are refused, and what is emitted."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from dagc.base.errors import UsageError
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from dagc.emit import emit
from dagc.forms import forms_of, surroundings_of
from dagc.forms.coarsen import COARSEN
from dagc.forms.types import Refusal
from dagc.ir.plan import Plan, Target
from dagc.ir.program import Graph
from dagc.space import Space
from tests.conftest import Compare
from tests.emit.build import graph_of
from tests.forms.compared import check_at
from tests.forms.made_up import HELPER, made_up
from tests.tiers import representatives

DATA = Path(__file__).parent / "data"
COARSE = DATA / "coarse.dag"
KERNELS = ("guarded", "search", "strides", "sum", "moved", "box", "apart", "handed_on")
PARTS = (1, 2, 4, 8)


def coarse() -> Graph:
    """Each kernel with all values of the form, and a check that their results are equal."""
    arrays, ops, defines = [], [], dict[str, str]()
    for number, kernel in enumerate(KERNELS):
        outs = [f"{kernel}_{parts}_out" for parts in PARTS]
        arrays.append(f"array {', '.join(outs)} : f32[n * n] on pinned")
        for parts, out in zip(PARTS, outs, strict=True):
            ops.append(f"{kernel}_{parts} : gpu {kernel}({out}, x, n)")
            defines[f"{kernel}_{parts}.form.coarsen"] = str(parts)
        ops.append(f"{kernel}_same : cpu same(apart[{number} .. {number + 1}], {', '.join(outs)}, n * n)")
    defines["guarded_4.by"] = "3"  # further remainders
    text = "\n".join([COARSE.read_text(), *arrays, "dag {", *ops, "}"])
    return graph_of(text, **defines)


@pytest.mark.mpi
@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
def test_results_are_equal_at_every_remainder(tmp_path: Path) -> None:
    sides = (*range(10), 16, 17, 33, 65)
    check_at(coarse(), tmp_path, [{"side": side} for side in sides], ("-O0", "-Wall", "-Wextra", "-Werror"))


def of_made_up(many: int, seed: int) -> Graph:
    """Made-up kernels, each as written and with one value of the form."""
    random = Random(seed)
    names = [f"made_{number}" for number in range(many)]
    arrays, ops, defines = [], [], dict[str, str]()
    for number, name in enumerate(names):
        arrays.append(f"array {name}_out, {name}_formed : f32[n * n] on pinned")
        ops += [f"{name}_a : gpu {name}({name}_out, x, n)", f"{name}_b : gpu {name}({name}_formed, x, n)"]
        same = f"{name}_out, {name}_formed, {name}_out, {name}_formed"
        ops.append(f"{name}_same : cpu same(apart[{number} .. {number + 1}], {same}, n * n)")
        defines[f"{name}_b.form.coarsen"] = str(random.choice(PARTS[1:]))
    defines["many"] = str(many)
    text = [COARSE.read_text(), HELPER, *(made_up(name, random) for name in names), *arrays, "dag {", *ops, "}"]
    return graph_of("\n".join(text), **defines)


@pytest.mark.mpi
@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
@pytest.mark.parametrize("seed", representatives(range(10), 0))
def test_made_up_kernels_have_equal_results(seed: int, tmp_path: Path) -> None:
    check_at(of_made_up(12, seed), tmp_path, [{"side": side} for side in (1, 2, 5, 9, 34)], ("-O0",))


# Body of a kernel with `n : i64`, `y` and `x`, launched with grid(ceil(n / 32)) block(32): the reason, the line.
REFUSED = {
    'asm("mov.u32 %0, %1;" : "=f"(y[0]) : "f"(x[0]));': ("inline PTX is not read", 0),
    "if (blockIdx.x > n) return;\n__syncthreads();": ("a thread may return before the `__syncthreads`", 0),
    "int i = threadIdx.x;\nif (i > n) return;\nmeet();": ("a thread may return before the `meet` of line 3", 1),
    "y[0] = x[0];\ny[where()] = 1;": ("`where` uses `blockIdx`", 1),
    "y[unknown(3)] = 1;": ("`unknown` is called, whose definition is not at hand", 0),
    "y[other::lane()] = 1;": ("`other::lane` is called, whose definition is not at hand", 0),
    "dim3 b(1, 1);\nuint3 at = blockIdx;\ny[at.x] = b.x;": ("`blockIdx` is used as a whole", 1),
    "LEAVE(threadIdx.x > n);\ny[0] = 1;": ("a macro contains `return`", None),
    "#define HERE blockIdx.x\ny[HERE] = x[HERE];": ("a macro contains `blockIdx`", None),
    "while (((volatile float*)x)[0] == 0) {}\ny[0] = 1;": ("a loop waits for another thread", None),
    "cooperative_groups::this_grid().sync();": ("it synchronises blocks (`this_grid`)", 0),
    "struct P { int at() { return blockIdx.x; } } p;\ny[p.at()] = 1;": ("`blockIdx` is used in a class", 0),
    "auto f = [y, n](int i) { y[blockIdx.x * n] = i; };\nf(3);": ("`blockIdx` is used in a lambda that names", 0),
    "__shared__ cub::BlockReduce<float, 32>::TempStorage t;\ny[0] = cub::BlockReduce<float, 32>(t).Sum(x[0]);": (
        "classes of this library are not read (`cub`)",
        0,
    ),
    "y[0] = __activemask();": ("`__activemask` depends on the threads that run together", 0),
    "y[0] = ;": ("the kernel's text does not parse as CUDA C++", 0),
    f"\ny[0] = {'(' * 1000}2{')' * 1000};": ("nested too deeply", 1),
    f"y[0] = 1;\n{'{' * 1000}y[0] = 2;{'}' * 1000}": ("nested too deeply", 1),
}
AROUND = """cuda \"\"\"
#define LEAVE(c) do { if (c) return; } while (0)
__device__ inline int deeper() { return blockIdx.x; }
__device__ inline int where() { return deeper() + 1; }
__device__ inline void meet() { __syncthreads(); }
\"\"\""""


def program(body: str, launch: str = "grid(ceil(n / 32)) block(32)", **defines: str) -> Graph:
    code = f'cuda """{body}"""'
    kernel = f"kernel k(y: out f32[n], x: in f32[n], n: i64) {{ gpu {{ launch {launch} {code} }} }}"
    return graph_of(
        f"program one\nscalar n : i64\narray x : f32[n] in\narray y : f32[n] out\n{AROUND}\n{kernel}\n"
        "dag { a : gpu k(y, x, n) }",
        **defines,
    )


@pytest.mark.parametrize("body", REFUSED, ids=range(len(REFUSED)))
def test_a_kernel_is_refused_with_the_line(body: str) -> None:
    kernels = program(body).program
    reason, line = REFUSED[body]
    kernel = kernels.kernels[0]
    found = {form.name: legal for form, legal in forms_of(kernel, kernel.impls[0], surroundings_of(kernels))}["coarsen"]
    assert isinstance(found, Refusal)
    assert (found.reason.startswith(reason), found.line) == (True, line), found


def test_a_launch_is_refused() -> None:
    for grid, reason in (
        ("grid(1) block(32)", "the grid has one block"),
        ("grid(hw.sms) block(32)", "the kernel cannot"),
    ):
        one = program("y[threadIdx.x] = 1;", grid).program
        found = [
            legal
            for form, legal in forms_of(one.kernels[0], one.kernels[0].impls[0], surroundings_of(one))
            if form is COARSEN
        ]
        assert [f.reason[: len(reason)] for f in found if isinstance(f, Refusal)] == [reason]


def test_a_form_that_is_refused_or_unknown_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"does not allow this form: test.dag:\d+: `where` uses `blockIdx`"):
        program("y[where()] = 1;", **{"a.form.coarsen": "2"})
    with pytest.raises(UsageError, match="there is no such form"):
        program("y[0] = 1;", **{"a.form.rougher": "2"})
    with pytest.raises(UsageError, match="not one of the choices") as refused:
        program("y[blockIdx.x] = 1;", **{"a.form.coarsen": "3"})
    assert refused.value.help == "choose from 1, 2, 4, 8"


def test_the_plain_text_stays_as_it_is() -> None:
    """With the forms open, and with the value that leaves the kernel as it is, emitted files are those of today."""
    body = "y[blockIdx.x * 32 + threadIdx.x] = 1;"
    graphs = [program(body), program(body, **{"a.form.coarsen": "1"})]
    texts = [emit(Plan(graph, next(iter(Space(graph))), Target.CUDA)) for graph in graphs]
    for text in texts:
        del text["plan.json"]  # which has the value of the form
    assert texts[0] == texts[1]


def test_the_emitted_text(golden: Compare) -> None:
    graph = coarse()
    text = emit(Plan(graph, next(iter(Space(graph))), Target.CUDA))["kernels.cu"]
    golden(Path(__file__).parents[1] / "golden/forms/coarsen.cu.golden", text)


@pytest.mark.parametrize("restriction", ["forms none", "forms {coarsen}"])
def test_the_text_restricts_the_forms(restriction: str) -> None:
    """`launch` is followed by the restriction, an item of the implementation."""
    grid, body = f"grid(ceil(n / 32)) block(32) {restriction}", "y[blockIdx.x * 32 + threadIdx.x] = 1;"
    if restriction == "forms none":
        with pytest.raises(UsageError, match="`forms` of the kernel leaves it out"):
            program(body, grid, **{"a.form.coarsen": "2"})
    else:
        assert program(body, grid, **{"a.form.coarsen": "2"}).program.decision("a.form.coarsen") == 2

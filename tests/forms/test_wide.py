"""Wide accesses: results as those of the kernels as written, which kernels are refused, and what is emitted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from dagc.emit import emit
from dagc.forms import forms_of, kernel_of, surroundings_of
from dagc.forms.tile import TILE
from dagc.forms.types import Refusal
from dagc.forms.wide import WIDE
from dagc.ir.plan import Plan, Target
from dagc.ir.program import Graph, Program
from dagc.ir.sym import Const, evaluate, show, substitute
from dagc.perf.geometry import read_accesses
from dagc.space import Space
from tests.conftest import Compare
from tests.emit.build import graph_of
from tests.forms.compared import check_at
from tests.forms.neighbours_made_up import MadeUp

DATA = Path(__file__).parent / "data"
KERNELS = (
    "jacobi",
    "border",
    "shifted",
    "unguarded",
    "updates",
    "columns",
    "data",
    "window",
    "rows",
    "down",
    "march",
    "inside",
    "among",
)
FORMS = ((1, 1), (2, 1), (4, 1), (4, 2))  # wide, coarsen


def made_up(seed: int, number: int) -> dict[str, str]:
    """The texts of kernels that are drawn at random and allow the form, by name."""
    names = [f"made_up_{seed}_{k}" for k in range(number)]
    texts = {name: MadeUp(Random(name)).text(name) for name in names}
    program = wide(("jacobi",), "".join(texts.values())).program
    kernels = [k for k in program.kernels if k.name in texts]
    found = {k.name: dict(forms_of(k, k.impls[0], surroundings_of(program)))[WIDE] for k in kernels}
    return {name: text for name, text in texts.items() if found[name] == WIDE.values}


def made_tiles(texts: dict[str, str]) -> list[str]:
    """Those of these kernels that also allow tiles."""
    program = wide(("jacobi",), "".join(texts.values())).program
    found = [(k.name, dict(forms_of(k, k.impls[0], surroundings_of(program)))) for k in program.kernels]
    return [name for name, forms in found if name in texts and forms[TILE] == TILE.values]


def wide(kernels: Sequence[str] = KERNELS, more: str = "", tiles: Sequence[str] = ()) -> Graph:
    """Each kernel with all values of the form, and a check that their results are equal. The last has more
    blocks of the slowest axis too, or tiles."""
    arrays, ops, defines = [], [], dict[str, str]()
    for number, kernel in enumerate(kernels):
        outs = [f"{kernel}_{lanes}_{parts}_out" for lanes, parts in FORMS]
        arrays.append(f"array {', '.join(outs)} : f32[3 * n + 16] on pinned")
        for (lanes, parts), out in zip(FORMS, outs, strict=True):
            op = f"{kernel}_{lanes}_{parts}"
            ops.append(f"{op}_clear : gpu clear({out}, 3 * n + 16)")
            ops.append(f"{op} : gpu {kernel}({out}[o .. o + 3 * n], x[o .. o + 5 * n], n)")
            other = "tile" if kernel in tiles else "coarsen"
            defines |= {f"{op}.form.wide": str(lanes), f"{op}.form.{other}": str(parts)}
        ops.append(f"{kernel}_same : cpu same(apart[{number} .. {number + 1}], {', '.join(outs)}, 3 * n + 16)")
    text = (DATA / "wide.dag").read_text().replace("KERNELS", str(len(kernels)))
    return graph_of("\n".join([text, more, *arrays, "dag {", *ops, "}"]), **defines)


@pytest.mark.mpi
@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
@pytest.mark.parametrize(
    ("kernels", "seed", "number"),
    [(KERNELS, 0, 4), *(pytest.param((), seed, 24, marks=pytest.mark.thorough) for seed in range(1, 9))],
)
def test_results_are_equal_at_every_remainder(kernels: tuple[str, ...], seed: int, number: int, tmp_path: Path) -> None:
    drawn = made_up(seed, number)
    assert len(drawn) > 0.8 * number
    names, more = (*kernels, *drawn), "".join(drawn.values())
    tiles = made_tiles(drawn)
    assert number < 24 or len(tiles) > 0.1 * number
    graph = wide(names, more, tiles=tiles)
    sizes = [{"side": n} for n in (*range(10), 132)] + [{"side": 64, "shift": k} for k in (1, 2, 4)]
    check_at(graph, tmp_path, sizes)


# Body of a kernel with `y`, `x` and `n : i64`, launched with grid(ceil(n / 32)) block(32): the reason, the line.
INDEX = "const int j = blockIdx.x * 32 + threadIdx.x;\nif (j >= n) return;\n"
REFUSED = {
    INDEX + "y[j] += y[j + 1];": ("`y[j + 1]` may be what a neighbour stores by `y[j]`", 2),
    INDEX + "y[j] = x[j];\ny[n - 1 - j] = 0;": ("neighbours do not store neighbouring elements by `y[n - 1 - j]`", 3),
    INDEX + "y[j] = y[(int)x[j]];": ("`y[(int)x[j]]` may be what a neighbour stores", 2),
    INDEX + "const float* p = y;\nif (x[j] > 0) p = x;\ny[j] = p[j];": ("`p[j]` may be what a neighbour stores", 4),
    INDEX + "y[(int)x[j]] = 1;": ("where `y[(int)x[j]]` is stored is not known", 2),
    INDEX + "if (x[j] > 0) return;\ny[j] = 1;": ("some of the neighbours leave here", 2),
    INDEX + "for (int k = 0; k < 9; ++k) {\nif (x[j] > k) break;\ny[j] = k;\n}": (
        "some of the neighbours leave here",
        3,
    ),
    INDEX + "__syncthreads();\ny[j] = x[j];": ("threads meet at `__syncthreads`", 2),
    INDEX + "y[j] = __shfl_down_sync(~0u, x[j], 1);": ("threads meet at `__shfl_down_sync`", 2),
    INDEX + "__shared__ float s;\ny[j] = x[j];": ("it uses shared memory", 2),
    INDEX + "atomicAdd(&y[j], x[j]);": ("`atomicAdd` is not read", 2),
    INDEX + "y[j] = x[j] + threadIdx.x % 4;": ("`threadIdx.x` depends on more than", 2),
    INDEX + "y[j] = x[blockIdx.x];": ("`blockIdx.x` depends on more than", 2),
    INDEX + "y[j] = gridDim.x;": ("`gridDim.x` is used: where a loop goes by it, let the grid have a thread", 2),
    INDEX + "y[j] = where();": ("`where` uses `blockIdx`", 2),
    INDEX + "float& a = y[j];\na = 1;": ("the reference `& a` is not read", 2),
    INDEX + "put(y, j);": ("what `put` does with `y` is not read", 2),
    INDEX + "((int*)y)[j] = 1;": ("where `((int*)y)[j]` is stored is not known", 2),
    INDEX + "volatile float* p = y + j;\n*p = x[j];": ("`volatile` accesses stay as they are", 2),
    INDEX + "struct P { float a; };\nP p = {x[j]};\ny[j] = p.a;": ("types that a kernel declares are not read", 2),
    INDEX + "float s = 0;\nbump(s, 1);\ny[j] = s * x[j];": ("`bump` may change what it is given", 3),
    INDEX + "float a[2] = {x[j], 1}, s = 0;\nfor (float v : a) s += v;\ny[j] = s;": (
        "where `v` is declared is not read",
        3,
    ),
    INDEX + "float a[2][1] = {{x[j]}, {1}};\nfor (int k = 0; k < 2; ++k) y[k * n + j] = a[k][0];": (
        "the declaration of `a` is not read",
        2,
    ),
    INDEX + "float2 v;\nv.x = x[j];\ny[j] = v.dot();": ("`v.dot` is not read", 4),
    INDEX + "#ifdef SOME\ny[j] = 1;\n#endif\ny[j] = 2;": ("it has directives of the preprocessor", 2),
    INDEX + "*(float4*)(y + j) = float4{};": ("where `*(float4*)(y + j)` is stored is not known", 2),
    'asm("mov.u32 %0, %1;" : "=f"(y[0]) : "f"(x[0]));': ("inline PTX is not read", 0),
    INDEX + "y[blockIdx.y * (n + 1) + j] = x[j];": (
        "`y[blockIdx.y * (n + 1) + j]` is not where a vector begins in all rows: pass the length of its rows",
        2,
    ),
    INDEX + "auto f = [=](int k) { return x[k]; };\ny[j] = f(j);": (
        "`[=](int k) { return x[k]; }` is not read: write its text where",
        2,
    ),
    INDEX + "y[j * 2] = x[j];": ("neighbours do not store neighbouring elements by `y[j * 2]`", 2),
    INDEX + "x[j];": ("it stores nothing", None),
    INDEX + "int at = j;\nif (x[j] > 0) at += n;\ny[at] = 1;": ("where `y[at]` is stored is not known", 4),
    INDEX + "int at = j;\nfor (int k = 0; k < 9; ++k) {\nconst int was = at;\nat += n;\ny[was] = x[at];\n}": (
        "where `y[was]` is stored is not known",
        6,
    ),
    INDEX + "int at = j;\nfor (int k = 0; k < 9; ++k, at += 3) y[at] = 1;": ("`y[at]` is not where a vector", 3),
    INDEX + "int at = j;\nfor (int k = 0; k < 9; ++k, at += k) y[at] = 1;": ("where `y[at]` is stored is not known", 3),
    INDEX + "int k = 0;\nif (x[j] > 0) k = 1;\nint at = j + k * n;\nat += n;\ny[at] = 1;": (
        "where `y[at]` is stored",
        6,
    ),
    INDEX + "int k = 0;\nwhile (k < 3) {\nint at = j + k * n;\nat += n;\nk = max(k, 1) + 1;\ny[at] = 1;\n}": (
        "where `y[at]` is stored is not known",
        7,
    ),
    INDEX + "int at = j;\nfor (int k = 0; k < x[j]; ++k) at += n;\ny[at] = 1;": ("where `y[at]` is stored", 4),
    "y[threadIdx.x] = 1;": ("`threadIdx.x` depends on more than", 0),
}
AROUND = """cuda \"\"\"
__device__ inline int where() { return blockIdx.x; }
__device__ inline void bump(float& s, float by) { s += by; }
__device__ inline void put(float* y, int j) { y[j] = 1; }
\"\"\""""


@pytest.mark.parametrize("body", REFUSED)
def test_a_kernel_is_refused_with_the_line(body: str) -> None:
    program = graph_of(
        f"program one\nscalar n : i64\narray x : f32[n] in\narray y : f32[n] out\n{AROUND}\nkernel k(y: out f32[n],"
        f' x: in f32[n], n: i64) {{ gpu {{ launch grid(ceil(n / 32)) block(32) cuda """{body}""" }} }}\n'
        "dag { a : gpu k(y, x, n) }"
    ).program
    kernel = program.kernels[0]
    found = dict(forms_of(kernel, kernel.impls[0], surroundings_of(program)))[WIDE]
    assert isinstance(found, Refusal)
    reason, line = REFUSED[body]
    assert (found.reason[: len(reason)], found.line) == (reason, line)


def test_the_emitted_text(golden: Compare) -> None:
    graph = wide(("jacobi", "border", "columns", "data", "down"))
    text = emit(Plan(graph, next(iter(Space(graph))), Target.CUDA))["kernels.cu"]
    golden(Path(__file__).parents[1] / "golden/forms/wide.cu.golden", text)


def test_the_access_analysis_reads_vectors() -> None:
    """Models see the accesses of groups that go one way; those of the others count as rare."""
    program = wide(("columns",)).program
    (op,) = (op for op in program.kernel_ops if op.site == "columns_4_1")
    often = [a for a in read_accesses(program, op).accesses if a.weight > 0]
    assert {(a.array, a.size, a.store) for a in often} == {
        ("x", 16, False), ("x", 4, False), ("y", 16, True),
    }  # fmt: skip


def one(body: str) -> Program:
    """A kernel of blocks of a size that the program decides, with vectors of four elements."""
    return graph_of(
        "program one\ntune block in {128, 256}\nscalar n : i64\narray x : f32[n] in\narray y : f32[n] out\n"
        "kernel k(y: out f32[n], x: in f32[n], n: i64) { gpu { launch grid(ceil(n / block)) block(block)\n"
        f'cuda """const int j = blockIdx.x * block + threadIdx.x; if (j < n) {{ {body} }}""" }} }}\n'
        "dag { a : gpu k(y, x, n) }",
        **{"a.form.wide": "4", "block": "256"},
    ).program


def test_each_lane_has_the_initial_values_of_an_array() -> None:
    program = one("float a[3] = {x[j], 2 * x[j]};\nfor (int k = 0; k < n; ++k) a[k % 3] += k;\ny[j] = a[1];")
    code = kernel_of(program, program.kernel_ops[0])[1].code
    assert code is not None
    lines = [line.strip() for line in (code.text or "").splitlines()]
    assert {"float a[4][3];", "a[lane][0] = x_0[lane];", "a[lane][2] = 0;"} <= {*lines}


def test_a_pragma_between_the_heads_of_loops_stays_there() -> None:
    program = one(
        "float s = 0;\nfor (int l = 0; l < 2; ++l)\n#pragma unroll 2\nfor (int k = 0; k < 2; ++k) s += x[j];\ny[j] = s;"
    )
    code = kernel_of(program, program.kernel_ops[0])[1].code
    assert code is not None
    lines = [line.strip() for line in (code.text or "").splitlines()]
    after = [lines[k + 1] for k, line in enumerate(lines) if line == "#pragma unroll 2"]
    assert [line.partition(";")[0] for line in after] == ["for (int k = 0", "for (int k = 0"]


def test_planes_of_squares_are_vectors_where_a_row_is() -> None:
    """The square of a side may be a multiple of 4 where the side is none."""
    program = graph_of(
        "program one\nscalar n, m : i64\narray x, y : f32[m, n, n] inout\n"
        "kernel k(y: out f32[m, n, n], x: in f32[m, n, n], n: i64, m: i64) { gpu {\n"
        'launch grid(ceil(n / 32), n, m) block(32) cuda """const long i = blockIdx.x * 32 + threadIdx.x;\n'
        'if (i < n) y[(blockIdx.z * n + blockIdx.y) * n + i] = x[(blockIdx.z * n + blockIdx.y) * n + i];""" } }\n'
        "dag { a : gpu k(y, x, n, m) }",
        **{"a.form.wide": "4"},
    ).program
    code = kernel_of(program, program.kernel_ops[0])[1].code
    assert code is not None
    assert "const bool vectors = n % 4 == 0 && dagc::aligned<4>(x, y);" in (code.text or "")


def test_a_block_that_the_program_decides_is_known() -> None:
    """The launch has its value, the text its name."""
    program = one("y[j] = x[j];")
    assert kernel_of(program, program.kernel_ops[0])[1].launch.block == (Const(256),)  # type: ignore[union-attr]


def test_the_launch_is_that_of_the_kernel_as_written_where_rows_are_no_multiples_and_threads_few() -> None:
    """In programs whose sizes are known only when they run too, without warnings of C++ compilers."""
    text = (DATA / "small.dag").read_text().replace("KERNELS", "1")
    text += "array y : f32[n * m] on pinned\ndag { a : gpu powers(y, x, n, m)  b : cpu same(apart, y, y, n * m) }"
    program = graph_of(text, **{"a.form.wide": "4"}).program
    (op,) = (op for op in program.kernel_ops if op.site == "a")
    launch = kernel_of(program, op)[1].launch
    assert launch is not None
    blocks = {m: evaluate(launch.grid[0], {"m": m, "n": 3, "bx": 32, "form.wide": 4}) for m in (127, 128, 254, 260)}
    assert blocks == {127: 4, 128: 1, 254: 8, 260: 3}
    assert evaluate(launch.grid[0], {"m": 1001, "n": 4200, "bx": 32, "form.wide": 4}) == 8
    code = kernel_of(program, op)[1].code
    assert code is not None
    assert "const int group = m % 4 == 0 || m * n >= 4194304 ? 4 : 1;" in (code.text or "")
    assert show(substitute(launch.grid[0], {"form.wide": Const(4)})) == (
        "ceil(m / (bx * (m % 4 == 0 || m * n >= 4194304 ? 4 : 1)))"
    )

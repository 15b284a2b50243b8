"""The elements that a launch must touch, against those that it touches: kernels that are compiled and executed, with
every load and store noted."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dagc import api
from dagc.build.toolchain import find_cxx
from dagc.ir.program import KernelOp
from dagc.perf.bound import Footprint, footprint_of
from dagc.perf.geometry import read_accesses
from dagc.perf.program import ParameterKind
from dagc.perf.volume import volume_program

SIZES = [(1, 32), (100, 64), (257, 32)]  # n, and threads of a block

TEXT = """
program footprint
setup "none.py" data()
scalar n : i32
array a : f32[*] in
array k : i32[*] in
array y : f32[*] out
array z : f32[*] inout
kernel work(y: out f32[*], z: inout f32[*], a: in f32[*], k: in i32[*], n: i32) {{
  tune bx in {{32, 64}}
  gpu {{
    launch grid({grid}) block(bx)
    cuda \"\"\"{code}\"\"\"
  }}
}}
dag {{ w : gpu work(y, z, a, k, n) }}
"""


@dataclass(frozen=True)
class Kernel:
    """`exact`: all elements are counted, not only some."""

    code: str
    grid: str = "ceil(n / bx)"
    exact: bool = True


INDEX = "int i = blockIdx.x * bx + threadIdx.x; if (i >= n) return; "


def _whole(code: str) -> Kernel:
    return Kernel(INDEX + code)


def _part(code: str) -> Kernel:
    return Kernel(INDEX + code, exact=False)


KERNELS = {
    "a guard": _whole("y[i] = a[i];"),
    "a branch": Kernel("int i = blockIdx.x * bx + threadIdx.x; if (i < n && i > 3) { y[i] = a[i]; }"),
    "in place": _whole("z[i] += a[2 * i];"),
    "an edge": _whole("y[i] = (i == 0 || i == n - 1) ? 1.0f : a[n + i] + a[2 * n + i];"),
    "a name": _part("bool inner = i > 0 && !(i >= n - 1); if (inner) y[i] = 1.0f; else y[i] = 2.0f;"),
    "arrays of structures": _whole("y[i] = a[3 * i] + a[3 * i + 1] + a[3 * i + 2];"),
    "structures of arrays": _whole("y[i] = a[i] + a[n + i] + a[5 * n + i];"),
    "neighbours": _part("y[i] = a[i] + a[i + 1] + a[i + 2];"),
    "a grid-stride loop": Kernel(
        "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a[i];", "3"
    ),
    "a row a block": Kernel(
        "float s = 0; for (int j = threadIdx.x; j < n; j += bx) s += a[blockIdx.x * n + j]; y[blockIdx.x] = s;", "n"
    ),
    "a column a thread": _whole("float s = 0; for (int j = 0; j < n; ++j) s += a[j * n + i]; y[i] = s;"),
    "a triangle": _whole("float s = 0; for (int j = 0; j <= i; ++j) s += a[i * n + j]; y[i] = s;"),
    "a band": _whole("for (int j = 0; j < 8; ++j) if (i + j < n) y[i * 8 + j] = a[i + j];"),
    "a window": _whole("float s = 0; for (int j = 0; j < 5; ++j) s += a[i + j]; y[i] = s;"),
    "some a thread": Kernel(
        "for (int r = 0; r < 4; ++r) { int i = blockIdx.x * bx * 4 + r * bx + threadIdx.x; if (i < n) y[i] = a[i]; }",
        "ceil(n / (4 * bx))",
    ),
    "two axes of one": _part("int r = i / 10, c = i % 10; y[r * 16 + c] = a[c * 100 + r];"),
    "every second": _part("if (i % 2 == 0) y[i] = a[i / 2];"),
    "a loop that continues": _whole("for (int j = 0; j < 6; ++j) { if (j == 5) continue; y[6 * i + j] = a[j]; }"),
    "one thread": Kernel("if (threadIdx.x) return; y[blockIdx.x] = a[blockIdx.x];"),
    "stored before": _part("z[i] = 1.0f; y[i] = z[n - 1 - i];"),
    "in a loop that stores": _part("for (int j = 0; j < 4; ++j) z[i * 4 + j + 1] = z[i * 4 + j];"),
    "by data": _part("if (k[i] > 1) y[i] = a[i];"),
    "left by data": _part("if (k[i] > 1) return; y[i] = a[i];"),
    "left in a branch": _part("if (i > 5) { if (k[i] > 1) return; y[n + i] = 1; } y[i] = a[i];"),
    "left in a loop": _part("for (int j = 0; j < 9; ++j) { if (k[j] > 1) return; } y[i] = a[i];"),
    "a loop that ends": _part("for (int j = 0; j < 9; ++j) { if (k[j] > 1) break; y[i * 9 + j] = 1; }"),
    "trips by data": _part("for (int j = 0; j < k[i]; ++j) y[i * 9 + j] = a[j];"),
    "while": _part("int j = i; while (k[j] < 2) { y[j] = a[j]; j += 3; }"),
    "left by a macro": _part("LEAVE_IF(k[i] > 1); y[i] = a[i];"),
    "short circuits": _part("if (i < 7 && a[i] > 1e9f) y[i] = 1; if (i < 9 || a[n + i] > 0) y[n + i] = 2;"),
    "chosen by data": _part("y[i] = k[i] > 1 ? a[i] : a[n + i];"),
    "scattered": _part("y[k[i]] = a[k[i]];"),
    "a step while": _whole(
        "int c = 0, at = i; y[at] = a[at];"
        " for (int r = 1; r < 4; ++r) { c += 1; if (c < 3) { at = at + n; y[at] = a[at]; } }"
    ),
    "a step from then on": _part(
        "int c = 0, at = i; for (int r = 1; r < 4; ++r) { ++c; if (c > 2) { at = at + n; y[at] = a[at]; } }"
    ),
    "a step down": _part(
        "int c = 5, at = i; for (int r = 1; r < 6; ++r) { c -= 1; if (c < 3) { at += n; y[at] = a[at]; } }"
    ),
    "a step while, used outside": _part(
        "int c = 0, at = i; for (int r = 1; r < 9; ++r) { c += 2; if (c < 6) at += n; y[at] = a[at]; }"
    ),
    "a step to an end that moves": _part(
        "int c = 0, m = 1, at = i;"
        " for (int r = 1; r < 9; ++r) { c += 1; m = r * r % 5; if (c < m) { at += n; y[at] = 1; } }"
    ),
    "above another": _whole("y[max(i + 2, 1)] = a[i];"),
    "a clamp": _part("y[i] = a[max(i - 1, 0)];"),
    "no difference": _part("if (i - 5 != 0) y[i] = 1; if (i == 6) y[n + i] = a[i];"),
}  # fmt: skip

HEAD = """
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
using std::max;
using std::min;
#define LEAVE_IF(condition) if (condition) return
struct Index { int x = 0; } threadIdx, blockIdx, blockDim, gridDim;
template <class T> struct Element {
  std::set<long>&loads, &stores;
  long i;
  operator T() const { loads.insert(i); return static_cast<T>((i * 7 + 3) % 5); }
  void operator=(T) { stores.insert(i); }
  void operator=(const Element& other) { *this = static_cast<T>(other); }
  void operator+=(T) { loads.insert(i), stores.insert(i); }
};
template <class T> struct Array {
  std::set<long> loads, stores;
  Element<T> operator[](long i) { return {loads, stores, i}; }
};
"""
FUNCTION = """
template <class F, class I> void kernel_{0}(F& y, F& z, F& a, I& k, int n, int bx) {{ (void)z, (void)a, (void)k; {1} }}
void run_{0}(int n, int bx, int blocks) {{
  Array<float> y, z, a;
  Array<int> k;
  blockDim.x = bx, gridDim.x = blocks;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < bx; ++threadIdx.x) kernel_{0}(y, z, a, k, n, bx);
  std::printf("%zu %zu %zu %zu\\n", y.stores.size(), z.stores.size() + z.loads.size(), a.loads.size(), k.loads.size());
}}
"""


def _blocks(grid: str, n: int, bx: int) -> int:
    return {"n": n, "3": 3, "ceil(n / bx)": -(-n // bx), "ceil(n / (4 * bx))": -(-n // (4 * bx))}[grid]


@pytest.fixture(scope="module")
def touched(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int, int], dict[str, int]]:
    """Bytes that each kernel moves at each size: by array, each distinct element that is loaded and stored once."""
    compiler = find_cxx()
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder: Path = tmp_path_factory.mktemp("footprint")
    body = "".join(FUNCTION.format(number, kernel.code) for number, kernel in enumerate(KERNELS.values()))
    calls = "".join(
        f"  run_{number}({n}, {bx}, {_blocks(kernel.grid, n, bx)});\n"
        for n, bx in SIZES
        for number, kernel in enumerate(KERNELS.values())
    )
    (folder / "run.cpp").write_text(HEAD + body + "int main() {\n" + calls + "}\n")
    subprocess.run([str(compiler.path), "-std=c++17", "-O0", "-o", folder / "run", folder / "run.cpp"], check=True)
    lines = iter(subprocess.run([folder / "run"], check=True, capture_output=True, text=True).stdout.splitlines())
    out = {}
    for n, bx in SIZES:
        for name in KERNELS:
            elements = map(int, next(lines).split())
            out[name, n, bx] = {array: 4 * one for array, one in zip("yzak", elements, strict=True)}
    return out


def _footprint(tmp_path: Path, kernel: Kernel, bx: int, **sizes: int) -> Footprint:
    path = tmp_path / "footprint.dag"
    path.write_text(TEXT.format(grid=kernel.grid, code=kernel.code))
    graph = api.read(path, {"w.bx": bx}).graph()
    op = next(op.op for op in graph.ops if isinstance(op.op, KernelOp))
    return footprint_of(graph.program, op, sizes)


@pytest.mark.parametrize("name", KERNELS)
def test_what_must_move_is_at_most_what_moves(
    name: str, touched: dict[tuple[str, int, int], dict[str, int]], tmp_path: Path
) -> None:
    kernel = KERNELS[name]
    for n, bx in SIZES:
        counted = {m.array: m.bytes for m in _footprint(tmp_path, kernel, bx, n=n).moved}
        moved = touched[name, n, bx]
        assert all(size <= moved[array] for array, size in counted.items()), (n, bx, counted, moved)
        if kernel.exact:
            assert counted == {array: size for array, size in moved.items() if size}, (n, bx)


def test_what_depends_on_a_size_that_is_not_known_is_not_counted(tmp_path: Path) -> None:
    found = _footprint(tmp_path, Kernel(INDEX + "y[i] = a[i];", grid="4"), 32)
    assert found.moved == ()
    assert dict(found.uncounted) == dict.fromkeys(("y", "a"), "`n` is not known")


@pytest.mark.parametrize(
    ("code", "operations"),
    [
        ("y[i] = 2.0f * a[i] + 1.0f;", lambda n: 2 * n),
        ("float s = 0; for (int j = 0; j < n; ++j) s += a[j * n + i] * a[j]; y[i] = s;", lambda n: 2 * n * n),
        ("float s = 0; for (int j = 0; j <= i; ++j) s += a[i * n + j]; y[i] = s;", lambda n: n * (n + 1) // 2),
        ("float s = 0; for (int j = 0; j < n; ++j) { s += a[j]; y[j] = a[i] * 3.0f; }", lambda n: n * n + n),
        ("if (i > 4) y[i] = a[i] * a[i];", lambda n: max(0, n - 5)),
        ("if (k[i] > 0) y[i] = a[i] * a[i];", lambda _: 0),
        ("y[i] = n * 3.0f;", lambda _: 0),
    ],
)
def test_operations_that_run_for_certain(code: str, operations: Callable[[int], int], tmp_path: Path) -> None:
    for n, bx in SIZES:
        assert _footprint(tmp_path, _part(code), bx, n=n).operations == operations(n)


@pytest.mark.parametrize(
    ("code", "counted"),
    [
        ("float v = a[i]; if (k[i] > 0) y[i] = v;", {"k"}),
        ("float v = 2.0f * a[i]; if (k[i] > 0) y[i] = v + 1.0f;", {"k"}),
        ("float v = a[i], w = 0; for (int j = 0; j < 3; ++j) w += v; if (k[i] > 0) y[i] = 1;", {"a", "k"}),
        ("float v = a[i]; if (v > 0) y[i] = v;", {"a"}),
        ("float v = a[i]; v = k[i] > 0 ? v : 1.0f; y[i] = v;", {"a", "k", "y"}),
        ("float v = a[i]; if (i > 3) y[i] = v;", {"a", "y"}),
        ("float v = a[i];", set()),
    ],
)
def test_a_load_counts_where_its_value_is_needed(code: str, counted: set[str], tmp_path: Path) -> None:
    """A compiler moves it there."""
    assert {m.array for m in _footprint(tmp_path, _part(code), 32, n=100).moved} == counted


def test_macros_are_read_as_what_they_stand_for(tmp_path: Path) -> None:
    """Those of the kernel, and those of code outside of kernels."""
    within = (
        "\n#define AT(i, d) ((i) + (d))\n#define NEXT(x) (x)[AT(i, 1)] * \\\n  (x)[i]\n"
        + INDEX
        + "\ny[AT(i, 0)] = NEXT(a);"
    )
    outside = 'cuda """\n#define AT(i, d) ((i) + (d))\n"""\nkernel work'
    read = []
    for code, before in (
        (INDEX + "y[i + 0] = (a)[i + 1] * (a)[i];", "kernel work"),
        (within, "kernel work"),
        (INDEX + "y[AT(i, 0)] = (a)[AT(i, 1)] * (a)[i];", outside),
    ):
        file = tmp_path / "macros.dag"
        file.write_text(TEXT.format(grid="ceil(n / bx)", code=code).replace("kernel work", before))
        program = api.read(file).program()
        read.append(read_accesses(program, program.kernel_ops[0]).accesses)
    assert {(a.array, a.known) for a in read[0]} == {("y", True), ("a", True)}
    assert read[0] == read[1] == read[2]


def test_a_scalar_may_be_called_as_another_formal_is(tmp_path: Path) -> None:
    """The kernel's `m` is 1 and its `n` the program's `m`, 40: in the grid, in addresses and in the model."""
    file = tmp_path / "names.dag"
    text = TEXT.replace("scalar n", "scalar m").replace("inout f32[*], a", "inout f32[*], m: i32, a")
    text = text.replace("y, z, a, k, n) }}", "y, z, 1, a, k, m) }}")
    file.write_text(text.format(grid="ceil(n / bx), m", code=INDEX + "y[i] = a[i * m];"))
    program = api.read(file).graph().program
    found = footprint_of(program, program.kernel_ops[0], {"m": 40})
    assert (found.bytes, found.threads) == (2 * 4 * 40, 64)
    model = volume_program(program, program.kernel_ops[0])
    assert {p.name for p in model.parameters if p.kind is ParameterKind.DATA} == {"m"}

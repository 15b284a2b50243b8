"""Names that C, CUDA and MPI have in the global namespace: what they name in a program compiles all the same."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dagc.base.errors import UsageError
from dagc.base.resources import resource
from dagc.build.builder import Build, command_line, compiler_of
from dagc.build.mpi import find_mpi, require_mpi
from dagc.build.toolchain import find_cxx, find_nccl, find_nvcc, require_nccl
from dagc.cuda.lexer import KEYWORDS, is_global
from dagc.emit import emit
from dagc.emit.library import emit_library
from dagc.ir.plan import Plan, Target
from dagc.lang.syntax import RESERVED
from dagc.space import Space
from tests.emit.build import SPMV, graph_of, plan, write
from tests.tiers import representatives, thorough

needs_host = pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
needs_cuda = pytest.mark.skipif(find_mpi() is None or find_nvcc() is None, reason="needs an MPI and nvcc")
on_cuda = pytest.param(Target.CUDA, marks=[needs_cuda, pytest.mark.nvcc, pytest.mark.thorough])
TARGETS = [pytest.param(Target.HOST, marks=needs_host), on_cuda]

# Functions, types, variables, what dagc emits itself, and a constant of PTX.
HOSTILE = """norm abs exp y1 j0 printf malloc time rand signbit isnan assert dim3 float4 cudaMalloc std main size_t
rsqrt p ops Program iteration dagc min max swap environ nv int64_t sinf remquo all runner bench store WARP_SZ memcpy
free""".split()
MACROS = "EOF NAN MPI_Send errno DAGC_CUDA".split()


def kernel(name: str, code: str) -> str:
    return (
        f"kernel {name}(v: out f32[64], u: in f32[64]) {{\n"
        f'  gpu {{ launch grid(1) block(64) cuda """ v[threadIdx.x] = {code}; """ }}\n}}'
    )


def of_things() -> list[str]:
    """Each name names a kernel, an array and an op."""
    names = [*HOSTILE, *MACROS]
    arrays = [f"array {name} : f32[64]" for name in names]
    kernels = [kernel(name, f"{i}") for i, name in enumerate(names)]
    ops = [f"{name} : gpu {name}({name}, u0)" for name in names]
    return [*arrays, *kernels, "dag {", *ops, "last : gpu norm(v0, u0)", "}"]


def of_constants() -> list[str]:
    """Each name is a parameter, a label or a type that code uses, and a formal and a tunable of a kernel."""
    declared, kernels, ops = [], [], []
    for i, name in enumerate(HOSTILE):
        declared.append(
            (f"param {name} : i64 = {i}", f"enum e{i} {{{name}, z{i}}}", f"param {name} : type = f64")[i % 3]
        )
        kernels.append(kernel(f"constant{i}", f"float({name}{'{1}' if i % 3 == 2 else ''} + {i})"))
        ops.append(f"op{i} : gpu constant{i}(v0, u0)")
    return [*declared, *kernels, "dag {", *ops, "}"]


def of_locals() -> list[str]:
    """Each name is a formal, a tunable or an array of a kernel."""
    kernels = []
    for i, name in enumerate(HOSTILE):
        formal = kernel(f"k{i}", f"{name}[0]").replace("u: in", f"{name}: in")
        tuned = kernel(f"k{i}", f"float({name})").replace("gpu {", f"tune {name} in {{32, 64}} gpu {{")
        scratch = kernel(f"k{i}", f"{name}[0] = 1").replace("block(64)", f"block(64) array {name} : f32[64]")
        kernels.append((formal, tuned, scratch)[i % 3])
    return [*kernels, "dag {", *(f"o{i} : gpu k{i}(v0, u0)" for i in range(len(HOSTILE))), "}"]


def whole(lines: list[str]) -> str:
    head = ["program hostile", 'setup "s.py" make()', "array u0 : f32[64] in", "array v0 : f32[64] out"]
    return "\n".join([*head, *lines, "verify v0 ~ r() rtol 0", ""])


def compiles(target: Target, directory: Path, source: str, *flags: str) -> subprocess.CompletedProcess[str]:
    order = Build((source,), directory, target=target.value, mpi=require_mpi())
    host = ("-fsyntax-only", "-fmax-errors=0")
    cuda = ("-c", "-O0", "-Xptxas=-O0", "-Xcompiler=-fsyntax-only", "-Xcudafe", "--error_limit=99999")
    check = host if target is Target.HOST else cuda
    command = [*command_line(order, compiler_of(order)), *check, *flags]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("lines", representatives([of_things, of_constants, of_locals], of_locals))
@pytest.mark.parametrize("target", TARGETS)
def test_a_program_of_such_names_compiles(tmp_path: Path, target: Target, lines: Callable[[], list[str]]) -> None:
    graph = graph_of(whole(lines()), transport="mpi_host", streams="1")
    write(Plan(graph, Space(graph).first(), target), tmp_path)
    done = compiles(target, tmp_path, "bench.cpp" if target is Target.HOST else "bench.cu")
    assert done.returncode == 0, done.stderr[-3000:]


# Of the language: words, types, and decisions that every program has.
NOT_A_NAME = re.compile(
    r"__|_[A-Z]|[iuf](8|16|32|64)$|(bool|rank|ranks|hw|copy|seed|streams|transport|staging|capture|host_memory|transfers)$"
)


@thorough
@needs_host
@pytest.mark.parametrize("number", range(2))
def test_values_and_arrays_may_have_every_name_of_the_runtime(tmp_path: Path, number: int) -> None:
    """`reload` and the `SYS_` of futexes were members of the program."""
    folder = resource("templates")
    texts = [p.read_text() for p in (*folder.glob("bench/*.j2"), *folder.glob("runtime/dagc/*.hpp"))]
    words = set(re.findall(r"\b[A-Za-z_]\w*\b", re.sub(r"//.*", "", "".join(texts)))) - RESERVED
    names = [w for w in sorted(words) if not NOT_A_NAME.match(w)]
    lines = [f"scalar {n} : i64" if i % 2 == number else f"array {n} : f32[64] inout" for i, n in enumerate(names)]
    graph = graph_of(whole([*lines, kernel("k", "1"), "dag { o : gpu k(v0, u0) }"]), transport="mpi_host", streams="1")
    write(Plan(graph, Space(graph).first(), Target.HOST), tmp_path)
    for source in ("bench.cpp", "runner.cpp"):
        done = compiles(Target.HOST, tmp_path, source)
        assert done.returncode == 0, done.stderr[-3000:]


def test_members_of_a_driver_are_not_those_of_its_base_class() -> None:
    """`_kept` was one."""
    tree = ast.parse(resource("templates/python/driver_runtime.py").read_text())
    (rank,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Rank")
    members = {n.name for n in rank.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("__")}
    members |= {
        n.attr for n in ast.walk(rank) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
        and n.value.id == "self"
    }  # fmt: skip
    assert len(members) > 20
    names = sorted(n for n in members - RESERVED if not NOT_A_NAME.match(n))
    lines = [*(f"scalar {n} : i64" for n in names), kernel("k", "1"), "dag { o : gpu k(v0, u0) }"]
    graph = graph_of(whole(lines), transport="mpi_host", streams="1")
    driver = emit(Plan(graph, Space(graph).first(), Target.CUDA))["driver.py"]
    assigned = set(re.findall(r"self\.(\w+) = self\.scalar\(", driver))
    assert len(assigned) == len(names)
    assert not assigned & members


def test_fortran_takes_names_that_differ_in_case_or_are_long_apart() -> None:
    names = ["U", "u", "Ab", "aB", "_c", "c_", "n[0]", "n_0", "N_0", "vc", "a" * 70, "a" * 71]
    declared = [f"array {n} : f32[64] out" for n in names if "[" not in n]
    declared.append("for i in 0..1 { array n[i] : f32[64] out }")
    lines = [
        *declared,
        kernel("k", "1"),
        "dag {",
        *(f"o{i} : gpu k({n}, u0)" for i, n in enumerate([*names, "v0"])),
        "}",
    ]
    graph = graph_of(whole(lines), transport="mpi_host", streams="1")
    made = Plan(graph, Space(graph).first(), Target.HOST)
    text = emit_library(made, "mine", "a test")["fortran/mine.f90"]
    components = re.findall(r"type\(mine_array\) :: (\S+)", text)
    assert len(components) == len(set(components)) == len(names) + 2
    assert {"u", "n_0"} <= set(components)
    assert [c for c in components if not re.fullmatch(r"[a-z]\w{0,62}", c)] == []


def test_a_driver_of_such_names_is_emitted() -> None:
    graph = graph_of(whole(of_locals()), transport="mpi_host", streams="1")
    assert "driver.py" in emit(Plan(graph, Space(graph).first(), Target.CUDA))


@pytest.mark.parametrize("target", TARGETS)
def test_no_header_has_a_name_that_is_not_known(tmp_path: Path, target: Target) -> None:
    """Every word of the headers that is not said to be global, declared there."""
    suffix = "cpp" if target is Target.HOST else "cu"
    write(plan(SPMV, target), tmp_path)
    flags = require_nccl().flags() if target is Target.CUDA and find_nccl() is not None else ()
    headers = ["program.hpp", "dagc/runner.hpp", "dagc/measure.hpp", "dagc/options.hpp"]
    headers += ["dagc/group_nccl.hpp"] if flags else []
    text = "".join(f'#include "{name}"\n' for name in headers)
    (tmp_path / f"all.{suffix}").write_text(text)
    order = Build((f"all.{suffix}",), tmp_path, target=target.value, mpi=require_mpi(), flags=tuple(flags))
    command = [*command_line(order, compiler_of(order)), "-E"]
    expanded = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300).stdout
    names = sorted(n for n in set(re.findall(r"\b[A-Za-z]\w*\b", expanded)) - KEYWORDS if not is_global(n))
    assert len(names) > 1000
    (tmp_path / f"probe.{suffix}").write_text(text + "".join(f"constexpr int {n} = 1;\n" for n in names))
    done = compiles(target, tmp_path, f"probe.{suffix}", "-w", *flags)
    lines = {int(n) for n in re.findall(rf"probe\.{suffix}[:(](\d+)[):].*error", done.stderr)}
    assert " ".join(names[n - 1 - len(headers)] for n in sorted(lines)) == ""
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_constant_that_other_code_uses_is_refused() -> None:
    """Outside of kernels it would have to stand where C++ has the function."""
    code = 'cuda """ __device__ int twice() { return 2 * norm; } """'
    lines = ["param norm : i64 = 3", code, kernel("k", "twice()"), "dag { o : gpu k(v0, u0) }"]
    graph = graph_of(whole(lines), transport="mpi_host")
    with pytest.raises(UsageError, match=r"^test\.dag:5:1: `norm` is used by code outside of kernels") as caught:
        emit(Plan(graph, Space(graph).first(), Target.HOST))
    assert caught.value.help

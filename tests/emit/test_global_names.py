"""Names that C, CUDA and MPI have in the global namespace: what they name in a program compiles all the same."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dagc.base.errors import UsageError
from dagc.build.builder import Build, command_line, compiler_of
from dagc.build.toolchain import find_cxx, find_mpi, find_nccl, find_nvcc, require_mpi, require_nccl
from dagc.cuda.lexer import KEYWORDS, is_global
from dagc.emit import emit
from dagc.ir.plan import Plan, Target
from dagc.space import Space
from tests.emit.build import SPMV, graph_of, plan, write
from tests.tiers import representatives

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
    assert [names[n - 1 - len(headers)] for n in sorted(lines)] == []
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_constant_that_other_code_uses_is_refused() -> None:
    """Outside of kernels it would have to stand where C++ has the function."""
    code = 'cuda """ __device__ int twice() { return 2 * norm; } """'
    lines = ["param norm : i64 = 3", code, kernel("k", "twice()"), "dag { o : gpu k(v0, u0) }"]
    graph = graph_of(whole(lines), transport="mpi_host")
    with pytest.raises(UsageError, match=r"^test\.dag:5:1: `norm` is used by code outside of kernels") as caught:
        emit(Plan(graph, Space(graph).first(), Target.HOST))
    assert caught.value.help

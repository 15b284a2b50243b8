"""Parts common to all emitted programs: variables of the templates, and the runtime headers."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dagc.base.flags import flags_variable, user_flags
from dagc.base.resources import resource
from dagc.cuda.lexer import includes
from dagc.cuda.text import rewrite_for_host, with_own_constants
from dagc.emit.iteration import IterationView, StepBuilder, iteration_view
from dagc.emit.kernels import CODE, LAUNCHES, Functions
from dagc.emit.layout import Layout
from dagc.emit.program import ProgramView, in_flight_view, program_view
from dagc.emit.render import cxx_string, macro, number_lines, render, tidy
from dagc.emit.whole import WholeView, whole_view
from dagc.ir.enums import Role, Transport
from dagc.ir.plan import Plan, Target, plan_to_json, program_hash
from dagc.ir.program import Action, CollectiveOp, Graph
from dagc.ir.regions import between_devices
from dagc.ir.repetition import Tested, tested
from dagc.ir.traversal import traversal_text


@dataclass(frozen=True, slots=True)
class Linked:
    """The inputs of a build in addition to the main source: further sources, header directories, libraries, whether
    OpenMP is used, and the directories of files that the sources include by relative path."""

    sources: tuple[str, ...]
    include: tuple[str, ...]
    libraries: tuple[str, ...]
    openmp: bool = False
    reads: tuple[str, ...] = ()


def linked(plan: Plan) -> Linked:
    """Names of files and directories are relative to the emitted program."""
    return _linked(plan, Functions(plan.graph, plan.target, plan.open, plan.computed))


def _linked(plan: Plan, functions: Functions) -> Linked:
    directories = [CODE if f == "." else f"{CODE}/{f}" for f in plan.program.directories]
    if plan.program.files and plan.target is Target.HOST:
        directories.append(f"{CODE}/{_ON_HOST}")
    units, reads = tuple(u.source for u in functions.units), (CODE,) if plan.program.files else ()
    return Linked(units, tuple(directories), functions.links, functions.openmp, reads)


@dataclass(frozen=True, slots=True)
class GivenFlags:
    """The flags that the user adds to every compilation, as text for CMake: of the compiler, and of the linker.
    `separable`: kernels use what other files define (`-rdc=true`), for which CMake has flags of its own."""

    variable: str
    compiler: str
    linker: str
    separable: bool

    @staticmethod
    def of(target: Target) -> GivenFlags:
        cuda = target is Target.CUDA
        compiler, linker, separable = [], [], False
        words = iter(user_flags(cuda))
        for word in words:
            if cuda and word in ("-rdc=true", "--relocatable-device-code=true"):
                separable = True
            elif word in ("-L", "-l", "-Xlinker"):
                linker += [word, next(words, "")]
            elif word.startswith(("-l", "-L", "-Wl,", "-Xlinker=")) or word.endswith((".a", ".o", ".so")):
                linker.append(word)
            else:
                compiler.append(word)
        return GivenFlags(
            flags_variable(cuda),
            _cmake(shlex.join(compiler)),
            " ".join(f'"{_cmake(word)}"' for word in linker),
            separable,
        )


def _cmake(text: str) -> str:
    """For a quoted argument of CMake."""
    return "".join(f"\\{c}" if c in '\\"$;' else c for c in text)


_ON_HOST = "_host"  # headers of CUDA, for files that include them
_CUDA_HEADERS = {
    **dict.fromkeys(
        (
            "cuda.h",
            "cuda_runtime.h",
            "cuda_runtime_api.h",
            "cuda_device_runtime_api.h",
            "cuda_profiler_api.h",
            "builtin_types.h",
            "device_atomic_functions.h",
            "device_functions.h",
            "device_launch_parameters.h",
            "driver_types.h",
            "host_defines.h",
            "math_functions.h",
            "vector_functions.h",
            "vector_types.h",
        ),
        "target",
    ),
    "cuComplex.h": "host_complex",
    "cuda_fp16.h": "host_half",
    "cuda_fp16.hpp": "host_half",
    "cuda_bf16.h": "host_half",
    "cublas_v2.h": "host_cublas",
    "curand.h": "host_curand_host",
    "cooperative_groups.h": "host_groups",
    "cooperative_groups/reduce.h": "host_groups",
    "cooperative_groups/scan.h": "host_groups",
    "cub/cub.cuh": "host_cub",
    "cub/block/block_reduce.cuh": "host_cub",
    "cub/block/block_scan.cuh": "host_cub",
    "cub/warp/warp_reduce.cuh": "host_cub",
    "cub/warp/warp_scan.cuh": "host_cub",
    "cub/device/device_radix_sort.cuh": "host_cub",
    "cub/device/device_reduce.cuh": "host_cub",
    "cub/device/device_scan.cuh": "host_cub",
    "cub/device/device_select.cuh": "host_cub",
}


ABSENT_LIBRARIES = {
    "cublas.h": "cuBLAS's old interface", "cublasLt.h": "cuBLASLt", "cusparse.h": "cuSPARSE",
    "cusolverDn.h": "cuSOLVER", "cufft.h": "cuFFT", "cudnn.h": "cuDNN",
    "nccl.h": "NCCL", "mma.h": "wmma", "cuda_fp8.h": "FP8",
}  # fmt: skip


_CURAND = """#pragma once
#include "dagc/target.hpp"
#include "dagc/host_curand.hpp"
#if !__has_include_next(<curand_kernel.h>)
#error "cuRAND is not on the host target without the headers of a CUDA toolkit"
#endif
// It declares these for its own calls on the host.
#define blockDim dagc_curand_block
#define threadIdx dagc_curand_thread
#include_next <curand_kernel.h>
#undef blockDim
#undef threadIdx
"""


# The memory of a device is that of the host, so that every MPI takes pointers to it.
_MPI_EXTENSIONS = """#if __has_include_next(<mpi-ext.h>)
#include_next <mpi-ext.h>
#endif
#undef MPIX_CUDA_AWARE_SUPPORT
#define MPIX_CUDA_AWARE_SUPPORT 1
#undef MPIX_Query_cuda_support
#define MPIX_Query_cuda_support() 1
"""


def code_files(plan: Plan) -> dict[str, str]:
    """The files of code, unchanged; on the host target, constructs that g++ cannot parse are rewritten, line by
    line."""
    program, host = plan.program, plan.target is Target.HOST
    out, texts = {}, {file.path: program.sources[file.path].text for file in program.files}
    texts = {path: rewrite_for_host(text) for path, text in with_own_constants(texts).items()} if host else texts
    for file in program.files:
        out[f"{CODE}/{file.name}"] = f"#line 1 {cxx_string(program.sources[file.path].path)}\n{texts[file.path]}"
    if out and host:
        out |= {f"{CODE}/{_ON_HOST}/{name}": text for name, text in host_headers().items()}
    return out


def host_headers() -> dict[str, str]:
    """The headers of CUDA on the host target, by the names by which files include them."""
    refused = {
        name: f'#pragma once\n#error "{library} is not on the host target: only --target cuda compiles this file"\n'
        for name, library in ABSENT_LIBRARIES.items()
    }
    return (
        refused
        | {"curand_kernel.h": _CURAND, "mpi-ext.h": _MPI_EXTENSIONS}
        | {
            name: f'#pragma once\n#include "dagc/target.hpp"\n#include "dagc/{ours}.hpp"\n'
            for name, ours in _CUDA_HEADERS.items()
        }
    )


@dataclass(frozen=True, slots=True)
class Emission:
    """The views of a plan, which all forms of its program are written from. `folded`: the graph of its period;
    `common`: the variables of all templates."""

    functions: Functions  # kernel functions and their names
    layout: Layout  # C++ names of all data
    steps: StepBuilder  # the steps of each op
    program: ProgramView
    iteration: IterationView
    whole: WholeView | None  # one kernel that repeats it
    folded: Graph | None
    common: dict[str, object]
    in_flight: StepBuilder | None = None  # of one of several iterations, where arrays are private


def emission(plan: Plan, apart: bool = False, private: Collection[str] = ()) -> Emission:
    """Raises DagcError for what cannot be emitted yet. `apart`: with the kernels in a source of their own, if they can
    be. `private`: arrays that iterations in flight have each for themselves."""
    functions = Functions(plan.graph, plan.target, plan.open, plan.computed, apart and _may_be_apart(plan))
    layout = Layout(plan.graph, plan.open, plan.computed, private)
    steps = StepBuilder(layout, functions, plan.chooser)
    program, in_flight = program_view(layout, steps, plan.chooser), None
    if private:
        in_flight = StepBuilder(layout.in_flight(), functions, plan.chooser, shares=False)
        program = replace(program, in_flight=in_flight_view(in_flight))
    folded = plan.period[0] if plan.period is not None else None
    iteration = iteration_view(plan.graph, plan.traversal, steps, plan.capture, folded, plan.loop)
    whole = whole_view(plan, layout, steps)
    common = _common(plan, layout, functions, program, bool(iteration.regions))
    common |= {"launches": steps.launches, "whole": whole, "apart": functions.apart}
    return Emission(functions, layout, steps, program, iteration, whole, folded, common, in_flight)


def _may_be_apart(plan: Plan) -> bool:
    """Whether the program launches no kernels of the runtime but those that are compiled apart from it: those of
    reductions and of what ends a repetition are templates of the program's types."""
    if plan.target is Target.HOST or plan.chooser is not None or plan.loop is not None:
        return False
    grouped = (op.op for op in plan.graph.ops if op.action is Action.GROUP)
    reduces = any(isinstance(op, CollectiveOp) and op.collective.reduces for op in grouped)
    return not reduces and not isinstance(tested(plan.graph), Tested)


def sources_of_ops(plan: Plan, views: Emission, common: Mapping[str, object]) -> dict[str, str]:
    """File name -> text of kernels, the code of the user, choosers and the iteration."""
    out = {
        "kernels.cu": number_lines(
            render("bench/kernels.cu.j2", kernels=views.functions.view(), **common).rstrip() + "\n"
        ),
        "iteration.hpp": tidy(render("bench/iteration.hpp.j2", iteration=views.iteration, **common)),
    }
    if views.functions.apart:
        compared = dict.fromkeys(array.type.cxx for array in plan.program.arrays)
        launchers = {"launchers": views.functions.launchers(), "compared": tuple(compared)}
        out |= {name: tidy(render(f"bench/{name}.j2", **launchers, **common)) for name in (LAUNCHES, "launches.hpp")}
    units = views.functions.units
    out |= {u.source: number_lines(tidy(render("bench/unit.cpp.j2", unit=u, **common))) for u in units}
    out |= code_files(plan)
    return out if plan.chooser is None else {**out, "chooser.h": plan.chooser.source}


def records_of(plan: Plan) -> dict[str, str]:
    """File name -> text of the files that say what a program was made from."""
    traversal = traversal_text(plan.traversal, plan.graph) + "\n"
    return {"plan.json": plan_to_json(plan), "traversal.txt": traversal}


def _common(
    plan: Plan, layout: Layout, functions: Functions, program: ProgramView, captured: bool
) -> dict[str, object]:
    host, repeat = plan.target is Target.HOST, plan.program.repeat
    others = _linked(plan, functions)
    return {
        "program": plan.program.name,
        "path": plan.program.path,
        "hash": program_hash(plan.program),
        "traversal": _period(plan),
        "launch": macro(f"{plan.target.value}/launch.j2", "launch"),
        "entry": macro(f"{plan.target.value}/launch.j2", "entry"),
        "runtime": '"dagc/target.hpp"' if host else "<cuda_runtime.h>",
        "units": functions.units,
        "folders": others.include,
        "links": others.libraries,
        "openmp": others.openmp,
        "given": GivenFlags.of(plan.target),
        "step": macro("bench/step.j2", "step"),
        "arch": plan.arch.removeprefix("sm_"),
        "carried": any(a.role is Role.INOUT for a in plan.program.arrays) or Transport.PUT in layout.kinds,
        "device_messages": _device_messages(plan),
        "repeat": "" if repeat is None else layout.text(repeat),
        "until": layout.until(),
        "looped": plan.loop is not None,
        "test": layout.test_on_device(found) if isinstance(found := tested(plan.graph), Tested) else None,
        "nccl": uses_nccl(plan),
        "group_headers": _group_headers(layout.kinds, host),
        "view": program,
        "captured": captured,
        "threads": bool(program.groups) and host,  # whether streams call MPI
        "namespace": "",
        "apart": False,
    }


def _group_headers(kinds: Iterable[Transport], host: bool) -> list[str]:
    """On the host target ranks share memory as well, and else have MPI on the threads of streams."""
    return list(
        dict.fromkeys("group_host" if host and kind is not Transport.PUT else f"group_{kind.value}" for kind in kinds)
    )


def _period(plan: Plan) -> str:
    """The traversal, with one period of each loop."""
    graph, traversal = plan.period if plan.period is not None else (plan.graph, plan.traversal)
    return traversal_text(traversal, graph)


def uses_nccl(plan: Plan) -> bool:
    """Whether the program must be linked with NCCL."""
    grouped = (op.transport for op in plan.graph.ops if op.action is Action.GROUP)
    return plan.target is Target.CUDA and Transport.NCCL in grouped


def runtime_headers() -> dict[str, Path]:
    """Name under `include/` -> file, for every runtime header."""
    root = resource("templates/runtime")
    return {str(path.relative_to(root)): path for path in sorted(root.rglob("*.hpp"))}


def _device_messages(plan: Plan) -> bool:
    """Whether device pointers are passed to MPI."""
    return any(op.transport is Transport.MPI_CUDA for op in between_devices(plan.program.ops, plan.program.arrays))


def headers_for(texts: Iterable[str], target: Target) -> dict[str, Path]:
    """Those of `runtime_headers` that these texts include, directly or indirectly. The CUDA target needs none of the
    host target's."""
    all_ = {Path(name).name: (name, path) for name, path in runtime_headers().items()}
    out: dict[str, Path] = {}
    left = [name for text in texts for name, _ in includes(text)]
    while left:
        header = all_.get(left.pop().removeprefix("dagc/"))
        if header is None or header[0] in out:
            continue
        name, path = header
        if target is Target.CUDA and Path(name).name.startswith("host_"):
            continue
        out[name] = path
        left += (name for name, _ in includes(path.read_text(encoding="utf-8")))
    return dict(sorted(out.items()))

"""Plan -> views -> text. `emit` is the recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dagc.base.resources import resource
from dagc.cuda.text import rewrite_for_host
from dagc.emit.driver import driver_view, why_no_driver
from dagc.emit.iteration import Steps, iteration_view, table_ops
from dagc.emit.kernels import CODE, Functions
from dagc.emit.layout import Layout, promises, received
from dagc.emit.program import program_view
from dagc.emit.render import cxx_string, macro, number_lines, render, tidy
from dagc.emit.table import row_views, rows, table_line
from dagc.ir.enums import Mode, Place, Role
from dagc.ir.plan import Plan, Target, plan_to_json, program_hash
from dagc.ir.program import Action, CollectiveOp, ExchangeOp, KernelOp, Region, Transport
from dagc.ir.traversal import traversal_text

__all__ = ["Linked", "emit", "linked", "rows", "runtime_headers", "sources", "table_line", "uses_nccl", "why_no_driver"]


def sources(target: Target) -> tuple[str, str]:
    """File names of the bench and the runner."""
    end = "cu" if target is Target.CUDA else "cpp"
    return f"bench.{end}", f"runner.{end}"


def emit(plan: Plan) -> dict[str, str]:
    """File name -> text of everything except the runtime headers. Raises DagcError for what cannot be emitted yet."""
    functions = Functions(plan.graph, plan.target, plan.open, plan.features)  # kernel functions and their names
    layout = Layout(plan.graph, plan.open, plan.features)  # C++ names of all data
    steps = Steps(layout, functions)  # the steps of each op
    program = program_view(layout, steps, plan.chooser)
    folded = plan.period[0] if plan.period is not None else None
    iteration = iteration_view(plan.graph, plan.traversal, steps, plan.capture, folded)
    common = {**_common(plan, layout), "view": program, "captured": bool(iteration.regions)}
    common |= {"units": functions.units, "folders": linked(plan).include, "links": functions.links}
    common["threads"] = bool(program.groups) and plan.target is Target.HOST  # whether streams call MPI
    flags = {k: "true" if common[k] else "false" for k in ("carried", "device_messages")}
    table = {
        "ops": table_ops(plan.graph, steps), "rows": row_views(plan.traversal, plan.capture), "arrays": program.arrays,
        "tunables": program.tunables, "written": _written(plan, layout), "received": received(layout),
        "promises": promises(plan.graph),
    }  # fmt: skip
    bench, runner = sources(plan.target)
    out = {
        "kernels.cu": number_lines(render("bench/kernels.cu.j2", kernels=functions.view(), **common).rstrip() + "\n"),
        "program.hpp": tidy(render("bench/program.hpp.j2", **common)),
        "iteration.hpp": tidy(render("bench/iteration.hpp.j2", iteration=iteration, **common)),
        bench: tidy(render("bench/bench.cpp.j2", verified=_verified(plan), **common)),
        runner: tidy(render("bench/runner.cpp.j2", **table, **{**common, **flags})),
        "CMakeLists.txt": tidy(render(f"{plan.target.value}/CMakeLists.txt.j2", **common)),
        "plan.json": plan_to_json(plan),
        "traversal.txt": traversal_text(plan.traversal, plan.graph) + "\n",
    }
    out |= {u.source: number_lines(tidy(render("bench/unit.cpp.j2", unit=u, **common))) for u in functions.units}
    out |= _code_files(plan)
    if plan.chooser is not None:
        out["chooser.h"] = plan.chooser.source
    if plan.target is Target.CUDA and not why_no_driver(plan):
        driver = driver_view(plan, layout, functions, steps)
        out["driver.py"] = tidy(render("python/driver.py.j2", driver=driver, **common), empty=2)
        out["driver_runtime.py"] = resource("templates/python/driver_runtime.py").read_text(encoding="utf-8")
    return out


@dataclass(frozen=True, slots=True)
class Linked:
    """What a program is built from besides its main source: further sources, folders of headers, libraries."""

    sources: tuple[str, ...]
    include: tuple[str, ...]
    libraries: tuple[str, ...]


def linked(plan: Plan) -> Linked:
    """Names of files and folders are relative to the emitted program."""
    functions = Functions(plan.graph, plan.target, plan.open, plan.features)
    folders = [CODE if f == "." else f"{CODE}/{f}" for f in plan.program.folders]
    if plan.program.files and plan.target is Target.HOST:
        folders.append(f"{CODE}/{_ON_HOST}")
    return Linked(tuple(u.source for u in functions.units), tuple(folders), functions.links)


_ON_HOST = "_host"  # headers of CUDA, for files that include them
_CUDA_HEADERS = ("cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", "device_launch_parameters.h")


def _code_files(plan: Plan) -> dict[str, str]:
    """The files of code, as they are; on the host target, what g++ cannot parse is rewritten, line by line."""
    program, host = plan.program, plan.target is Target.HOST
    out = {}
    for file in program.files:
        source = program.sources[file.path]
        text = rewrite_for_host(source.text) if host else source.text
        out[f"{CODE}/{file.name}"] = f"#line 1 {cxx_string(source.path)}\n{text}"
    if out and host:
        for name in _CUDA_HEADERS:
            out[f"{CODE}/{_ON_HOST}/{name}"] = '#pragma once\n#include "dagc/target.hpp"\n'
    return out


def _common(plan: Plan, layout: Layout) -> dict[str, object]:
    """The variables common to several templates."""
    host, transport, repeat = plan.target is Target.HOST, plan.graph.transport.value, plan.program.repeat
    return {
        "program": plan.program.name,
        "path": plan.program.path,
        "hash": program_hash(plan.program),
        "traversal": _period(plan),
        "launch": macro(f"{plan.target.value}/launch.j2", "launch"),
        "entry": macro(f"{plan.target.value}/launch.j2", "entry"),
        "step": macro("bench/step.j2", "step"),
        "runtime": '"dagc/target.hpp"' if host else "<cuda_runtime.h>",
        "arch": plan.arch.removeprefix("sm_"),
        "carried": any(a.role is Role.INOUT for a in plan.program.arrays),
        "device_messages": _device_messages(plan),
        "repeat": "" if repeat is None else layout.text(repeat),
        "until": layout.until(),
        "nccl": uses_nccl(plan),
        "group_kind": transport.capitalize(),
        "group_header": "group_host" if host else f"group_{transport}",
    }


def _period(plan: Plan) -> str:
    """The traversal, of loops one period."""
    graph, traversal = plan.period if plan.period is not None else (plan.graph, plan.traversal)
    return traversal_text(traversal, graph)


def uses_nccl(plan: Plan) -> bool:
    """Whether the program must be linked with NCCL."""
    grouped = any(op.action is Action.GROUP for op in plan.graph.ops)
    return plan.target is Target.CUDA and plan.graph.transport is Transport.NCCL and grouped


def runtime_headers() -> dict[str, Path]:
    """Name under `include/` -> file, for every runtime header."""
    root = resource("templates/runtime")
    return {str(path.relative_to(root)): path for path in sorted(root.rglob("*.hpp"))}


def _device_messages(plan: Plan) -> bool:
    """Whether MPI gets device pointers."""
    if plan.graph.transport is not Transport.MPI_CUDA:
        return False
    places = {a.name: a.place for a in plan.program.arrays}
    regions: list[Region] = []
    for op in plan.program.ops:
        if isinstance(op, ExchangeOp):
            regions += [r for m in op.messages for r in (m.send, m.recv)]
        elif isinstance(op, CollectiveOp):
            regions += [a for a in op.args if isinstance(a, Region)]
    return any(places[r.array] in (Place.DEVICE, Place.ANY) for r in regions)


def _written(plan: Plan, layout: Layout) -> tuple[tuple[str, ...], ...]:
    """For each op of the graph: the members of the arrays that it writes. Empty for ops that are not kernels."""
    out = []
    for op in plan.graph.ops:
        accesses = op.op.accesses if isinstance(op.op, KernelOp) and op.action is Action.KERNEL else ()
        names = dict.fromkeys(a.region.array for a in accesses if a.mode is not Mode.IN)
        out.append(tuple(layout.member[n] for n in names))
    return tuple(out)


def _verified(plan: Plan) -> str:
    names = ", ".join(v.region.array for v in plan.program.verifies)
    verb = "agrees" if len(plan.program.verifies) == 1 else "agree"
    return f"{names} {verb} with the reference" if names else "nothing to verify"

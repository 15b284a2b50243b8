"""Plan -> views -> text. `emit` is the recipe."""

from __future__ import annotations

from collections.abc import Mapping

from dagc.base.resources import resource
from dagc.emit.common import Emission, Linked, emission, linked, records_of, runtime_headers, sources_of_ops, uses_nccl
from dagc.emit.driver import DriverView, driver_view, why_no_driver
from dagc.emit.forms import never_captured, rows, table_line
from dagc.emit.iteration import table_ops
from dagc.emit.kernels import LAUNCHES
from dagc.emit.layout import Layout, promises, received
from dagc.emit.render import render, tidy
from dagc.ir.enums import Mode
from dagc.ir.plan import Plan, Target

__all__ = [
    "LAUNCHES",
    "REST",
    "Linked",
    "emit",
    "emit_runner",
    "linked",
    "never_captured",
    "rows",
    "runtime_headers",
    "sources",
    "table_line",
    "uses_nccl",
    "why_no_driver",
]


REST = "runner_rest.cpp"  # a part of a runner whose kernels are apart, for a compiler of its own


def sources(target: Target) -> tuple[str, str]:
    """File names of the bench and the runner."""
    end = "cu" if target is Target.CUDA else "cpp"
    return f"bench.{end}", f"runner.{end}"


def emit(plan: Plan) -> dict[str, str]:
    """File name -> text of everything except the runtime headers. Raises DagcError for what cannot be emitted yet."""
    views = emission(plan)
    bench = sources(plan.target)[0]
    out = {
        **_runner(plan, views),
        bench: tidy(
            render("bench/bench.cpp.j2", verified=_verified(plan), sends=views.iteration.sends, **views.common)
        ),
    }
    driver = None
    if plan.target is Target.CUDA and not why_no_driver(plan):
        driver = driver_view(plan, views)
        out |= driver_files(driver, plan.target, views.common)
    out["CMakeLists.txt"] = tidy(render(f"{plan.target.value}/CMakeLists.txt.j2", driver=driver, **views.common))
    return out


def emit_runner(plan: Plan) -> dict[str, str]:
    """The same for the runner alone, with the kernels apart if they can be: nvcc alone takes 12 s of CPU, and side by
    side it takes 3 s for the kernels and the host's compiler 5 s for the rest. Raises like `emit`."""
    return _runner(plan, emission(plan, apart=True))


def _runner(plan: Plan, views: Emission) -> dict[str, str]:
    layout, common = views.layout, views.common
    flags = {k: "true" if common[k] else "false" for k in ("carried", "device_messages")}
    table = {
        "ops": table_ops(plan.graph, views.steps),
        "rows": rows(plan.traversal, plan.capture, never_captured(plan.graph), plan.loop),
        "arrays": views.program.arrays,
        "tunables": views.program.tunables, "written": _written(plan, layout), "received": received(layout),
        "promises": promises(plan.graph),
    }  # fmt: skip
    return {
        **sources_of_ops(plan, views, common),
        "program.hpp": tidy(render("bench/program.hpp.j2", **common)),
        "runner.cpp" if views.functions.apart else sources(plan.target)[1]: tidy(
            render("bench/runner.cpp.j2", **table, **{**common, **flags})
        ),
        **({REST: '#define DAGC_RUNNER_REST\n#include "runner.cpp"\n'} if views.functions.apart else {}),
        **records_of(plan),
    }


def driver_files(driver: DriverView, target: Target, common: Mapping[str, object]) -> dict[str, str]:
    """`driver.py` and what it uses; `common` are the variables of all templates."""
    out = {
        "driver.py": tidy(render("python/driver.py.j2", driver=driver, **common), empty=2),
        "driver_runtime.py": resource("templates/python/driver_runtime.py").read_text(encoding="utf-8"),
    }
    if driver.library:
        source = f"driver.{'cu' if target is Target.CUDA else 'cpp'}"
        out[source] = tidy(render("python/driver.cpp.j2", driver=driver, **common))
    return out


def _written(plan: Plan, layout: Layout) -> tuple[tuple[str, ...], ...]:
    """For each op of the graph: the members of the arrays that it writes. Empty for ops that are not kernels."""
    out = []
    for op in plan.graph.ops:
        accesses = op.kernel.accesses if op.kernel is not None else ()
        names = dict.fromkeys(a.region.array for a in accesses if a.mode is not Mode.IN)
        out.append(tuple(layout.member[n] for n in names))
    return tuple(out)


def _verified(plan: Plan) -> str:
    names = dict.fromkeys(v.region.array for v in plan.program.verifies)
    verb = "agrees" if len(names) == 1 else "agree"
    return f"{', '.join(names)} {verb} with the reference" if names else "nothing to verify"

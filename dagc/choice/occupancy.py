"""The occupancy of the settings of an op, from what nvcc compiled."""

from __future__ import annotations

from collections.abc import Mapping

from dagc.choice.legal import bindings, block_of, op_of, op_under
from dagc.choice.types import Site
from dagc.cuda.ptx import Resources
from dagc.forms import kernel_of
from dagc.ir import sym
from dagc.ir.choice import Choice
from dagc.ir.program import Graph
from dagc.ir.sym import Number
from dagc.perf.hardware import Hardware
from dagc.perf.occupancy import Demand, Occupancy, occupancies


def occupancy_of(
    graph: Graph,
    site: Site,
    resources: Mapping[Choice, Resources],
    hardware: Hardware,
    values: Mapping[str, Number],
) -> dict[Choice, Occupancy]:
    """The occupancy of each setting with its compiled `resources`, where `values` of the rank's scalars determine the
    block and the shared memory. A setting without `demand_of` is missing."""
    demands = {choice: demand_of(graph, site, choice, needs, values) for choice, needs in resources.items()}
    known = {choice: demand for choice, demand in demands.items() if demand is not None}
    return dict(zip(known, occupancies(list(known.values()), hardware), strict=True))


def is_launched(graph: Graph, site: Site, choice: Choice) -> bool:
    """Whether dagc launches the code of a setting; code on the host may start kernels itself."""
    _, impl = kernel_of(graph.program, op_under(graph.program, op_of(graph, site), choice))
    return impl.launch is not None


def demand_of(
    graph: Graph, site: Site, choice: Choice, resources: Resources, values: Mapping[str, Number]
) -> Demand | None:
    """What a launch of the setting needs; None if dagc does not launch its code, or if a size that is not known
    determines it."""
    program, op = graph.program, op_under(graph.program, op_of(graph, site), choice)
    _, impl = kernel_of(program, op)
    if impl.launch is None:
        return None
    env = bindings(program, op, choice)
    try:
        x, y, z = block_of(program, op, choice)
        asked = impl.launch.shared
        dynamic = int(sym.evaluate(sym.substitute(asked, env), values)) if asked is not None else 0
    except (sym.UnboundName, ArithmeticError):
        return None
    return Demand(x * y * z, resources.registers, resources.shared + dynamic)

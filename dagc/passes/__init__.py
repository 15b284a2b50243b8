"""Program -> Graph: lower messages, infer and check edges. `build_graph` is the recipe."""

from __future__ import annotations

from dagc.errors import Diagnostic, ProgramError, Severity
from dagc.graph import Graph, Staging, Transport
from dagc.ir import Program
from dagc.passes.edges import connect
from dagc.passes.hazards import Conflicts, unordered
from dagc.passes.messages import lower_messages


def build_graph(program: Program) -> Graph:
    """The graph of a program under its chosen transport, staging and number of streams.

    Raises ProgramError with all findings: cycles, unordered hazards, messages that cannot be staged.
    """
    graph, findings = graph_with_diagnostics(program)
    errors = [d for d in findings if d.severity is Severity.ERROR]
    if errors or graph is None:
        raise ProgramError(errors, dict(program.sources))
    return graph


def graph_with_diagnostics(program: Program) -> tuple[Graph | None, tuple[Diagnostic, ...]]:
    """As `build_graph`, but with warnings too; the graph is None where there are errors."""
    transport = Transport(str(program.decision("transport")))
    staging = Staging(str(program.decision("staging")))
    lowered = lower_messages(program, transport, staging)  # ops, what they touch, edges inside exchanges
    findings = list(lowered.findings)
    conflicts = Conflicts(program, lowered.touches)  # pairs of touches of which one writes
    edges = connect(program, lowered, conflicts, findings)  # edges as written, and inferred ones
    hazards = unordered(program, lowered, edges, conflicts, findings)  # every conflict has an order, or is an error
    if any(d.severity is Severity.ERROR for d in findings):
        return None, tuple(findings)
    graph = Graph(
        program=program,
        transport=transport,
        staging=staging,
        streams=int(program.decision("streams")),
        ops=lowered.ops,
        completion=edges.completion,
        order=edges.order,
        mirrors=lowered.mirrors,
        touches=lowered.touches,
        hazards=hazards,
        matches=lowered.matches,
    )
    return graph, tuple(findings)

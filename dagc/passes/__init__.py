"""Program -> Graph: lower messages, infer and check edges. `build_graph` calls the passes in order; `analysis_of` runs
all stages of one text up to the first that fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dagc.base.errors import Diagnostic, ProgramError, Severity, report_notes
from dagc.base.python import uncollected
from dagc.base.source import Source
from dagc.ir.enums import Transport
from dagc.ir.program import LOOP, TEST_EVERY, TRANSPORT, Graph, Program, Repetition, Staging
from dagc.ir.repetition import Tested, every, kept, tested, wanted, wants_device
from dagc.lang.lower import Parsed, parse_with_includes
from dagc.passes.cases import examine
from dagc.passes.edges import connect, written
from dagc.passes.messages import lower_messages, too_many_edges


def build_graph(program: Program) -> Graph:
    """The graph of a program under its chosen transports, staging and number of streams.

    Its notes go to `errors.notes_to`. Raises ProgramError with all findings: cycles, unordered hazards, and messages
    that their transports do not support.
    """
    graph, findings = graph_with_diagnostics(program)
    errors = [d for d in findings if d.severity is Severity.ERROR]
    if errors or graph is None:
        raise ProgramError(errors, dict(program.sources))
    report_notes(findings, program.sources)
    return graph


def _collapsed(findings: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Merge findings of equal line and code: every iteration of a loop repeats them, and they have one fix."""
    alike: dict[tuple[object, ...], list[Diagnostic]] = {}
    for finding in findings:
        alike.setdefault((finding.code, finding.severity, *finding.places), []).append(finding)
    return tuple(
        same[0] if len(same) == 1 else replace(same[0], message=f"{same[0].message} ({len(same)} instances)")
        for same in alike.values()
    )


@uncollected()
def graph_with_diagnostics(program: Program) -> tuple[Graph | None, tuple[Diagnostic, ...]]:
    """As `build_graph`, but with warnings too. The graph is None if there are errors."""
    graph, findings = _graph(program)
    return graph, _collapsed(findings)


def _graph(program: Program) -> tuple[Graph | None, tuple[Diagnostic, ...]]:
    staging = Staging(str(program.decision("staging")))
    refused = too_many_edges(program)
    if refused is not None:
        return None, (refused,)
    lowered = lower_messages(program, staging)  # ops, their accesses, edges inside exchanges
    findings = list(lowered.findings)
    edges = written(program, lowered, findings)
    if edges is None:
        return None, tuple(findings)
    hazards = connect(program, lowered, edges, findings)  # every conflict is ordered, or an error
    if any(d.severity is Severity.ERROR for d in findings):
        return None, tuple(findings)
    graph = Graph(
        program=program,
        transport=Transport(str(program.decision(TRANSPORT))),
        staging=staging,
        streams=int(program.decision("streams")),
        ops=lowered.ops,
        completion=edges.completion,
        order=edges.order,
        staged=lowered.staged,
        touches=lowered.touches,
        hazards=hazards,
        matches=lowered.matches,
    )
    graph, note = _repeated(graph)
    return graph, (*findings, *note)


def _repeated(graph: Graph) -> tuple[Graph, tuple[Diagnostic, ...]]:
    """The graph as it is repeated, and a note if that is not as chosen."""
    chosen = wanted(graph.program)
    if not wants_device(graph.program):
        return graph, ()
    why: object = tested(graph)
    change = "let the iteration run on streams alone" if graph.program.repeat is not None else "write `dag repeat N`"
    then, help = "the host repeats the dag", f"{change}, or fix {LOOP}={Repetition.HOST.value}"
    if chosen is Repetition.PERSISTENT and not isinstance(why, str):
        from dagc.passes.phases import in_one_kernel  # only with loop=persistent

        why = in_one_kernel(graph)
        then, help = "a graph repeats the dag", "let the iteration have kernels alone, or fix loop=device"
    chosen_as = f"{LOOP}={chosen.value}"
    if isinstance(why, Tested) and every(graph.program) > why.every and isinstance(state := kept(graph), str):
        why, then, help = state, "each iteration is tested", f"fix {TEST_EVERY}=1"
        chosen_as = f"{TEST_EVERY}={every(graph.program)}"
    if isinstance(why, str):
        span = next(d.span for d in graph.program.decisions if d.name == LOOP)
        text = f"{chosen_as}: {why}, so {then}"
        return graph, (Diagnostic("host-loop", text, span, help=help, severity=Severity.NOTE),)
    return why if isinstance(why, Graph) else graph, ()


# ---- all stages of one text ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Analysis:
    """The stages that a text reached.

    parsed       None for a text that does not parse
    program      None where there are errors before the graph is built
    graph        None where there are errors
    diagnostics  of all stages and all values of what is open (`dagc.passes.cases`), in the order of the text
    sources      every file that a diagnostic may point into, by its path
    left_out     a line on the values that were not examined, "" if all were
    """

    source: Source
    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, Source]
    parsed: Parsed | None = None
    program: Program | None = None
    graph: Graph | None = None
    left_out: str = ""


def analysis_of(
    source: Source, defines: Mapping[str, Any] | None = None, opened: Mapping[str, str] | None = None
) -> Analysis:
    """Parse, lower and build the graph, up to the first stage with errors. `defines` as `-D NAME=VALUE`; `opened`:
    resolved path -> text of included files that are not as saved.

    Raises UsageError for a bad entry of `defines`.
    """
    try:
        parsed = parse_with_includes(source, opened=opened)
    except ProgramError as error:
        return Analysis(source, error.diagnostics, {source.path: source, **error.sources})
    found = examine(parsed, dict(defines or {}), graph_with_diagnostics)
    sources = found.lowered.program.sources if found.lowered.program is not None else found.lowered.sources
    return Analysis(
        source, found.diagnostics, sources, parsed, found.lowered.program, found.graph, found.coverage.render()
    )

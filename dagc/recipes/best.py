"""`dagc best`: a results file -> the code of its fastest implementation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError, counted
from dagc.build.toolchain import choose_target
from dagc.report.display import spread
from dagc.report.limits import limit_lines
from dagc.stages.artifacts import compile_traversal
from dagc.stages.options import CompileOptions
from dagc.store.results import ranking, wanted_repeats
from dagc.store.settings import fixed_of
from dagc.study.loaded import Loaded, judged
from dagc.study.outcome import disturbed, equal, fixed_lines, unconfirmed

if TYPE_CHECKING:
    from dagc.store.results import Implementation


def best(
    path: str | Path,
    out: str | Path | None = None,
    options: CompileOptions | None = None,
    *,
    rank: int = 0,
    only_print: bool = False,
    objective: str | None = None,
    **fields: Any,
) -> str:
    """Compile the fastest implementation of a results file into `out` (default: `dagc-out/PROGRAM-best`).

    `rank`: not the fastest, but the rank-th after it. Of the options count `target` (default: that of the file),
    `build`, `force`, `form` and `name`, which `fields` may give as well. What is compiled is the text that the file
    keeps. Returns what to print. Raises UsageError where nothing was measured.
    """
    loaded = Loaded(path, objective)
    if loaded.disagreement is not None:
        raise loaded.disagreement.error(str(path))
    compared = loaded.results.objective
    ranked = ranking(loaded.results)
    if rank >= len(ranked):
        raise UsageError(
            f"{path} has {counted(len(ranked), 'implementation')} measured often enough",
            "run `dagc explore --resume`" if not ranked else f"give --rank 0 to {len(ranked) - 1}",
        )
    chosen = ranked[rank]
    estimate = judged(ranked, rank, loaded.results)
    title = "best" if rank == 0 else f"number {rank}"
    measured = spread(estimate.low, estimate.high, estimate.measurements, compared, shrunk=estimate.shrunk)
    head = [
        f"{title:10} {compared.named(estimate.value)} ({loaded.results.predicted or measured}){equal(estimate.ties)}",
        *unconfirmed(len(chosen.samples), wanted_repeats(loaded.results)),
        *disturbed(chosen.samples),
        f"choices    {chosen.configuration.text}",
        f"traversal  {chosen.traversal}",
        *fixed_lines(fixed_of(loaded.results.runs, chosen.configuration)),
        *limit_lines(loaded.limits(chosen)),
    ]
    if only_print:
        return "\n".join(head) + "\n"
    return "\n".join(head) + "\n" + _compile(loaded, chosen, out, replace(options or CompileOptions(), **fields))


def _compile(loaded: Loaded, chosen: Implementation, out: str | Path | None, options: CompileOptions) -> str:
    machine = loaded.results.runs[-1].machine
    why = "as requested" if options.target else "that of the results file"
    where = choose_target(options.target or machine.target, machine.arch or None, why)
    graph = loaded.graph(chosen.configuration)
    traversal = chosen.order(graph, loaded.path)
    folder = Path(out) if out is not None else Path("dagc-out") / f"{loaded.results.program.name}-best"
    return compile_traversal(graph, traversal, where, folder, options).render()

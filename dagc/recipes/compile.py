"""The recipe of `dagc compile`: text -> graph -> traversal -> plan -> sources -> binary -> times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError, report_notes
from dagc.build.ranks import bind_ranks, ranks_or_default
from dagc.build.toolchain import TargetChoice, target_asked
from dagc.ir.constraints import without_effect
from dagc.ir.plan import Features
from dagc.report.display import SILENT, Display
from dagc.report.limits import FINDING, LimitRow
from dagc.report.stages import NOTHING_PRINTED, Printer
from dagc.stages.artifacts import Compiled, OpenChoices, compile_traversal, defaults_of_open_devices, wanted_traversal
from dagc.stages.options import CompileOptions
from dagc.stages.program import ProgramText, read
from dagc.stages.running import Running, checked, rank_of, run_as_rank

if TYPE_CHECKING:
    from dagc.ir.program import Graph
    from dagc.store.tuned import Tuned


def compile(
    path: str | Path, out: str | Path | None = None, options: CompileOptions | None = None, *,
    display: Display = SILENT, printer: Printer = NOTHING_PRINTED, **fields: Any,
) -> Compiled:  # fmt: skip
    """Compile a `.dag` file into `out` (default: `dagc-out/PROGRAM`); with `run`, also set it up, check it and time it.

    `fields` of the options may be given by name: `compile("spmv.dag", target="host", run=True)`. `printer` gets the
    program after each stage.
    """
    options = replace(options or CompileOptions(), **fields)
    options = replace(options, build=options.build or options.run)
    how = Running(ranks_or_default(options.ranks), options, display)
    rank = rank_of(how, options.form) if options.run else None
    bind_ranks(options.bind)
    chosen, tuned = target_asked(options.target, options.arch), _tuned(options.launch)
    mode = _mode(options, tuned)
    if tuned is not None and _chooses_plans(tuned, options.form):
        from dagc.study.plans import compile_plans  # only with --launch

        if printer.stages:
            raise UsageError(
                f"--print-after: {tuned.path} chooses among plans", "compile one of them: -D fixes decisions"
            )
        plans = compile_plans(path, out, tuned, chosen, mode, how)
        return plans.run(how) if options.run else plans.compiled

    def compile_here() -> Compiled:
        text, without = read(path, options.defines, folds=not options.unroll).on(chosen.target)  # text -> AST
        text, left = _formed(text, options.forms)
        if tuned is not None:
            text = replace(text.with_open_devices(tuned.placed), forms=tuned.forms)
        if printer.stages:
            printer.after_lowering(text.program())
        folded = text.graph()  # -> Program -> Graph
        report_notes(without_effect([folded]), folded.program.sources)
        printer.after_edges(folded)
        with display.phase("finding the traversal", unit="state") as phase:
            graph, picked, number = wanted_traversal(folded, options.traversal, phase.at)  # Graph -> Traversal
        printer.after_choosing(graph, picked)
        name = graph.program.name
        compiled = compile_traversal(
            graph, picked, chosen, Path(out) if out is not None else Path("dagc-out") / name, options,
            open=_open(graph.unrolled, tuned, chosen, mode, options), display=display,
            arrays=how.arrays if options.run else None, printer=printer,
        )  # fmt: skip
        return replace(compiled, number=number, left_out=(*without, *left, *compiled.left_out))

    if rank is not None:
        return run_as_rank(compile_here, how)
    return checked(compile_here(), how) if options.run else compile_here()


def _formed(text: ProgramText, asked: str) -> tuple[ProgramText, tuple[str, ...]]:
    """The text with the forms of `--forms`, and what was left out. Raises UsageError."""
    if asked == "on":
        raise UsageError("--forms on: compile searches nothing", "list them, `wide=4,coarsen`, or give --launch TUNED")
    return text.under(asked)


def limits(done: Compiled, options: CompileOptions, display: Display = SILENT) -> tuple[LimitRow, ...]:
    """How far a program that ran is from the lower bounds of its kernels and of itself; none where the speed of the
    machine cannot be measured, or the program chooses among plans."""
    if done.result is None or done.launcher is not None:
        return ()
    with display.phase(FINDING):
        from dagc.study.limits import limits_of_run  # loads sympy

        return limits_of_run(done.plan, done.result, Running(done.result.ranks, options, SILENT).data(done))


def _tuned(launch: str) -> Tuned | None:
    """The tuned file that `--launch` names, None for `fixed`."""
    if launch == "fixed":
        return None
    from dagc.store.tuned import load_tuned  # loads msgspec, sqlite3

    return load_tuned(launch)


def _chooses_plans(tuned: Tuned, form: str) -> bool:
    from dagc.study.plans import has_plans  # only with --launch

    if has_plans(tuned) and form == "driver":
        message = f"{tuned.path} chooses among plans, which cannot be a {form} yet"
        raise UsageError(message, "compile one of them: -D fixes decisions")
    return has_plans(tuned)


def _mode(options: CompileOptions, tuned: Tuned | None) -> Features:
    """The mode of `--features`. Raises UsageError if it, or `--no-constraints`, has no effect."""
    features, form = options.features, options.form
    if features not in (names := [mode.value for mode in Features]):
        raise UsageError(f"--features {features}: not one of the choices", f"choose from {', '.join(names)}")
    mode = Features(features)
    if tuned is None and (mode is not Features.NOW or not options.constraints):
        option = f"--features {features}" if options.constraints else "--no-constraints"
        raise UsageError(f"{option} is for a program that chooses when it runs", "add --launch TUNED")
    if mode is Features.ASYNC and form not in ("program", "driver") and tuned is not None and tuned.program_chooser:
        raise UsageError(
            f"--features async: a {form} of several plans reports what they chose when it gets the arrays",
            "use --features now or parallel",
        )
    return mode


def _open(
    graph: Graph, tuned: Tuned | None, chosen: TargetChoice, mode: Features, options: CompileOptions
) -> OpenChoices:
    """The launch parameters that stay open until the program runs, and their choosers. Raises UsageError if features
    are to be computed during the first runs of a program that runs once."""
    if mode is Features.BESIDE and options.form in ("program", "driver") and graph.program.repeat is None:
        raise UsageError("--features beside: the dag runs once, so no later run gains", "write `dag repeat N {...}`")
    if tuned is None:
        return defaults_of_open_devices(graph)
    from dagc.study.tuned import open_choices  # only with --launch

    return open_choices(graph, tuned, chosen.gpu_arch, mode, options.constraints)

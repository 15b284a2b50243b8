"""`dagc rules`: results files -> design rules; with `--apply`, rules and a program -> its first implementation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dagc.base.errors import UsageError, counted
from dagc.build.toolchain import target_asked
from dagc.learn.across import Input, across, render_across
from dagc.learn.classes import Outliers
from dagc.learn.fast import fast_end
from dagc.learn.features import Samples
from dagc.learn.judging import accuracy, check
from dagc.learn.text import FORMATS, Findings, render, render_fast
from dagc.learn.tree import classes_of
from dagc.stages.artifacts import compile_traversal, number_of
from dagc.stages.program import read
from dagc.store.results import noise_advice_of
from dagc.study.following import first_by_rules, read_rules
from dagc.study.loaded import Loaded, check_joinable, estimated, inputs_of, learn, named, shared_configurations

if TYPE_CHECKING:
    from dagc.learn.tree import LearnedRules
    from dagc.learn.types import Classes
    from dagc.stages.options import CompileOptions


def rules(
    path: str | Path,
    against: str | Path | None = None,
    form: str = "text",
    *,
    everything: bool = False,
    sets: int = 3,
    all_classes: bool = False,
    full_tree: bool = False,
    estimate: bool = False,
    objective: str | None = None,
) -> str:
    """Design rules of a results file (`path`: FILE or NAME=FILE) as `text`, `md` or `json`.

    Rules for the fast end (`dagc.learn.fast`); with `everything`, as JSON, and where any further option is given, also
    classes, the tree and its rule sets. `against`: a full exploration of the same program; each rule set is then marked
    consistent with it or not, and the class accuracy is given. `sets`: rule sets shown of each class. `full_tree`: as
    grown in the paper. `estimate`: also learn from estimated times of the whole space (`dagc.study.loaded`). Raises
    UsageError.
    """
    if form not in FORMATS:
        raise UsageError(f"unknown format `{form}`", f"one of: {', '.join(FORMATS)}")
    loaded = Loaded(named(str(path))[1], objective)
    shown = loaded.results.objective
    advice = (*noise_advice_of(loaded.results), *loaded.doubts)
    best = loaded.best()
    fast = fast_end(loaded.samples(), best)
    if fast is not None and form != "json" and not (everything or against or all_classes or full_tree or estimate):
        return render_fast(fast, best, advice, shown, form == "md")
    estimation = estimated(loaded.samples(), loaded.results.noise) if estimate else None
    # Only of rules as they are by default: with `full_tree` and `all_classes` they are those of the paper.
    learned = learn(
        loaded, all_classes=all_classes, full_tree=full_tree, samples=estimation.samples if estimation else None,
        halves=not (all_classes or full_tree or estimate),
    )  # fmt: skip
    found = Findings(learned, sets=sets, estimates=estimation, best=best, advice=advice, objective=shown, fast=fast)
    if against is not None:
        full = Loaded(against, shown.text)
        # Rules do not apply to configurations that they were not learned from.
        known = shared_configurations(loaded, full)
        canonical = learn(full, all_classes=all_classes, full_tree=full_tree, only=known)
        found = _compared(found, canonical, loaded.results.runs[0].ranks, full.results.runs[0].ranks)
    return render(found, form)


def _compared(found: Findings, canonical: LearnedRules, ranks: int, others: int) -> Findings:
    """With the verdict of a full exploration, on as many ranks as `others`."""
    learned = found.learned
    share = accuracy(learned, Samples.of(canonical.samples), [s.value for s in canonical.samples])
    note = f"learned on {counted(ranks, 'rank')}, compared on {others}, where the same class may take another time"
    advice = found.advice if ranks == others else (*found.advice, note)
    return replace(found, checked=check(learned, canonical), accuracy=share, advice=advice)


def rules_across(paths: Sequence[str], form: str = "text", *, objective: str | None = None) -> str:
    """Rules that hold on several inputs of one program, as `text`, `md` or `json`.

    `paths`: results files, each as FILE or NAME=FILE. Files of the same input (parameters, arrays, machine, ranks) are
    joined. Raises UsageError if the programs or the objectives differ, or if the inputs cannot be distinguished.
    """
    if form not in FORMATS:
        raise UsageError(f"unknown format `{form}`", f"one of: {', '.join(FORMATS)}")
    given = [named(path) for path in paths]
    files = [Loaded(path, objective) for _, path in given]
    check_joinable(files)
    inputs = inputs_of([name for name, _ in given], files)
    alike = [one.name for one in inputs if len(_classes(one).classes) == 1]
    return render_across(across(inputs, alike), form, files[0].results.objective)


def apply(rules: str, paths: Sequence[str], out: str | Path | None, options: CompileOptions) -> str:
    """Compile a first implementation of the program in `paths` that follows the rules of a file, with nothing measured.

    Returns a line for each rule, which says what it is about there, and what `dagc compile` prints. Raises UsageError.
    """
    found = read_rules(rules)
    if len(paths) > 1:
        raise UsageError(f"--apply compiles one program, not {len(paths)}", "give one .dag file")
    chosen = target_asked(options.target, options.arch)
    text, without = read(paths[0], options.defines, folds=True).on(chosen.target)
    graph, traversal, lines = first_by_rules(text, found, rules)
    directory = Path(out) if out is not None else Path("dagc-out") / graph.program.name
    compiled = compile_traversal(graph, traversal, chosen, directory, options)
    number = number_of(graph, traversal)
    compiled = replace(compiled, number=number, left_out=(*without, *compiled.left_out))
    return "\n".join([f"rules of {rules}, on {graph.program.name}:", *lines, compiled.render()])


def _classes(one: Input) -> Classes:
    return classes_of(one.samples, one.noise, Outliers.of((s.times for s in one.samples), one.noise))

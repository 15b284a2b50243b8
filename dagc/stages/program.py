"""Recipes from the text of a program to its space: read, check, count, list, format, set up.

Everything takes paths and plain values and returns frozen results; failures are `dagc.base.errors.DagcError`s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import Diagnostic, Severity, UsageError, rendered
from dagc.base.signals import Deadline
from dagc.base.source import Source, undecodable
from dagc.ir.choice import qualified
from dagc.ir.constraints import without_effect
from dagc.ir.program import AT_RUN_TIME, DEVICE, Graph, KernelOp, Program, Value
from dagc.lang.lower import Parsed, forms_listed, lower, parse_with_includes
from dagc.passes import build_graph
from dagc.report.display import SILENT, Display

if TYPE_CHECKING:
    from dagc.ir.plan import Target
    from dagc.ir.traversal import Traversal
    from dagc.report.counting import CountReport
    from dagc.space import Space

Defines = Mapping[str, "str | Value"]


@dataclass(frozen=True, slots=True)
class ProgramText:
    """A `.dag` file with its includes, read and parsed once, and the values of -D.

    A command lowers every program from this, so it measures and compiles one text, even if the file is edited
    meanwhile; `changed` then reports that. `folds`: its graphs have one period of each loop (`dagc.passes.loops`),
    which is counted and searched. `forms`: the forms of its kernels are open (`dagc.forms`), as other tunables are.
    """

    path: Path
    parsed: Parsed
    defines: Mapping[str, Any]
    folds: bool = False
    forms: bool = False

    def with_defines(self, defines: Mapping[str, Any]) -> ProgramText:
        """The same text with other values for -D."""
        return replace(self, defines=dict(defines))

    def on(self, target: Target, *, here: bool = True) -> tuple[ProgramText, tuple[str, ...]]:
        """The text for a target, and a note for each implementation that the target excludes. `here`: the text is
        compiled on this machine, with the installed libraries."""
        from dagc.build.toolchain import has_library  # only for a program that is compiled
        from dagc.ir.plan import Target  # only for a program that is compiled
        from dagc.lang.lower import without_missing  # only for a program that is compiled

        cuda = target is Target.CUDA
        parsed, notes = without_missing(self.parsed, cuda, partial(has_library, cuda=cuda) if here else None)
        return replace(self, parsed=parsed), notes

    def under(self, forms: str | None) -> tuple[ProgramText, tuple[str, ...]]:
        """The text with the list of `--forms` in all ops on a GPU whose kernels allow them, -D before it; and why
        others do not. As it is with "on", "off" or None. Raises UsageError."""
        if forms in (None, "on", "off"):
            return self, ()
        given, left = forms_listed(self.program(), forms)
        return self.with_defines({**given, **self.defines}), left

    def program(self, choices: Mapping[str, Any] | None = None) -> Program:
        """The program, with `choices` in addition to -D. Raises ProgramError with all findings."""
        return lower(self.parsed, {**self.defines, **(choices or {})}, self.forms)

    def graph(self, choices: Mapping[str, Any] | None = None) -> Graph:
        """As `program`: messages lowered, edges inferred, hazards checked."""
        graph = build_graph(self.program(choices))
        if not self.folds:
            return graph
        from dagc.passes.loops import fold  # only for a space

        return fold(graph)

    def with_open_devices(self, ops: Collection[str] | None = None) -> ProgramText:
        """The text with the devices of ops left open until the program runs, if a `select` names them and -D does not;
        `ops`: only of these."""
        if ops is not None and not ops:
            return self
        names = (op for op in _open_devices(self.program(), self.defines) if ops is None or op in ops)
        return self.with_defines(
            {**self.defines, **dict.fromkeys((qualified(op, DEVICE) for op in names), AT_RUN_TIME)}
        )

    def changed(self) -> tuple[str, ...]:
        """A note for each file whose text has changed."""
        return tuple(
            f"{path} has changed since it was read: the earlier text was used"
            for path, source in self.parsed.sources.items()
            if _text_now(path) != source.text
        )


def _open_devices(program: Program, defines: Mapping[str, Any]) -> tuple[str, ...]:
    """The ops whose device stays open until the program runs: a `select` names it, and -D does not fix it."""
    selected = {k.name for k in program.kernels if any(DEVICE in s.names for s in k.selects)}
    together = any(s.owner == "dag" and DEVICE in s.names for s in program.selects)
    left = {d.name for d in program.decisions} - {name.replace(" ", "") for name in defines}
    ops = (op for op in program.ops if isinstance(op, KernelOp) and (together or op.kernel in selected))
    return tuple(op.name for op in ops if qualified(op.name, DEVICE) in left)


def _text_now(path: str) -> str | None:
    try:
        return Source.read(path).text
    except (OSError, ValueError):
        return None


def read(path: str | Path, defines: Defines | None = None, folds: bool = False) -> ProgramText:
    """Read and parse a `.dag` file. Raises UsageError (no such file, not UTF-8), ProgramError (syntax)."""
    return ProgramText(Path(path), parse_with_includes(read_source(path)), dict(defines or {}), folds)


def read_source(path: str | Path, what: str = "a .dag file", *, regular: bool = False) -> Source:
    """The text of `what`; `regular`: of a regular file only. Raises UsageError."""
    try:
        str(path).encode()  # emitted files contain it
    except UnicodeEncodeError:
        raise UsageError(f"{path}: the path is not UTF-8", "rename it, or change into its directory") from None
    try:
        return Source.read(path, regular=regular)
    except UnicodeDecodeError as error:
        raise UsageError(undecodable(path, error), "save the file as UTF-8 text") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", f"give the path of {what}") from None


def load(path: str | Path, defines: Defines | None = None) -> Program:
    """Text -> Program: every structural choice made, loops expanded, names resolved.

    `defines` override parameters and fix decisions, as `-D NAME=VALUE`. Raises ProgramError with all findings.
    """
    return read(path, defines).program()


def load_graph(path: str | Path, defines: Defines | None = None) -> Graph:
    """Text -> Graph: messages lowered, edges inferred, hazards checked."""
    return read(path, defines).graph()


def load_space(path: str | Path, defines: Defines | None = None, unroll: bool = False) -> Space:
    """Text -> Space: all traversals of the graph, which has one period of each loop unless `unroll` is given."""
    from dagc.space import Space  # only for a space

    return Space(read(path, defines, not unroll).graph())


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of `check`: diagnostics of all stages. `open_devices`: ops whose device is chosen when the program
    runs; `left_out`: a line on the values that were not examined."""

    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, Source]
    open_devices: tuple[str, ...] = ()
    left_out: str = ""

    @property
    def errors(self) -> int:
        return sum(d.severity is Severity.ERROR for d in self.diagnostics)

    def render(self) -> str:
        return rendered(self.diagnostics, dict(self.sources))


def check(path: str | Path, defines: Defines | None = None) -> Checked:
    """All diagnostics: syntax, names, types, sizes, hazards, cycles, and warnings. Runs no user code."""
    from dagc.passes import analysis_of  # only for check

    analysis = analysis_of(read_source(path), defines)
    ops = _open_devices(analysis.program, defines or {}) if analysis.program is not None else ()
    idle = () if analysis.graph is None else without_effect([analysis.graph])
    return Checked((*analysis.diagnostics, *idle), analysis.sources, ops, analysis.left_out)


def count(
    path: str | Path,
    defines: Defines | None = None,
    display: Display = SILENT,
    seconds: float | None = None,
    unroll: bool = False,
    forms: str = "off",
) -> CountReport:
    """The exact number of implementations, of the program as requested and of its variations.

    For a loop, the implementations of one period are counted; with `unroll`, those of all its rounds. After `seconds`
    counting is stopped, and gives a lower bound. `forms`: as `--forms`, whether those of kernels are counted too.
    """
    end = Deadline.after(seconds)
    from dagc.report.counting import count_report  # only for count

    text = replace(read(path, defines, not unroll).under(forms)[0], forms=forms == "on")
    return count_report(text.graph, display, end, text.folds)


def traversals(
    path: str | Path,
    defines: Defines | None = None,
    limit: int | None = None,
    prune_syncs: bool = False,
    unroll: bool = False,
) -> Iterator[tuple[int, str]]:
    """(ID, text) of the traversals, in the order of their IDs, from 0.

    With `prune_syncs`, redundant sync ops are removed, and only the first of several traversals that become equal is
    listed. A loop is represented by one round (`[t]`), unless `unroll` is set; a comment after `#` then has the waits
    between rounds, which are not decisions.
    """
    from dagc.ir.traversal import traversal_text  # only for list
    from dagc.space.loops import waits_between  # only for list

    def shown(traversal: Traversal) -> str:
        text, waits = traversal_text(traversal, space.graph), waits_between(space.graph, traversal)
        return f"{text}  # {waits}" if waits else text

    space = load_space(path, defines, unroll)
    if not prune_syncs:
        return islice(((i, shown(t)) for i, t in enumerate(space)), limit)
    from dagc.space.proof import Prover, prune  # only with --prune-syncs

    prover, seen = Prover(space.graph), set[str]()

    def pruned() -> Iterator[tuple[int, str]]:
        for number, traversal in enumerate(space):
            text = shown(prune(traversal, prover))
            if text not in seen:
                seen.add(text)
                yield number, text

    return islice(pruned(), limit)


def run_setup(
    path: str | Path,
    ranks: int,
    out: str | Path,
    seed: int = 0,
    defines: Defines | None = None,
    display: Display = SILENT,
) -> None:
    """Run the program's set-up and references for each rank and write the arrays. Runs the user's Python code."""
    write_arrays(load(path, defines), Path(path).parent, Path(out), ranks, seed, display)


def write_arrays(program: Program, folder: Path, data: Path, ranks: int, seed: int, display: Display) -> None:
    """Run the set-up and the references of each rank. Runs the user's Python code, from `folder`."""
    from dagc.setup import run_setup as write  # only where the program runs

    with display.phase("setting up the arrays, running the references", ranks, "rank") as phase:
        write(program, folder, ranks, seed, data, done=phase.advance)


def format_source(path: str | Path) -> tuple[str, str]:
    """(the text, the text as formatted by `dagc fmt`)."""
    from dagc.lang.fmt import format_source as formatted  # only for fmt

    source = read_source(path)
    return source.text, formatted(source)

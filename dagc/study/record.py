"""The record of a run, for a results file: the program, its set-up and revision, the options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError
from dagc.base.resources import __version__
from dagc.base.source import find_file, read_file
from dagc.build.toolchain import answer_of
from dagc.ir.plan import program_hash
from dagc.ir.program import Program
from dagc.report.display import Display
from dagc.store.results import FOLDED, MachineRecord, Run, of_hosts
from dagc.store.results import ProgramRecord as Kept
from dagc.store.settings import OPTION, Origins, fixed_to_json

if TYPE_CHECKING:
    from dagc.stages.options import EarlierOptions, ExploreOptions
    from dagc.store.records import Records


def program_record(program: Program) -> Any:
    """The program, for a results file."""
    return Kept(
        name=program.name,
        path=program.path,
        hash=program_hash(program),
        sources=tuple((path, source.text) for path, source in sorted(program.sources.items())),
        params=tuple(program.param_values.items()),
    )


def revision(folder: Path) -> str:
    """The git revision of the directory, with + if it has changes; "" if there is none."""

    def git(*words: str) -> str:
        return (answer_of(["git", *words], 10, cwd=folder) or "").strip()

    commit = git("rev-parse", "HEAD")
    return f"{commit}+" if commit and git("status", "--porcelain", "--untracked-files=no") else commit


def setup_digest(path: Path, program: Program, options: EarlierOptions) -> str:
    """Part of the SHA-256 of the file that computes the arrays; "" if there is none, or the arrays were given."""
    if program.setup is None or options.data is not None:
        return ""
    try:
        text = read_file(find_file(program.setup.file, path.parent, path.parent), regular=True)
    except OSError:  # the set-up reports it
        return ""
    return sha256(text).hexdigest()[:16]


def run_record(
    machine: MachineRecord,
    options: ExploreOptions,
    path: Path,
    setup: str = "",
    fixed: Origins | None = None,
    folded: bool = False,
) -> Run:
    """`setup`: digest of the set-up file; `fixed`: the values that are not searched; `folded`: whether traversals
    cover one round of each loop. `options.strategy` must be set."""
    assert options.strategy is not None
    more = {
        OPTION: fixed_to_json(fixed or {}),
        **({"setup": setup} if setup else {}),
        **({FOLDED: True} if folded else {}),
    }
    return Run(
        started=datetime.now(UTC).isoformat(timespec="seconds"), machine=machine, ranks=options.ranks,
        seed=options.seed, strategy=options.strategy, seconds=options.seconds, revision=revision(path.parent),
        version=__version__, options=asdict(options) | more,
    )  # fmt: skip


@dataclass(slots=True)
class SearchFile:
    """The results file of a search, opened for its first measurement, when not all is known of the run. Closed with
    `stack`."""

    stack: ExitStack
    path: Path = Path()
    records: Records | None = None
    best: Callable[[], str] = str  # a line on the best so far, "" without one
    _hosts: tuple[MachineRecord, ...] = ()

    def hosts(self, describe: Callable[[], tuple[MachineRecord, ...]]) -> tuple[MachineRecord, ...]:
        """Of the ranks, asked once."""
        self._hosts = self._hosts or describe()
        return self._hosts

    def open(
        self, text: Path, program: Program, options: ExploreOptions, fixed: Origins, folded: bool
    ) -> tuple[Records, Run]:
        """The file, with what is known of the run; after `hosts`. Raises UsageError."""
        from dagc.store.records import Records  # loads msgspec, sqlite3

        setup = setup_digest(text, program, options)
        run = run_record(of_hosts(self._hosts), options, text, setup, fixed, folded)
        if self.records is None:
            opened = Records.open(
                self.path, program_record(program), run, resume=options.resume, other_machine=options.other_machine
            )
            self.records = self.stack.enter_context(opened)
        else:
            self.records.restate(run)
        return self.records, run

    @contextmanager
    def before_search(self, display: Display) -> Iterator[None]:
        """If the user ends it, he is told what was measured; if he asked for what is not possible, a file that was
        created is removed."""
        try:
            yield
        except KeyboardInterrupt:
            if line := self.best():
                display.say(f"{line}\n{self.path} keeps it; --resume continues")
            raise
        except UsageError:
            if self.records is not None:
                self.records.close(withdrawn=True)
            raise

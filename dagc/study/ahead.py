"""What a search measures first: its most promising configuration, while the others are lowered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from dagc.base.children import Workers
from dagc.base.errors import DagcError, UsageError
from dagc.build.ranks import joined
from dagc.ir.choice import Choice
from dagc.ir.constraints import configuration_of
from dagc.ir.plan import Plan
from dagc.ir.program import Graph, Value
from dagc.lab.candidate import Candidate
from dagc.lab.configurations import Configured
from dagc.lab.live import LiveMachine
from dagc.lab.orders import Orders
from dagc.measure.service import OPEN_SECONDS, RankLink, Service
from dagc.stages.artifacts import write_runner
from dagc.study.beside import Beside
from dagc.study.decisions import LoweredBy, SearchRequest, domain_of
from dagc.study.launch import Predictions, as_written, launch_sites
from dagc.study.original import original
from dagc.study.runners import (
    ArraysOf,
    Built,
    by_promise,
    first_sample,
    library_of,
    runner_at,
    runner_plan,
    that_can_run,
)

# Of the time limit: when no further configuration is waited for. The most promising are checked by then, and launch
# settings, which the search finds, are worth a factor as transports are.
BUILD_SHARE = 0.5
FEW = 12  # combinations, which are lowered about as soon as one of them is alone, with its sources


@dataclass(frozen=True, slots=True)
class _Combination:
    """Of decisions, before the program is lowered."""

    configuration: Choice


class Ahead:
    """Builds, checks and measures the most promising of the combinations while the others are lowered; with
    `--original` also the first of them, which has all defaults: `dagc record` writes an order of it.

    Not if launch settings are chosen before the search, if the ranks are elsewhere, or if the combinations are FEW.
    What is wrong is said in its turn.
    """

    def __init__(
        self, request: SearchRequest, folder: Path, link: RankLink, predictions: Predictions,
        under_way: Callable[[], Callable[[], ArraysOf]],
        keep: Callable[[Sequence[Configured], LiveMachine, Beside], None],
    ) -> None:  # fmt: skip
        """`under_way`: called first, since it forks, and threads start here. `keep`: called when the first is measured,
        to write it to the results file."""
        self._request, self._folder, self._link = request, folder, link
        self._predictions, self._under_way, self._keep = predictions, under_way, keep
        self._first: list[Configured] = []
        self._graphs: dict[frozenset[tuple[str, Value]], Graph] = {}
        self._begun, self._others = False, 0
        self._ranks: Future[Any] | None = None
        self._domain: Future[tuple[Orders, ArraysOf]] | None = None
        self._measuring: tuple[LiveMachine, Beside] | None = None
        self.libraries: dict[Choice, Future[Built]] = {}  # under way, by what they are compiled for
        self.answered = Event()  # all that is measured ahead was measured

    def lowering(self, stack: ExitStack) -> Callable[[Sequence[Mapping[str, Value]]], LoweredBy]:
        """Combinations -> how the program is lowered under each of them: when what is first is measured, not beyond
        BUILD_SHARE of the time limit. Compilers end with `stack`."""
        end = self._request.deadline.part(BUILD_SHARE)

        def of(combinations: Sequence[Mapping[str, Value]]) -> LoweredBy:
            if self._request.chooses or not self._request.chosen.here or len(combinations) < FEW:
                return LoweredBy(self._request.text.graph)

            def graph(choices: Mapping[str, Value]) -> Graph:
                if not self._begun:
                    self._begun = True
                    with suppress(DagcError):
                        self._begin(combinations, stack)
                self._advance()
                return self._graphs.get(_key(choices)) or self._request.text.graph(choices)

            def late(choices: Mapping[str, Value]) -> bool:
                return end.over and self._enough() and _key(choices) not in self._graphs

            return LoweredBy(graph, late)

        return of

    def finish(self) -> None:
        """Measure what is first, as soon as it is built. The other libraries are under way by then."""
        if self._domain is not None:
            jobs: list[Future[Any] | None] = [self._domain, self._ranks, *self.libraries.values()]
            wait([job for job in jobs if job is not None])
            self._advance()
        self.answered.set()

    def measuring(self, request: SearchRequest, domain: Orders) -> tuple[LiveMachine, Beside]:
        """The machine of a search in this domain, and what it measures while compilers run. Raises UsageError for an
        order of `--original` that no configuration has."""
        compared = original(request.options, domain)
        wait([] if self._ranks is None else [self._ranks])
        if self._measuring is not None:
            machine, beside = self._measuring
            numbers = {old: domain.number(s.configuration) for old, s in enumerate(machine.domain.spaces)}
            kept = {old: new for old, new in numbers.items() if new is not None}
            if len(kept) == len(numbers):
                machine.turn_to(domain, kept)
                beside.turn_to(domain, kept)
                beside.compared = compared
                return self._measuring
        return self._begin_measuring(request, domain, compared)

    def _enough(self) -> bool:
        """Whether what is first was measured, and there is something that the order of an application is compared
        with."""
        checked = self._measuring[1].checked.values() if self._measuring is not None else ()
        right = sum(not sample.failure for sample in checked)
        return right > (self._request.options.original is not None)

    # ---- the first ----------------------------------------------------------------------------

    def _begin(self, combinations: Sequence[Mapping[str, Value]], stack: ExitStack) -> None:
        arrays, request = self._under_way(), self._request
        first = self._first = self._lowered(first_of(combinations, request))
        self._others = len(combinations) - len(first)
        pool = stack.enter_context(Workers(len(first) + 1))
        stack.callback(pool.stop)
        for number, configured in enumerate(first):
            plan = first_plan(configured, request)
            directory = self._folder / f"first-{number}"
            write_runner(plan, directory)  # here: a thread that writes them beside the lowering takes twice as long
            self.libraries[library_of(configured)] = pool.submit(runner_at, directory, plan, True)
        if joined() is None:  # else they run
            self._ranks = pool.submit(Service(self._link).send, {"do": "hello", "limit": OPEN_SECONDS})
        self._predictions.prepare()
        self._domain = self._predictions.soon(lambda: self._prepared(first, arrays()))

    def _lowered(self, choices: Iterable[Mapping[str, Value]]) -> list[Configured]:
        out = []
        for one in choices:
            graph = self._graphs[_key(one)] = self._request.text.graph(one)
            out.append(Configured(configuration_of(graph), one, graph))
        return that_can_run(out, self._request.chosen, self._request.options, [])

    def _prepared(self, first: Sequence[Configured], arrays: ArraysOf) -> tuple[Orders, ArraysOf]:
        request = self._request
        domain = domain_of(first, request.options, launch_sites(request, first, arrays.data))
        self._predictions.expect(as_written(request, domain.spaces, arrays.data))
        self._predictions.known.set()
        return domain, arrays

    def _advance(self) -> None:
        """Measure what has been built."""
        jobs = [job for job in (self._domain, self._ranks) if job is not None]
        if self._domain is None or not all(job.done() for job in jobs):
            return
        try:
            domain, arrays = self._domain.result()
            if self._measuring is None:
                compared = _compared(self._request, domain)
                self._measuring = self._begin_measuring(self._request, domain, compared)
            machine, beside = self._measuring
            for index, space in enumerate(domain.spaces):
                library = self.libraries[library_of(space)]
                if index not in beside.checked and library.done() and isinstance(path := library.result(), Path):
                    beside.tell(index, first_sample(machine, index, path, arrays, beside), self._others)
                    if not beside.kept and beside.line:
                        self._keep(self._first, machine, beside)
        except DagcError:
            self._domain = None

    def _begin_measuring(
        self, request: SearchRequest, domain: Orders, compared: Candidate | None
    ) -> tuple[LiveMachine, Beside]:
        options, objective = request.options, request.objective
        machine = LiveMachine(
            domain, (), self._link, seconds=options.seconds, watchdog=options.watchdog, objective=objective
        )
        beside = Beside(
            machine, objective, options.seed, self._predictions, options.budget, request.display.say, compared
        )
        return machine, beside


def _compared(request: SearchRequest, domain: Orders) -> Candidate | None:
    """The order of `--original`, if the domain has its ops: others may."""
    with suppress(UsageError):
        return original(request.options, domain, alike=False)
    return None


def _key(choices: Mapping[str, Value]) -> frozenset[tuple[str, Value]]:
    return frozenset(choices.items())


def first_of(combinations: Sequence[Mapping[str, Value]], request: SearchRequest) -> list[dict[str, Value]]:
    """The combinations that are built first."""
    promising = by_promise(_Combination(Choice(tuple(choices.items()))) for choices in combinations)[0]
    first = dict(promising.configuration.items())
    own = dict(combinations[0])
    return [first] if request.options.original is None or own == first else [own, first]


def first_plan(configured: Configured, request: SearchRequest) -> Plan:
    """What the library of a configuration is built from, before its arrays are known."""
    sites = launch_sites(request, [configured], None).get(configured.configuration, ())
    return runner_plan(configured, request.chosen, sites)

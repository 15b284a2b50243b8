"""The library that a search builds first, while its other configurations are lowered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dagc.base.children import Workers
from dagc.base.errors import DagcError
from dagc.build.builder import cache_directory
from dagc.ir.choice import Choice
from dagc.ir.effective import configuration_of
from dagc.ir.plan import Plan
from dagc.ir.program import Value
from dagc.lab.configurations import Configured
from dagc.stages.artifacts import build_artifact, write_runner
from dagc.study.decisions import SearchRequest
from dagc.study.launch import launch_sites
from dagc.study.runners import by_promise, runner_plan, that_can_run

FEW = 12  # combinations, which are lowered about as soon as one of them is alone, with its sources


@dataclass(frozen=True, slots=True)
class _Combination:
    """Of decisions, before the program is lowered."""

    configuration: Choice


def build_ahead(
    request: SearchRequest, directory: Path, under_way: Callable[[], object], stack: ExitStack
) -> Callable[[Sequence[Mapping[str, Value]]], None]:
    """The function that begins to build the most promising of combinations, which ends with `stack`: its library then
    comes from the cache when its turn is. Not if there is no cache, or if they are FEW. What is wrong is said in its
    turn.

    `under_way`: called first, since it forks, and threads start here.
    """

    def ahead(combinations: Sequence[Mapping[str, Value]]) -> None:
        if request.chooses or cache_directory() is None or len(combinations) < FEW:
            return
        with suppress(DagcError):
            under_way()
            stack.enter_context(_building(first_plan(combinations, request), directory))

    return ahead


@contextmanager
def _building(plan: Plan, directory: Path) -> Iterator[None]:
    write_runner(plan, directory)  # here: a thread that writes them beside the lowering takes twice as long

    def build() -> None:
        with suppress(DagcError):
            build_artifact(directory, plan, "runner")

    with Workers(1) as pool:
        pool.submit(build)
        yield
        pool.stop()


def first_plan(combinations: Iterable[Mapping[str, Value]], request: SearchRequest) -> Plan:
    """What the library of the most promising combination is built from. Raises as lowering does, and MissingTool where
    this machine lacks a transport."""
    every = (_Combination(Choice(tuple(choices.items()))) for choices in combinations)
    choices = dict(by_promise(every)[0].configuration.items())
    graph = request.text.graph(choices)
    first = that_can_run([Configured(configuration_of(graph), choices, graph)], request.chosen, request.options, [])[0]
    return runner_plan(first, request.chosen, launch_sites(request, [first], None).get(first.configuration, ()))

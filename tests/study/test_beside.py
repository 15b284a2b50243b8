"""What is measured while compilers run: the settings predicted to be the fastest, if that is known, else the program's
own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from dagc.base.children import Workers
from dagc.base.sample import TIME, Sample
from dagc.build.toolchain import choose_target
from dagc.choice.types import Site
from dagc.emit import emit_runner
from dagc.ir.choice import Choice
from dagc.ir.constraints import configuration_of
from dagc.ir.program import Value
from dagc.lab.candidate import Candidate
from dagc.lab.configurations import Configured
from dagc.lab.live import LiveMachine
from dagc.lab.orders import Orders, OrderStore, ResultsFile
from dagc.report.display import Display
from dagc.setup import run_setup
from dagc.stages.options import ExploreOptions
from dagc.stages.program import read
from dagc.study.ahead import first_of, first_plan
from dagc.study.beside import Beside
from dagc.study.decisions import LoweredBy, SearchRequest, configured, domain_of
from dagc.study.launch import Predictions, launch_sites, launched, predicted
from dagc.study.runners import by_promise, runner_plan, that_can_run

HEAT = Path(__file__).parents[2] / "samples/heat/heat.dag"
GESUMMV = Path(__file__).parents[2] / "samples/polybench/gesummv.dag"


@dataclass(frozen=True, slots=True)
class Invented:
    """A machine whose times are the prediction of `sites`; it keeps what it was asked for."""

    domain: Orders
    asked: list[Candidate] = field(default_factory=list)
    refused: frozenset[Choice] = frozenset()

    def probe(self, candidate: Candidate) -> Sample:
        self.asked.append(candidate)
        if self.refused & set(candidate.choices):
            return Sample(failure="it takes too many registers")
        return Sample(1e-3 + 1e-6 * len(self.asked), iterations=1)


class Forgotten:
    def begin(self, configuration: Choice, traversal: str) -> int:
        return 0

    def add(self, *measured: object) -> None: ...

    def fail(self, *measured: object) -> None: ...


def requested(target: str, arch: str | None) -> SearchRequest:
    options = ExploreOptions(ranks=1, launch="search", quiet=True)
    text = replace(read(GESUMMV, {}, True), forms=target == "cuda")
    return SearchRequest(text, options, choose_target(target, arch), Display(quiet=True))


def domain(request: SearchRequest | None = None) -> Orders:
    request = request or requested("host", None)
    options = request.options
    _, configurations, _ = configured(request.text, options, gpus=True)
    settled = launched(request, configurations, {}, Path).configurations
    return domain_of(settled, options, launch_sites(request, settled, None))


def predicting(orders: Orders, best: int) -> Mapping[Choice, tuple[Site, ...]]:
    """The setting `best` of each site as the fastest."""

    def of(site: Site) -> Site:
        return replace(site, prior=tuple(float(abs(n - best) + 1) for n in range(len(site.choices))))

    return {space.configuration: tuple(map(of, space.sites)) for space in orders.spaces}


def beside(machine: Invented, draws: int | None = None) -> Beside:
    out = Beside(cast(LiveMachine, machine), TIME, 1, Predictions(Workers(1)), draws)
    out.keep_in(OrderStore(machine.domain, cast(ResultsFile, Forgotten())))
    return out


def at(orders: Orders, setting: int) -> Candidate:
    """The first traversal of the first space with this setting of each site."""
    return replace(orders.first(0), choices=tuple(s.choices[setting] for s in orders.spaces[0].sites))


def test_predicted_settings_are_measured_first_and_once() -> None:
    orders = domain()
    machine = Invented(orders)
    measuring = beside(machine)
    assert orders.spaces[0].sites
    measuring.predictions.expect(predicting(orders, 3))
    assert not measuring.first(0).failure
    for _ in range(12):
        assert measuring.step()
    measuring.predictions.expect(predicting(orders, 4))  # more is known
    assert measuring.step()
    assert [machine.asked[0], machine.asked[13]] == [at(orders, 3), at(orders, 4)]
    assert machine.asked.count(at(orders, 4)) == 1


def test_nothing_predicted_leaves_the_programs_own_settings_and_draws() -> None:
    machine = Invented(domain())
    measuring = beside(machine)
    measuring.predictions.known.set()
    measuring.first(0)
    for _ in range(6):
        assert measuring.step()
    assert machine.asked[0] == machine.domain.first(0)
    assert len(set(machine.asked)) > 1


def test_no_more_is_drawn_than_the_search_may_measure() -> None:
    machine = Invented(domain())
    measuring = beside(machine, draws=2)
    measuring.predictions.known.set()
    measuring.first(0)
    while measuring.step():
        pass
    measuring.step()
    assert 1 < len(set(machine.asked)) <= 3


def test_the_programs_own_settings_are_measured_where_those_predicted_fail() -> None:
    orders = domain()
    machine = Invented(orders, refused=frozenset(site.choices[2] for site in orders.spaces[0].sites))
    measuring = beside(machine)
    measuring.predictions.expect(predicting(orders, 2))
    assert not measuring.first(0).failure
    assert machine.asked == [at(orders, 2), orders.first(0)]


@pytest.mark.parametrize("target", ["host", "cuda"])
def test_the_program_that_is_built_ahead_is_the_one_that_is_built_first(target: str) -> None:
    request = replace(requested(target, "sm_90" if target == "cuda" else None), text=read(HEAT, {}, True))
    told: list[Sequence[Mapping[str, Value]]] = []

    def lowering(combinations: Sequence[Mapping[str, Value]]) -> LoweredBy:
        told.append(combinations)
        return LoweredBy(request.text.graph)

    _, configurations, _ = configured(request.text, request.options, target == "cuda", lowering)
    usable = that_can_run(configurations, request.chosen, request.options, [])
    first = by_promise(usable)[0]
    sites = launch_sites(request, usable, None).get(first.configuration, ())
    (choices,) = first_of(told[0], request)
    graph = request.text.graph(choices)
    ahead = first_plan(Configured(configuration_of(graph), choices, graph), request)
    assert emit_runner(ahead) == emit_runner(runner_plan(first, request.chosen, sites))


class Enough(Exception):
    """Kernels are compiled for their registers only after this."""


def test_kernels_as_written_are_predicted_before_anything_is_compiled(tmp_path: Path) -> None:
    request = requested("cuda", "sm_90")
    run_setup(request.text.program(), GESUMMV.parent, 1, 1, tmp_path)
    told: list[Mapping[Choice, tuple[Site, ...]]] = []

    def found(sites: Mapping[Choice, tuple[Site, ...]]) -> None:
        told.append(sites)
        raise Enough

    spaces = [space for space in domain(request).spaces if space.sites][:1]
    with pytest.raises(Enough):
        predicted(request, spaces, tmp_path, found)
    site = told[0][spaces[0].configuration][0]
    written = [not choice.formed for choice in site.choices]
    assert [math.isfinite(t) for t in site.prior] == written
    assert not all(written)

"""The loop of a search, on machines that answer from a table."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from dagc.base.errors import RunFailed
from dagc.base.sample import CONFIRM, Sample
from dagc.lab.candidate import Candidate
from dagc.lab.engine import FIRST, LEFT, MeasuringPlace, Progress, SearchOptions, Summary, explore
from dagc.lab.live import ReplayMachine
from dagc.lab.orders import Orders
from dagc.lab.strategy import find, names
from tests.data.h200 import h200_graph, h200_results
from tests.lab.test_strategies import domain, time_of


class Table:
    """A machine: the n-th answer for a candidate."""

    def __init__(self, answer: Callable[[Candidate, int], Sample]) -> None:
        self.answer, self.asked = answer, list[Candidate]()

    def measure(self, candidate: Candidate) -> Sample:
        self.asked.append(candidate)
        return self.answer(candidate, self.asked.count(candidate) - 1)


class Memory:
    """A store that remembers its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def begin(self, candidate: Candidate) -> int:
        self.calls.append(("begin", candidate))
        return len(self.calls)

    def add(self, key: int, sample: Sample) -> None:
        self.calls.append(("fail", sample.failure) if sample.failure else ("add", sample.value, sample.purpose))


def steady(candidate: Candidate, turn: int) -> Sample:
    return Sample(time_of(candidate), iterations=1)


def run(machine: Table, options: SearchOptions, name: str = "random", **more: object) -> tuple[object, Memory, Orders]:
    store, where = Memory(), domain()
    done = explore(where, find(name)(where, options.seed), machine, store, options, **more)  # type: ignore[arg-type]
    return done, store, where


def test_budget_confirmation_and_the_best() -> None:
    machine = Table(steady)
    done, store, where = run(machine, SearchOptions(budget=40, confirm=4, repeats=3))
    assert done.measurements == 40 + 4 * 3
    assert done.implementations == 40
    assert done.space == where.size()
    assert done.best == min(set(machine.asked), key=time_of)
    assert done.value == pytest.approx(time_of(done.best))
    assert done.measurements_of_best == 3
    purposes = [call[2] for call in store.calls if call[0] == "add"]
    assert purposes == ["search"] * 40 + ["confirm"] * 12


def test_a_lucky_time_does_not_win() -> None:
    """One candidate is fast the first time only."""
    lucky = min(domain(), key=repr)

    def answer(candidate: Candidate, turn: int) -> Sample:
        return Sample(0.1) if candidate == lucky and turn == 0 else Sample(time_of(candidate) + (candidate == lucky))

    done, _, _ = run(Table(answer), SearchOptions(confirm=5, repeats=5))
    assert done.best != lucky
    assert done.value > 1


def test_drift_is_divided_out() -> None:
    """The machine becomes slower and slower, and its reference with it."""
    speed = iter(range(1, 10_000))

    def answer(candidate: Candidate, turn: int) -> Sample:
        factor = 1 + next(speed) / 500
        return Sample(time_of(candidate) * factor, reference=factor)

    machine = Table(answer)
    done, _, _ = run(machine, SearchOptions(confirm=0))
    assert done.best == min(set(machine.asked), key=time_of)


def test_a_reference_that_times_do_not_follow_is_not_divided_out() -> None:
    """It varies by itself: once repeated measurements show it, times are as measured."""
    random = Random(0)

    def answer(candidate: Candidate, turn: int) -> Sample:
        return Sample(time_of(candidate), reference=random.choice([0.7, 1.0, 1.4]))

    done, _, _ = run(Table(answer), SearchOptions(passes=2, confirm=5, repeats=9))
    assert done.value == pytest.approx(time_of(done.best))


def test_passes_are_interleaved() -> None:
    machine = Table(steady)
    done, _, where = run(machine, SearchOptions(passes=3, confirm=0), "exhaustive")
    size = where.size()
    assert size is not None
    passes = [machine.asked[i * size : (i + 1) * size] for i in range(3)]
    assert all(set(p) == set(where) for p in passes)
    assert passes[0] != passes[1] != passes[2]
    assert done.measurements == 3 * size


def test_failures_are_recorded_and_the_search_goes_on() -> None:
    def answer(candidate: Candidate, turn: int) -> Sample:
        return Sample(failure="run failed: a rank") if candidate.space == 0 else steady(candidate, turn)

    done, store, _ = run(Table(answer), SearchOptions(confirm=2, repeats=2))
    assert done.failures == 15
    assert done.implementations == 142
    assert sum(call[0] == "fail" for call in store.calls) == 15
    assert done.best.space == 1


def test_what_fails_when_measured_again_is_not_the_best() -> None:
    """The fastest of all hangs at its second measurement."""
    fastest = min(domain(), key=time_of)

    def answer(candidate: Candidate, turn: int) -> Sample:
        return Sample(failure="hang: rank 1") if candidate == fastest and turn == 1 else steady(candidate, turn)

    reports: list[Progress] = []
    machine = Table(answer)
    done, _, _ = run(machine, SearchOptions(confirm=5, repeats=3), progress=reports.append)
    second = sorted(domain(), key=time_of)[1]
    assert done.failures == 1
    assert machine.asked.count(fastest) == 2
    assert done.best == reports[-1].best == second


def test_nothing_works() -> None:
    done, _, _ = run(Table(lambda c, t: Sample(failure="run failed")), SearchOptions(budget=5))
    assert done.best is None
    assert math.isnan(done.value)


def test_an_interruption_ends_with_the_best_so_far() -> None:
    def answer(candidate: Candidate, turn: int) -> Sample:
        if len(machine.asked) == 20:
            raise KeyboardInterrupt
        return steady(candidate, turn)

    machine = Table(answer)
    done, _, _ = run(machine, SearchOptions())
    assert done.interrupted
    assert done.best == min(machine.asked[:19], key=time_of)


def test_what_is_known_is_not_measured_again() -> None:
    known = {c: [Sample(time_of(c))] for c in list(domain())[:100]}
    machine = Table(steady)
    done, _, _ = run(machine, SearchOptions(confirm=0), "mcts", known=known)
    assert len(machine.asked) == 57
    assert not known.keys() & set(machine.asked)
    assert done.implementations == 157


def test_equal_work_is_measured_once() -> None:
    machine = Table(steady)
    done, _, _ = run(machine, SearchOptions(confirm=0), same=lambda c: str(c.space))
    assert len(machine.asked) == 2
    assert done.implementations == 2


def test_progress_is_told() -> None:
    reports: list[Progress] = []
    run(Table(steady), SearchOptions(budget=10, confirm=2, repeats=2), progress=reports.append)
    assert [p.measured for p in reports] == list(range(1, 15))
    assert [p.phase for p in reports] == ["search"] * 10 + ["confirm"] * 4
    assert all(a.best_value >= b.best_value for a, b in pairwise(reports[:10]))


class Clock:
    """Time that passes only where a machine measures: a measurement takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def measure(self, candidate: Candidate, turn: int) -> Sample:
        self.now += 1.0
        return steady(candidate, turn)


def test_time_is_kept_back_to_confirm_the_best() -> None:
    clock = Clock()
    machine = Table(clock.measure)
    done, store, _ = run(machine, SearchOptions(time=100.0, confirm=10, repeats=5), clock=clock)
    assert done.measurements == 99
    assert [call[2] for call in store.calls if call[0] == "add"] == ["search"] * 49 + ["confirm"] * 50
    assert done.confirmed
    assert done.measurements_of_best == 5


def test_passes_leave_time_to_confirm_too() -> None:
    clock = Clock()
    options = SearchOptions(budget=50, passes=3, time=100.0, confirm=4, repeats=5)
    done, _, _ = run(Table(clock.measure), options, clock=clock)
    assert done.confirmed
    assert done.measurements <= 100


def test_with_little_time_fewer_are_confirmed() -> None:
    """Half of the time at most: two of them, as often as it takes, rather than ten of them twice."""
    clock = Clock()
    machine = Table(clock.measure)
    done, _, _ = run(machine, SearchOptions(time=20.0, confirm=10, repeats=5), clock=clock)
    often = [machine.asked.count(c) for c in set(machine.asked)]
    assert sorted(often)[-3:] == [1, 6, 6]
    assert done.confirmed
    assert done.best == min(set(machine.asked), key=time_of)


def test_what_is_not_confirmed_says_so() -> None:
    clock = Clock()
    done, _, _ = run(Table(clock.measure), SearchOptions(time=2.0), clock=clock)
    assert not done.confirmed
    assert done.measurements_of_best < 5
    confirmed, _, _ = run(Table(steady), SearchOptions(budget=20, confirm=1, repeats=2))
    assert confirmed.confirmed


def test_the_slowest_is_judged_as_the_best_is() -> None:
    """One implementation is not faster than itself: what chose it is no longer counted."""
    done, _, _ = run(Table(lambda _, turn: Sample(3.0 if turn else 2.0)), SearchOptions(budget=1))
    assert (done.value, done.worst, done.lowest) == (3.0, 3.0, 2.0)


def test_the_display_shows_what_would_be_the_result() -> None:
    """The lowest single time is that of a candidate which is slow afterwards."""
    lucky = min(domain(), key=repr)

    def answer(candidate: Candidate, turn: int) -> Sample:
        return Sample(0.1) if candidate == lucky and turn == 0 else Sample(time_of(candidate) + (candidate == lucky))

    reports: list[Progress] = []
    done, _, _ = run(Table(answer), SearchOptions(confirm=5, repeats=5), progress=reports.append)
    last = reports[-1]
    assert (last.best, last.best_value, last.measurements_of_best) == (done.best, done.value, 5)
    assert done.lowest == pytest.approx(0.1)
    searching = [p for p in reports if p.phase == "search"]
    assert (searching[-1].best, searching[-1].measurements_of_best) == (lucky, 1)


def test_without_time_one_is_measured() -> None:
    done, _, _ = run(Table(steady), SearchOptions(time=0.0))
    assert (done.measurements, done.implementations) == (1, 1)


def test_without_time_what_fails_is_not_tried_for_ever() -> None:
    done, _, _ = run(Table(lambda candidate, number: Sample(failure="no")), SearchOptions(time=0.0))
    assert (done.measurements, done.best) == (3, None)


def test_replay_deals_every_pass_once() -> None:
    from dagc.lab.candidate import ConfiguredSpace
    from dagc.space import Space

    results = h200_results()
    where = Orders([ConfiguredSpace(results.implementations[0].configuration, Space(h200_graph()))])
    machine = ReplayMachine(results, where, seed=3)
    candidate = next(iter(where))
    times = [machine.measure(candidate).value for _ in range(5)]
    found = next(i for i in results.implementations if sorted(i.times(results.reference)) == sorted(times))
    assert len(found.samples) == machine.passes(candidate) == 5
    # The first may have chosen the candidate: what confirms it is another one.
    assert [machine.measure(candidate).value for _ in range(9)] == [*times[1:], *times[1:], times[1]]
    fresh = ReplayMachine(results, where, seed=3)
    seen = fresh.measure(candidate).value
    rest = sorted(set(times) - {seen})
    assert fresh.judged(candidate) == pytest.approx((rest[1] + rest[2]) / 2)


class Sure:
    """A strategy that proposes everything in order, and doubts less and less."""

    summary = "for tests"

    def __init__(self, where: Orders) -> None:
        self.left, self.asked = list(where)[::-1], 0

    def propose(self) -> Candidate | None:
        return self.left.pop() if self.left else None

    def observe(self, candidate: Candidate, sample: Sample) -> None:
        pass

    def doubt(self, share: float) -> float:
        assert share == 0.01
        self.asked += 1
        return (1.0, 0.01, 0.004, 0.2, 0.01, 0.01, 0.002)[min(self.asked - 1, 6)]


def test_a_search_ends_when_three_checks_in_a_row_expect_nothing_better() -> None:
    where, machine = domain(), Table(steady)
    done = explore(where, Sure(where), machine, Memory(), SearchOptions(until=0.01, confirm=0))
    assert done.measurements == 50  # checked after 20, 25, 30, ...
    assert done.doubt == LEFT  # the strategy says 0.002
    whole = explore(where, Sure(where), Table(steady), Memory(), SearchOptions(confirm=0))
    assert whole.measurements == where.size()
    assert math.isnan(whole.doubt)


# ---- several places -----------------------------------------------------------------------------


class Hosts:
    """Places of different speeds, with a store that only the searching thread may call."""

    def __init__(
        self, *speeds: float, fails: Callable[[int, int], bool] = lambda place, turn: False, beyond: float = 1.0
    ) -> None:
        """`beyond`: by how much the last one is slower than its reference says."""
        self.speeds, self.fails, self.beyond = speeds, fails, [*[1.0] * (len(speeds) - 1), beyond]
        self.lock, self.running, self.most = threading.Lock(), list[Candidate](), 0
        self.measured: list[tuple[int, Candidate]] = []
        self.kept: list[tuple[int, Candidate, Sample]] = []
        self.searching = threading.current_thread()

    def run(self, name: str | type[Knows], options: SearchOptions) -> Summary[Candidate]:
        where = domain()
        strategy = find(name)(where, 0) if isinstance(name, str) else name(where)
        (machine, store, _), *beside = [self.place(number) for number in range(len(self.speeds))]
        ready = [[], [MeasuringPlace(m, s, n) for m, s, n in beside]]  # they join after the first measurement

        def joining(_: bool) -> list[MeasuringPlace[Candidate]]:
            return ready.pop(0) if ready else []

        return explore(where, strategy, machine, store, options, joining=joining)

    def place(self, number: int) -> tuple[Host, HostStore, str]:
        return Host(self, number), HostStore(self, number), f"host {number}"


class Host:
    def __init__(self, hosts: Hosts, number: int) -> None:
        self.hosts, self.number, self.turn = hosts, number, 0

    def measure(self, candidate: Candidate) -> Sample:
        hosts, speed = self.hosts, self.hosts.speeds[self.number]
        with hosts.lock:
            self.turn += 1
            assert candidate not in hosts.running
            hosts.running.append(candidate)
            hosts.most = max(hosts.most, len(hosts.running))
        time.sleep(0.002)  # the others measure meanwhile
        with hosts.lock:
            hosts.running.remove(candidate)
            if hosts.fails(self.number, self.turn):
                raise RunFailed("the node is down")
            hosts.measured.append((self.number, candidate))
        return Sample(speed * hosts.beyond[self.number] * time_of(candidate), reference=speed, iterations=1)


class HostStore:
    def __init__(self, hosts: Hosts, number: int) -> None:
        self.hosts, self.number = hosts, number

    def begin(self, candidate: Candidate) -> Candidate:
        assert threading.current_thread() is self.hosts.searching
        return candidate

    def add(self, key: Candidate, sample: Sample) -> None:
        assert threading.current_thread() is self.hosts.searching
        self.hosts.kept.append((self.number, key, sample))


@pytest.mark.parametrize("name", names())
def test_several_places_measure_different_candidates_and_their_speeds_are_divided_out(name: str) -> None:
    hosts = Hosts(1.0, 1.2, 0.9)
    done = hosts.run(name, SearchOptions(budget=60, confirm=2, repeats=2))
    searched = [(number, c) for number, c, sample in hosts.kept if sample.purpose != CONFIRM]
    assert hosts.most > 1
    assert {number for number, _ in searched} == {0, 1, 2}
    assert len(searched) == 60
    fastest = min(time_of(c) for _, c, _ in hosts.kept)
    assert done.best is not None
    assert time_of(done.best) == pytest.approx(fastest)
    assert done.lowest / min(s.reference for *_, s in hosts.kept[:1]) == pytest.approx(fastest)
    assert done.references == {FIRST: 1.0, "host 1": 1.2, "host 2": 0.9}
    assert {number for number, _, sample in hosts.kept if sample.purpose == CONFIRM} == {0}  # under equal conditions


class Knows(Sure):
    """Expects what the first place measures, but for an error of its own."""

    def __init__(self, where: Orders) -> None:
        super().__init__(where)
        self.random = Random(0)

    def expected(self, candidate: Candidate) -> tuple[float, float]:
        return time_of(candidate) * self.random.gauss(1, 0.05), 0.05 * time_of(candidate)


@pytest.mark.parametrize("beyond", [1.0, 1.3])
def test_what_the_reference_does_not_say_of_a_place_is_divided_out(beyond: float) -> None:
    hosts = Hosts(1.0, 1.2, beyond=beyond)
    done = hosts.run(Knows, SearchOptions(budget=150, confirm=0))
    assert done.effects["host 1"] == pytest.approx(beyond, rel=0.08)
    assert done.effects[FIRST] == 1


def test_a_place_that_is_lost_loses_its_measurement_under_way_alone() -> None:
    hosts = Hosts(1.0, 1.0, 1.0, fails=lambda place, turn: place == 1 and turn == 5)
    done = hosts.run("exhaustive", SearchOptions(confirm=0))
    assert done.lost == (("host 1", "the node is down"),)
    assert (done.failures, done.implementations, done.measurements) == (0, 157, 157)
    assert sorted(sum(number == n for number, _ in hosts.measured) for n in range(3))[0] == 4
    assert len({c for _, c in hosts.measured}) == 157  # what it had begun, too, each once


def test_a_search_goes_on_without_the_first_place_and_ends_with_the_last() -> None:
    first = Hosts(1.0, 1.0, fails=lambda place, turn: place == 0 and turn == 2)
    done = first.run("random", SearchOptions(budget=30, confirm=1, repeats=3))
    assert done.lost == ((FIRST, "the node is down"),)
    assert {number for number, *_ in first.kept[5:]} == {1}
    with pytest.raises(RunFailed, match="the node is down"):
        Hosts(1.0, 1.0, fails=lambda place, turn: turn == 3).run("random", SearchOptions(budget=30))


def test_passes_are_measured_on_all_places() -> None:
    hosts = Hosts(1.0, 1.2)
    done = hosts.run("exhaustive", SearchOptions(passes=2, confirm=0))
    assert done.measurements == 2 * 157
    assert {number for number, *_ in hosts.kept[157:]} == {0, 1}

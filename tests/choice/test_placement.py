"""The placement of ops on devices: every way to find it, against all placements."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagc.base.errors import UsageError
from dagc.choice.placement import (
    DEVICE,
    HOST,
    DeviceLink,
    Placement,
    Problem,
    Solution,
    Transfer,
    Transfers,
    Value,
    fit_transfer,
    place,
    two_way,
)


def place_exhaustively(problem: Problem) -> float:
    """The cost of the best of all placements."""
    return min(map(problem.cost, itertools.product(range(problem.devices), repeat=len(problem.seconds))))


COSTS = st.integers(0, 20).map(float)


@st.composite
def problems(draw: st.DrawFn, devices: int = 2, most: int = 6) -> Problem:
    """Any graph, with ops that can run on one device only, values that several ops read, and loops (an op may read what
    a later one writes)."""
    n = draw(st.integers(1, most))
    rows = []
    for _ in range(n):
        row = [draw(COSTS) for _ in range(devices)]
        if draw(st.integers(0, 5)) == 0:
            only = draw(st.integers(0, devices - 1))
            row = [v if d == only else math.inf for d, v in enumerate(row)]
        rows.append(tuple(row))
    masks = st.integers(0, 2**devices - 1)
    values = []
    for _ in range(draw(st.integers(0, 2 * n))):
        moves = tuple(tuple(0.0 if a == b else draw(COSTS) for b in range(devices)) for a in range(devices))
        producer = draw(st.none() | st.integers(0, n - 1))
        readers = draw(st.lists(st.integers(0, n - 1), max_size=3))
        begins, ends = (tuple(d for d in range(devices) if mask >> d & 1) for mask in (draw(masks) or 1, draw(masks)))
        values.append(Value(producer, tuple(readers), moves, begins, ends))
    return Problem(tuple(rows), tuple(values))


def chain(cpu: list[float], gpu: list[float], transfers: list[float]) -> Problem:
    """The problem of the seed: data and results on the host, transfers[i] before op i and the last after all."""
    n = len(cpu)
    first = Value(None, (0,), two_way(transfers[0], transfers[0]))
    between = [Value(i - 1, (i,), two_way(transfers[i], transfers[i])) for i in range(1, n)]
    last = Value(n - 1, (), two_way(transfers[n], transfers[n]), ends=(HOST,))
    return Problem(tuple(zip(cpu, gpu, strict=True)), (first, *between, last))


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[float], list[float], list[float]]:
    n = draw(st.integers(1, 8))
    return tuple(draw(st.lists(COSTS, min_size=k, max_size=k)) for k in (n, n, n + 1))  # type: ignore[return-value]


def check(found: Solution, problem: Problem, best: float) -> None:
    assert (found.seconds, found.gap) == (pytest.approx(best, abs=1e-9), 0)
    assert problem.cost(found.placement) == pytest.approx(best, abs=1e-9)


@st.composite
def chains_of(draw: st.DrawFn, most: int) -> Problem:
    """A chain on two or three devices, each pair with a link of its own in each direction: data that begin and end
    anywhere, ops that can run on one device only, several values between two ops."""
    devices, n = draw(st.sampled_from((2, 3))), draw(st.integers(1, most))
    only = draw(st.lists(st.none() | st.integers(0, devices - 1), min_size=n, max_size=n))
    rows = tuple(tuple(draw(COSTS) if at in (None, d) else math.inf for d in range(devices)) for at in only)
    masks = st.sets(st.integers(0, devices - 1))
    values = []
    for i in draw(st.lists(st.integers(-1, n - 1), max_size=2 * n)):
        moves = tuple(tuple(0.0 if a == b else draw(COSTS) for b in range(devices)) for a in range(devices))
        readers = draw(st.sampled_from([(), (i + 1,)])) if i + 1 < n else ()
        begins = tuple(draw(masks)) or (HOST,)
        values.append(Value(i if i >= 0 else None, readers, moves, begins, tuple(draw(masks))))
    return Problem(rows, tuple(values))


@given(chains())
def test_a_chain_is_placed_as_well_as_by_all_placements(lists: tuple[list[float], list[float], list[float]]) -> None:
    problem = chain(*lists)
    check(place(problem), problem, place_exhaustively(problem))


@given(chains_of(most=5))
def test_a_chain_on_several_gpus_and_links_is_placed_as_well_as_by_all_placements(problem: Problem) -> None:
    """Without a search: no nodes are left for one."""
    check(place(problem, nodes=0), problem, place_exhaustively(problem))


@given(problems())
def test_a_graph_on_two_devices_is_placed_as_well_as_by_all_placements(problem: Problem) -> None:
    check(place(problem), problem, place_exhaustively(problem))


def test_graphs_of_any_times_are_placed_as_well_as_by_all_placements() -> None:
    """Seconds as measured."""
    draw = random.Random(17)
    for devices, n in ((2, 1), (2, 2), (2, 5), (2, 9), (2, 12), (3, 7)):
        rows = tuple(tuple(draw.expovariate(1e4) for _ in range(devices)) for _ in range(n))
        values = tuple(
            Value(
                draw.choice([None, draw.randrange(n)]), tuple(draw.sample(range(n), min(n, draw.randrange(4)))),
                tuple(tuple(draw.expovariate(1e4) for _ in range(devices)) for _ in range(devices)),
                draw.choice([(HOST,), (DEVICE,), (HOST, DEVICE)]), draw.choice([(), (HOST,)]),
            )
            for _ in range(2 * n)
        )  # fmt: skip
        problem = Problem(rows, values)
        check(place(problem), problem, place_exhaustively(problem))


def test_a_long_chain_is_placed_as_by_the_recurrences() -> None:
    draw = random.Random(3)
    cpu, gpu, transfers = ([draw.expovariate(1e3) for _ in range(k)] for k in (300, 300, 301))
    problem = chain(cpu, gpu, transfers)
    best = problem.cost(algorithm_2(cpu, gpu, transfers, as_printed=False))
    check(place(problem), problem, best)


@given(problems(devices=3, most=4))
def test_a_graph_on_three_devices_is_searched(problem: Problem) -> None:
    best = place_exhaustively(problem)
    check(place(problem), problem, best)
    few = place(problem, nodes=2)
    assert few.bound <= best + 1e-9 <= few.seconds + 2e-9
    assert problem.cost(few.placement) == pytest.approx(few.seconds, abs=1e-9)


def test_a_second_gpu_is_used_where_its_link_or_its_speed_pays() -> None:
    """The second GPU is the faster one of op 1. Over the host, its data take too long, over a link of the two they do
    not."""
    slow, fast = Transfer(1e-5, 1e10), Transfer(2e-6, 3e11)
    transfers = Transfers(slow, slow, (DeviceLink(1, 2, fast), DeviceLink(2, 1, fast)))
    for of, best in ((transfers, (1, 2, 1)), (Transfers(slow, slow), (1, 1, 1))):
        moves = of.moves(1e6, 3)
        values = (
            Value(None, (0,), moves), Value(0, (1,), moves), Value(1, (2,), moves), Value(2, (), moves, ends=(HOST,)),
        )  # fmt: skip
        problem = Problem(((1.0, 1e-4, 2e-4), (1.0, 3e-4, 2e-4), (1.0, 1e-4, math.inf)), values)
        assert place(problem).placement == best
        assert problem.transfers(best) == ((1, 1, 1, 1) if best == (1, 2, 1) else (1, 0, 0, 1))
    assert Transfers(slow, slow).between(1, 2) == Transfer(2e-5, 5e9)


def algorithm_2(cpu: list[float], gpu: list[float], transfers: list[float], *, as_printed: bool) -> Placement:
    """Algorithm 2 of the seed. As printed, line 16 reads the time on the CPU that line 15 has just overwritten."""
    on_cpu, on_gpu = [HOST], [DEVICE]
    least_cpu, least_gpu = cpu[0], gpu[0] + transfers[0]
    for i in range(1, len(cpu)):
        to_cpu = on_gpu if least_cpu > least_gpu + transfers[i] else on_cpu
        to_gpu = on_cpu if least_gpu > least_cpu + transfers[i] else on_gpu
        on_cpu, on_gpu = [*to_cpu, HOST], [*to_gpu, DEVICE]
        before = least_cpu
        least_cpu = cpu[i] + min(least_cpu, least_gpu + transfers[i])  # line 15
        least_gpu = gpu[i] + min(least_gpu, (least_cpu if as_printed else before) + transfers[i])  # line 16
    return tuple(on_gpu if least_cpu > least_gpu + transfers[-1] else on_cpu)


def test_line_16_of_the_printed_algorithm_is_wrong() -> None:
    """Op 0 is quick on the CPU, op 1 on the GPU: 0 + 1 + 10. Printed, the 100 of op 1 on the CPU takes the place of
    that 0, and the whole goes to the CPU."""
    cpu, gpu, transfers = [0.0, 100.0, 30.0], [95.0, 10.0, 30.0], [0.0, 1.0, 0.0, 0.0]
    problem = chain(cpu, gpu, transfers)
    assert place(problem).seconds == place_exhaustively(problem) == 41
    assert problem.cost(algorithm_2(cpu, gpu, transfers, as_printed=True)) == 130
    assert problem.cost(algorithm_2(cpu, gpu, transfers, as_printed=False)) == 41


def test_a_value_that_several_ops_read_is_moved_once() -> None:
    value = Value(0, (1, 2, 3), two_way(5, 5))
    problem = Problem(((1.0, math.inf), *[(math.inf, 1.0)] * 3), (value,))
    assert problem.cost((HOST, DEVICE, DEVICE, DEVICE)) == 4 + 5


def test_a_search_that_ends_early_states_its_gap() -> None:
    """Ops that want to be on different devices, each pair joined by a value: the bound without transfers is low."""
    pairs = [(a, b) for a in range(12) for b in range(a + 1, 12)]
    values = tuple(Value(a, (b,), ((0.0, 1.0, 1.0),) * 3) for a, b in pairs)
    rows = tuple(tuple(0.0 if d == i % 3 else 20.0 for d in range(3)) for i in range(12))
    few = place(Problem(rows, values), nodes=10)
    assert 0 < few.gap < 1
    assert few.bound < few.seconds


@pytest.mark.parametrize(
    ("seconds", "values", "text"),
    [
        (((math.inf, math.inf),), (), "op 0 can run on no device"),
        (((1.0, -1.0),), (), "the seconds"),
        (((1.0, math.nan),), (), "the seconds"),
        (((1.0, 1.0),), (Value(None, (3,), two_way(1, 1)),), "an op that does not exist"),
        (((1.0, 1.0),), (Value(None, (0,), two_way(1, 1), begins=()),), "nowhere at the start"),
        (((1.0, 1.0),), (Value(None, (0,), two_way(1, 1), ends=(2,)),), "a device that does not exist"),
        (((1.0, 1.0),), (Value(None, (0,), two_way(1, math.inf)),), "the moves"),
    ],
)
def test_what_cannot_be_placed_is_refused(
    seconds: tuple[tuple[float, ...], ...], values: tuple[Value, ...], text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        Problem(seconds, values)


@given(st.floats(1e-7, 1e-4), st.floats(1e8, 1e11), st.floats(0, 0.02))
def test_a_transfer_is_fitted_at_all_sizes(latency: float, bandwidth: float, noise: float) -> None:
    """Relative errors: a large copy does not hide the latency of small ones."""
    sizes = [4**k for k in range(1, 14)]
    exact = Transfer(latency, bandwidth)
    found = fit_transfer([(n, exact.seconds(n) * (1 + noise * (-1) ** k)) for k, n in enumerate(sizes)])
    for n in sizes:
        assert found.seconds(n) == pytest.approx(exact.seconds(n), rel=0.05)


@pytest.mark.parametrize("samples", [[(4, 1.0)], [(4, 1.0), (8, 0.0)], [(4, 2.0), (8, 1.0)]])
def test_transfers_that_cannot_be_fitted_are_refused(samples: list[tuple[int, float]]) -> None:
    with pytest.raises(UsageError, match="times of transfers"):
        fit_transfer(samples)

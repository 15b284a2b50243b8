"""placement.hpp against its Python counterpart."""

from __future__ import annotations

import math
import random
import subprocess
from pathlib import Path

import pytest

from dagc.choice.placement import DEVICE, HOST, Problem, Value, chain_of, place, two_way
from tests.runtime.programs import make


def draw_value(draw: random.Random, producer: int | None, readers: tuple[int, ...], exact: bool) -> Value:
    def seconds() -> float:
        return float(draw.randrange(20)) if exact else draw.expovariate(1e4)

    begins = draw.choice([(HOST,), (HOST,), (DEVICE,), (HOST, DEVICE)])
    return Value(producer, readers, two_way(seconds(), seconds()), begins, draw.choice([(), (), (HOST,)]))


def problem(draw: random.Random, n: int, *, chain: bool) -> Problem:
    """Whole numbers, which have many equal placements, or seconds as measured."""
    exact = draw.random() < 0.5
    rows = []
    for _ in range(n):
        host, device = (float(draw.randrange(20)) if exact else draw.expovariate(1e4) for _ in range(2))
        rows.append(draw.choice([(host, device)] * 6 + [(host, math.inf), (math.inf, device)]))
    if chain:
        values = [draw_value(draw, i, (i + 1,) if i + 1 < n else (), exact) for i in range(n)]
        values += [draw_value(draw, None, (draw.randrange(n),), exact) for _ in range(2)]
    else:
        values = [
            draw_value(
                draw,
                draw.choice([None, draw.randrange(n), draw.randrange(n)]),
                tuple(draw.randrange(n) for _ in range(draw.randrange(4))),
                exact,
            )
            for _ in range(draw.randrange(2 * n))
        ]
    return Problem(tuple(rows), tuple(values))


def text(problem: Problem) -> str:
    out = [str(len(problem.seconds)), *(f"{host} {device}" for host, device in problem.seconds)]
    out.append(str(len(problem.values)))
    for v in problem.values:
        producer = -1 if v.producer is None else v.producer
        sides = (HOST in v.begins, DEVICE in v.begins, HOST in v.ends)
        words = (producer, len(v.readers), *v.readers, v.moves[HOST][DEVICE], v.moves[DEVICE][HOST], *map(int, sides))
        out.append(" ".join(map(str, words)))
    return "\n".join(out)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("placement", tmp_path_factory.mktemp("placement"))


def test_the_same_seconds_as_in_python(program: Path) -> None:
    draw = random.Random(17)
    cases = [problem(draw, draw.randint(1, 12), chain=i % 2 == 0) for i in range(200)]
    cases += [problem(draw, 100, chain=i % 2 == 0) for i in range(6)]
    given = f"{len(cases)}\n" + "\n".join(map(text, cases))
    done = subprocess.run([program], input=given, capture_output=True, text=True, check=True)
    for case, line in zip(cases, done.stdout.splitlines(), strict=True):
        is_chain, *found = line.split()
        assert (is_chain == "1") == (chain_of(case) is not None)
        best = place(case).seconds
        for seconds, sides in (found[:2], found[2:]):
            assert float(seconds) == pytest.approx(case.cost(tuple(map(int, sides))), rel=1e-12, abs=0)
            assert float(seconds) == pytest.approx(best, rel=1e-9, abs=0)

"""C of rational programs at the ends of 64 bits: wraps around as NumPy's integers, never traps, never undefined."""

from __future__ import annotations

import itertools
import operator
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import sympy as sp
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dagc.cuda.expressions import symbol
from dagc.perf.cprint import HELPERS, to_c
from dagc.perf.lower import instructions
from dagc.perf.program import Assign, Branch, Number, RationalProgram
from tests.perf.programs import INTEGERS, Drawn, Values, integer_programs
from tests.tiers import examples

LOW, HIGH = -(2**63), 2**63 - 1
EXTREMES = (LOW, LOW + 1, -(2**32), -2, -1, 0, 1, 2, 2**31, HIGH - 1, HIGH)
CHECKED = ("-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all")
FLAGS = ("optimised", "checked")
WHOLE = st.one_of(st.sampled_from(EXTREMES), st.integers(LOW, HIGH))
POINTS = st.lists(st.fixed_dictionaries({p.name: WHOLE for p in INTEGERS}), min_size=6, max_size=6)
_counter = itertools.count()

# GCC 12 takes the second quotient for the negative of the first, also where k is INT64_MIN, whose negative is itself:
# a fault of its value numbering. What it would make of quotients at this end says nothing of the emitted C.
FAULT = """
#include <stdint.h>
int main(void) {
  static volatile int64_t end = INT64_MIN;
  const int64_t k = end;
  const volatile int64_t a = k / 97, b = (int64_t)(0 - (uint64_t)k) / 97;
  return a != b;
}
"""
WITHOUT_FAULT = ("-fno-tree-fre", "-fno-tree-pre", "-fno-code-hoisting")


def wrapped(value: int) -> int:
    """Modulo 2^64, signed."""
    return (value - LOW) % 2**64 + LOW


def python(program: RationalProgram, point: Values) -> int:
    """The instructions by Python's own integers, each result wrapped."""
    operations: dict[str, Callable[..., Any]] = {
        "add": operator.add, "sub": operator.sub, "mul": operator.mul, "min": min, "max": max, "copy": lambda a: a,
        "floordiv": lambda a, b: a // b if b else 0, "ceildiv": lambda a, b: -(-a // b) if b else 0,
        "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq,
        "ne": operator.ne, "and": operator.and_, "or": operator.or_, "not": operator.not_,
        "select": lambda test, then, other: then if test else other,
        "real": float, "div": lambda a, b: a / b if b else 0.0,
    }  # fmt: skip
    values: Values = dict(point)
    for i in instructions(program):
        found = operations[i.operation](*(values[a] if isinstance(a, str) else a for a in i.args))
        values[i.name] = wrapped(found) if i.number is Number.INTEGER else found
    return int(values[i.name])


@cache
def optimised() -> tuple[str, ...]:
    """Flags of the optimised programs, without the optimisations in which this machine's gcc is wrong."""
    with TemporaryDirectory() as folder:
        binary = Path(folder, "fault")
        command = ["gcc", "-x", "c", "-std=c99", "-O2", "-", "-o", str(binary)]
        subprocess.run(command, input=FAULT, text=True, check=True)
        right = subprocess.run([binary], check=False).returncode == 0
    return ("-O2",) if right else ("-O2", *WITHOUT_FAULT)


def in_c(programs: Sequence[RationalProgram], points: Sequence[Values], folder: Path, how: str) -> list[list[int]]:
    """Each program at each point, by a process of its own: what traps or is undefined ends it with an error."""
    names = [p.name for p in INTEGERS]
    rows = ", ".join("{" + ", ".join(_literal(point[n]) for n in names) + "}" for point in points)
    lines = [
        "#include <inttypes.h>", "#include <stdio.h>", HELPERS,
        *(to_c(program, f"f{i}") for i, program in enumerate(programs)),
        f"static volatile int64_t points[{len(points)}][{len(names)}] = {{{rows}}};",
        f"int main(void) {{ for (int i = 0; i < {len(points)}; ++i) {{",
        f"  const int64_t {', '.join(f'{n} = points[i][{k}]' for k, n in enumerate(names))};",
        *(
            f'  printf("%" PRId64 "\\n", f{i}({", ".join(p.name for p in program.parameters)}));'
            for i, program in enumerate(programs)
        ),
        "} return 0; }",
    ]  # fmt: skip
    number = next(_counter)
    source, binary = folder / f"extreme{number}.c", folder / f"extreme{number}"
    source.write_text("\n".join(lines))
    flags = [
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-ffp-contract=off",
        *(optimised() if how == "optimised" else CHECKED),
    ]
    subprocess.run(["gcc", *flags, str(source), "-o", str(binary)], check=True, capture_output=True, text=True)
    done = subprocess.run([binary], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    found = [int(word) for word in done.stdout.split()]
    return [found[i :: len(programs)] for i in range(len(programs))]


def _literal(value: int) -> str:
    return "INT64_MIN" if value == LOW else f"INT64_C({value})"


def program(*body: Assign | Branch) -> RationalProgram:
    return RationalProgram("p", INTEGERS, body, "y", "", "here")


def whole(value: sp.Expr) -> Assign:
    return Assign("y", value, Number.INTEGER)


@pytest.mark.parametrize("how", FLAGS)
def test_quotients_at_the_ends(how: str, tmp_path: Path) -> None:
    n, m = symbol("n"), symbol("m")
    programs = [program(whole(sp.floor(n / m))), program(whole(sp.ceiling(n / m)))]
    points = [{"n": a, "m": b, "k": 1} for a, b in itertools.product(EXTREMES, EXTREMES)]
    assert in_c(programs, points, tmp_path, how) == [[python(p, point) for point in points] for p in programs]


@pytest.mark.parametrize("how", FLAGS)
def test_a_divisor_that_overflows_to_zero_is_seen(how: str, tmp_path: Path) -> None:
    """A compiler that takes signed sums for exact would know the divisor to be positive, and divide by zero."""
    n, m, k = symbol("n"), symbol("m"), symbol("k")
    divisors = [n + m + 2, n * m, 2 * n + 2]
    programs = [
        program(Branch((((n > 0) & (m > 0), (whole(rounded(k / divisor)),)),), (whole(k),)))
        for divisor in divisors
        for rounded in (sp.floor, sp.ceiling)
    ]
    points = [{"n": HIGH, "m": HIGH, "k": 7}, {"n": 2**32, "m": 2**32, "k": 7}, {"n": 3, "m": 4, "k": 90}]
    expected = [[python(p, point) for point in points] for p in programs]
    assert expected[0] == [0, 7 // (2**33 + 2), 10]  # the first divisor is 2^64
    assert in_c(programs, points, tmp_path, how) == expected


@given(drawn=st.lists(integer_programs(wild=True), min_size=12, max_size=12), points=POINTS)
@settings(
    max_examples=examples(3),
    deadline=None,
    phases=[Phase.generate],  # a smaller example would take minutes of compiling to find
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_c_is_python_modulo_64_bits(
    drawn: list[Drawn], points: list[Values], tmp_path_factory: pytest.TempPathFactory
) -> None:
    programs, folder = [d.program for d in drawn], tmp_path_factory.mktemp("extreme")
    expected = [[python(p, point) for point in points] for p in programs]
    for how in FLAGS:
        assert in_c(programs, points, folder, how) == expected, how

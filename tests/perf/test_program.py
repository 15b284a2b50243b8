"""What is a rational program and what is not; constants put in; text, LaTeX, C and flow charts of the occupancy."""

from __future__ import annotations

import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import sympy as sp

from dagc.base.errors import UsageError
from dagc.cuda.expressions import symbol
from dagc.perf.algebra import specialise
from dagc.perf.cprint import HELPERS, to_c
from dagc.perf.evaluate import PartialEvaluator, evaluate, evaluate_all
from dagc.perf.lower import instructions
from dagc.perf.occupancy import occupancy_program
from dagc.perf.program import Assign, Branch, NotRational, Number, Parameter, ParameterKind, RationalProgram, Statement
from dagc.perf.text import to_flow, to_flow_svg, to_latex, to_text
from tests.conftest import Compare
from tests.perf.programs import CLibrary

GOLDEN = Path(__file__).parents[1] / "golden/perf"
DOCS = Path(__file__).parents[2] / "docs"
N, M, X = symbol("n"), symbol("m"), sp.Symbol("x", real=True)
PARAMETERS = (
    Parameter("n", ParameterKind.DATA, Number.INTEGER),
    Parameter("m", ParameterKind.HARDWARE, Number.INTEGER),
    Parameter("x", ParameterKind.PROGRAM, Number.REAL),
)
WHICH = pytest.mark.parametrize("plain", [True, False])


def integer(name: str, value: object) -> Assign:
    return Assign(name, sp.sympify(value), Number.INTEGER)


def program(*body: Statement, result: str = "y") -> RationalProgram:
    return RationalProgram("p", PARAMETERS, body, result, "s", "here")


def real(value: object) -> RationalProgram:
    return program(Assign("y", sp.sympify(value), Number.REAL))


# ---- what is refused -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ((integer("y", symbol("z")),), "`z` is used before it is assigned"),
        ((integer("z", N),), "`y` is never assigned"),
        ((integer("y", N), integer("y", M)), "`y` is assigned twice"),
        ((integer("n", M), integer("y", M)), "`n` is assigned twice"),
        ((Branch(((N < M, (integer("y", N),)),), (integer("z", M),)),), "not every path assigns `y`"),
        ((Branch(((symbol("z") < M, (integer("y", N),)),), (integer("y", M),)),), "`z` is used before"),
    ],
)
def test_names_are_checked(body: tuple[Statement, ...], message: str) -> None:
    with pytest.raises(NotRational, match=message):
        program(*body)


def test_a_parameter_is_named_once() -> None:
    with pytest.raises(NotRational, match="two parameters"):
        RationalProgram("p", (*PARAMETERS, PARAMETERS[0]), (integer("y", N),), "y", "", "")


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (sp.sin(X), "sin"),
        (sp.log(X), "log"),
        (sp.sqrt(X), "a power that is not an integer"),
        (X**N, "a power that is not an integer"),
        (sp.Abs(X), "Abs"),
        (sp.Mod(N, M), "Mod"),
        (sp.floor(X), "only quotients of integers are rounded"),
        (sp.Piecewise((N, N < M)), "a Piecewise without an end"),
        (sp.pi * X, "Pi"),
        (sp.zoo, "a division by the constant zero"),
    ],
)
def test_what_is_no_operation_of_the_language_is_named(value: sp.Expr, word: str) -> None:
    with pytest.raises(NotRational, match=word):
        instructions(real(value))


def test_a_real_number_is_no_integer() -> None:
    with pytest.raises(NotRational, match="a real number where an integer is expected"):
        instructions(program(integer("y", N / M)))


def test_a_parameter_without_a_value() -> None:
    with pytest.raises(UsageError, match="no value for `m`"):
        evaluate(program(integer("y", N + M)), {"n": 1, "x": 0.5})


# ---- what programs mean ----------------------------------------------------------------


def test_rounded_quotients_of_negative_numbers() -> None:
    n, m = np.meshgrid(np.arange(-7, 8), np.array([-3, -2, 2, 3]))
    values = {"n": n, "m": m, "x": 0.0}
    assert (evaluate(program(integer("y", sp.floor(N / M))), values) == n // m).all()
    assert (evaluate(program(integer("y", sp.ceiling(N / M))), values) == -(-n // m)).all()


def test_a_division_by_zero_is_zero() -> None:
    values = {"n": np.array([5, 5]), "m": np.array([0, 2]), "x": np.array([0.0, 2.0])}
    assert evaluate(program(integer("y", sp.floor(N / M))), values).tolist() == [0, 2]
    assert evaluate(real(1 / X), values).tolist() == [0.0, 0.5]


def test_branches_in_order() -> None:
    branch = Branch(
        ((N < 3, (integer("z", N), integer("y", symbol("z") * 2))), (N < 5, (integer("y", M), integer("z", 0)))),
        (integer("z", 1), integer("y", symbol("z") + N)),
    )
    values = {"n": np.arange(7), "m": 100, "x": 0.0}
    assert evaluate(program(branch), values).tolist() == [0, 2, 4, 100, 100, 6, 7]


def test_equal_expressions_are_computed_once() -> None:
    body = (integer("a", N * M + 1), integer("b", N * M + 2), integer("y", symbol("a") + symbol("b")))
    code = instructions(program(*body))
    assert [i.operation for i in code].count("mul") == 1


def test_what_is_known_is_computed_first() -> None:
    made = PartialEvaluator(program(integer("a", M * M), integer("y", N + symbol("a"))), {"m": 7, "x": 0.0})
    assert [i.operation for i in made.left if i.operation != "copy"] == ["add"]
    assert [made({"n": n}) for n in (1, 2)] == [50, 51]


def test_all_steps() -> None:
    found = evaluate_all(program(integer("a", N * 2), integer("y", symbol("a") + 1)), {"n": 3, "m": 0, "x": 0.0})
    assert (found["a"], found["y"]) == (6, 7)


# ---- constants put in ------------------------------------------------------------------


def test_decided_branches_are_cut() -> None:
    branch = Branch(((M < 3, (integer("y", N),)), (M < 5, (integer("y", N * 2),))), (integer("y", N * 3),))
    bodies = {m: specialise(program(branch), {"m": m}).body for m in (2, 4, 9)}
    assert bodies == {2: (integer("y", N),), 4: (integer("y", N * 2),), 9: (integer("y", N * 3),)}


def test_constants_are_folded() -> None:
    left = specialise(program(integer("y", N * sp.floor(M / 3))), {"m": 10, "x": 2.5})
    assert left.body == (integer("y", 3 * N),)
    assert [p.name for p in left.parameters] == ["n"]


@pytest.mark.parametrize("value", [sp.floor(N / M), sp.Piecewise((N, M < 1), (sp.floor(N / M), True))])
def test_zero_is_put_in_below_the_line(value: sp.Expr) -> None:
    whole = program(integer("y", value))
    values = {"n": 5, "m": 0, "x": 0.0}
    assert evaluate(specialise(whole, {"m": 0}), {"n": 5, "x": 0.0}) == evaluate(whole, values)


# ---- what is written -------------------------------------------------------------------


@WHICH
def test_golden_files_of_the_occupancy(plain: bool, golden: Compare) -> None:
    occupancy, name = occupancy_program(plain=plain), "occupancy-plain" if plain else "occupancy"
    golden(GOLDEN / f"{name}.c", HELPERS + to_c(occupancy, "active_blocks"))
    golden(GOLDEN / f"{name}.txt", to_text(occupancy))
    golden(GOLDEN / f"{name}.tex", to_latex(occupancy))
    golden(GOLDEN / f"{name}.dot", to_flow(occupancy))


def test_the_picture_of_the_page(golden: Compare) -> None:
    golden(DOCS / "images" / "occupancy.svg", to_flow_svg(occupancy_program(plain=True)))


def test_the_example_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    page = (DOCS / "explanation" / "rational-programs.md").read_text("utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (_, code), (_, output) = blocks
    exec(compile(code, "rational.md", "exec"), {})
    assert capsys.readouterr().out.strip() == output.strip()


@WHICH
def test_the_occupancy_in_c(plain: bool, tmp_path: Path) -> None:
    occupancy = occupancy_program(plain=plain)
    library = CLibrary([occupancy], tmp_path)
    random = np.random.default_rng(1)
    hardware = {
        "Rmax": 65536, "Zmax": 233472, "Tmax": 1024, "Bmax": 32, "Wmax": 64,
        "Runit": 256, "Wunit": 4, "Zunit": 128, "Zreserved": 1024,
    }  # fmt: skip
    launches = {"T": random.integers(1, 1200, 500), "R": random.integers(0, 256, 500)}
    launches["Z"] = random.integers(0, 240_000, 500) * random.integers(0, 2, 500)
    blocks = evaluate(occupancy, {**hardware, **launches})
    for i in range(500):
        launch = {name: int(values[i]) for name, values in launches.items()}
        assert library.call(0, {**hardware, **launch}) == blocks[i]


@pytest.mark.parametrize("command", [["gcc", "-std=c99"], ["g++", "-std=c++17", "-x", "c++"]])
def test_c_without_warnings(command: list[str], tmp_path: Path) -> None:
    mixed = sp.Piecewise((X / N, sp.And(N > 3, sp.Or(X < 1, M > 2))), (sp.Min(X, 2) - sp.Max(N, M), True))
    unused = integer("z", N * M)
    text = [HELPERS, HELPERS, to_c(program(unused, Assign("y", mixed, Number.REAL)), "f"), to_c(real(2.5), "g")]
    text += [to_c(occupancy_program(plain=plain), f"h{plain}") for plain in (False, True)]
    source = tmp_path / "p.c"
    source.write_text("\n".join([*text, "double use(int64_t n) { return f(n, 2, 0.5) + g(n, 2, 0.5); }", ""]))
    done = subprocess.run(
        [*command, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_values_that_no_program_uses_are_not_in_c() -> None:
    text = to_c(program(integer("z", N * M), integer("y", N)), "f")
    assert "*" not in text.split("{")[1]


@WHICH
def test_the_flow_chart_shows_every_condition_and_step(plain: bool) -> None:
    occupancy = occupancy_program(plain=plain)
    (branch,) = (s for s in occupancy.body if isinstance(s, Branch))
    dot = to_flow(occupancy)
    assert dot.count("shape=diamond") == len(branch.cases)
    assert dot.count('[label="yes"]') == dot.count('[label="no"]') == len(branch.cases)
    svg = to_flow_svg(occupancy)
    tree = ET.fromstring(svg)
    assert len(tree.findall(".//{*}polygon")) == len(branch.cases)
    assert len([t for t in tree.iter() if t.text == "yes"]) == len(branch.cases)
    texts = {t.text for t in tree.findall(".//{*}text")}
    assert {"Bactive = Bmax", "Bactive = 0"} <= texts


def _corners(svg: str) -> tuple[list[tuple[float, float, float, float]], float, float]:
    """Boxes and diamonds as left, top, right, bottom; width and height of the picture."""
    tree = ET.fromstring(svg)
    boxes = []
    for rect in tree.findall(".//{*}rect")[1:]:
        left, top = float(rect.attrib["x"]), float(rect.attrib["y"])
        boxes.append((left, top, left + float(rect.attrib["width"]), top + float(rect.attrib["height"])))
    for polygon in tree.findall(".//{*}polygon"):
        points = [tuple(map(float, p.split(","))) for p in polygon.attrib["points"].split()]
        xs, ys = zip(*points, strict=True)
        boxes.append((min(xs), min(ys), max(xs), max(ys)))
    return boxes, float(tree.attrib["width"]), float(tree.attrib["height"])


def nested() -> RationalProgram:
    """Branches in a branch, on its paths and after its conditions."""
    inner = Branch(((N > M, (integer("y", N),)), (sp.Eq(N, 3), (integer("y", M),))), (integer("y", 1),))
    outer = Branch(((M < 7, (integer("k", N + 1), inner)), (M < 9, (inner, integer("k", M)))), (integer("k", 2), inner))
    return program(integer("a", N * M), outer, integer("r", symbol("y") + symbol("k")), result="r")


@pytest.mark.parametrize("which", [occupancy_program(plain=True), occupancy_program(plain=False), nested()])
def test_nothing_in_the_picture_overlaps_or_leaves_it(which: RationalProgram) -> None:
    boxes, width, height = _corners(to_flow_svg(which))
    for i, a in enumerate(boxes):
        assert 0 <= a[0] < a[2] <= width
        assert 0 <= a[1] < a[3] <= height
        for b in boxes[:i]:
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]

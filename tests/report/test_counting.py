"""The counting report: each lowering and choice, and the whole."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import reduce
from math import comb
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc import api
from dagc.base.errors import ProgramError
from dagc.base.signals import Deadline
from dagc.base.source import Source
from dagc.ir.choice import Choice
from dagc.ir.constraints import TooManyAssignments, assignments, condition, configuration_of, may_hold
from dagc.ir.program import Value
from dagc.ir.sym import Apply, Const, Fn, Var
from dagc.lang.lower import lower, parse_with_includes
from dagc.passes import build_graph
from dagc.report import si
from dagc.report.counting import CountReport, as_json, as_text, count_report
from dagc.report.display import Display, Phase
from dagc.space import Counter, Space
from dagc.stages.program import read
from tests.tiers import examples, representatives

SAMPLES = Path(__file__).parents[2] / "samples"
SPMV = SAMPLES / "spmv/spmv.dag"


def test_each_lowering_has_a_line() -> None:
    report = api.count(SPMV)
    lines = {line.label: line.count for line in report.lines}
    assert lines == {
        "transport=mpi_host staging=fused": 2036,
        "transport=mpi_host staging=ops": 23450,
        "transport=mpi_cuda": 2036,
        "transport=nccl": 96,
        "transport=peer": 96,
    }
    # yl and yr: two implementations, four blocks each.
    assert dict(report.per_op) == {"yl": 8, "yr": 8}
    assert report.whole == (2036 + 23450 + 2036 + 96 + 96) * 8 * 8


def test_a_choice_that_is_made_is_not_open() -> None:
    report = api.count(SPMV, {"transport": "mpi_cuda", "yl.variant": "warp_per_row", "yl.block": "64"})
    assert report.count == 2036
    assert dict(report.per_op).get("yl", 1) == 1
    assert dict(report.per_op)["yr"] == 8
    assert "staging" not in dict(report.choices)


# Not the halo exchange, which takes seconds: it is counted in the tests of the command line.
LARGE = ("halo3d", "heat", "jacobi", "pipeline", "tridiag")  # these take half a minute
COUNTED = [path for path in sorted(SAMPLES.glob("*/*.dag")) if path.stem not in LARGE]
QUICK = [path for path in COUNTED if path.stem != "cg"]  # which takes as long as all others


@pytest.mark.parametrize("path", representatives(COUNTED, *QUICK), ids=lambda path: path.stem)
def test_json_says_the_same_as_the_text(path: Path) -> None:
    report = api.count(path)
    record = json.loads(as_json(report))
    assert record["count"] == report.count > 0
    number = rf"{record['count']}( \([\d.]+e\d+\))?"  # a large one also in short
    assert re.match(rf"{number} implementations? of {record['program']}\b", as_text(report))
    assert [line["count"] for line in record["lines"]] == [line.count for line in report.lines]
    for line in record["lines"]:
        assert (line["count"] is None) == bool(line["note"])
    assert (record["whole"] is None) == bool(record["whole_note"])
    if record["whole"] is not None:
        assert record["whole"] >= record["count"]


def test_a_combination_with_too_many_states_has_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagc.report.counting.VARIATION_WORK", 1)
    report = api.count(SPMV)
    assert (report.whole, report.whole_note) == (None, "a combination has too many states")
    assert any(line.note.endswith("too many states; alone: -D transport=nccl") for line in report.lines)


def test_large_numbers_are_exact() -> None:
    """Beyond 64 bits, in JSON too."""
    count = 5367658504764649454197598361600000
    report = api.count(SPMV)
    assert json.loads(as_json(replace(report, count=count)))["count"] == count


class Late(Phase):
    """It is the clock: `late` seconds have passed as soon as this many states are counted."""

    def __init__(self, late: float, states: int = 0) -> None:
        super().__init__("counting")
        self.late, self.states, self.now = late, states, 0.0

    def at(self, done: int, total: int | None = None, detail: str = "") -> None:
        if done >= self.states:
            self.now = self.late


class Shown(Display):
    """Any part of the work is this phase."""

    def __init__(self, shown: Late) -> None:
        super().__init__(quiet=True)
        self.shown = shown

    @contextmanager
    def phase(self, what: str, total: int | None = None, unit: str = "") -> Iterator[Phase]:
        yield self.shown


def counted_within(seconds: float, late: Late, path: Path, defines: dict[str, str]) -> CountReport:
    return count_report(read(path, defines).graph, Shown(late), Deadline.after(seconds, lambda: late.now))


def test_a_count_that_is_cut_prints_a_lower_bound() -> None:
    report = counted_within(9, Late(10.0, 1000), SAMPLES / "halo3d/halo3d.dag", {"transport": "mpi_cuda"})
    assert report.count is None
    assert report.states >= 1000
    assert 0 < report.more_than < 5367658504764649454197598361600000
    assert as_text(report).startswith(f"more than {si.about(report.more_than)} implementations (cut after ")
    assert json.loads(as_json(report))["count"] is None
    # The time is that of the whole command: no variation is counted after it.
    assert {line.note for line in report.lines} == {"not counted: stopped by --time"}
    assert report.whole_note == "stopped by --time"


@pytest.mark.parametrize(
    ("defines", "seconds"),
    [({"transport": "mpi_cuda"}, 6.0), ({"transport": "mpi_host", "staging": "fused"}, 6.0), ({}, 3.0)],
)
def test_variations_get_half_of_the_time(defines: dict[str, str], seconds: float) -> None:
    """The count of the graph may take all of it where no other choice is left."""
    assert counted_within(6.0, Late(seconds - 0.1), SPMV, defines).count == 2036
    assert counted_within(6.0, Late(seconds + 0.1), SPMV, defines).count is None


def test_lowerings_with_equal_edges_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted_ = []
    total = Counter.total
    monkeypatch.setattr(Counter, "total", lambda self: counted_.append(self.moves) or total(self))
    api.count(SPMV)
    assert len(counted_) == len(set(counted_)) == 3  # mpi_host fused and mpi_cuda, staging=ops, nccl and peer


def test_the_time_begins_with_the_command(tmp_path: Path) -> None:
    """Thousands of ops: reading them takes all of the time, and neither symmetries nor states are searched."""
    (tmp_path / "a.dag").write_text(
        "program a param rows : i64 = 10 for i in 0..2500 { array a[i] : f32[rows] inout }\n"
        'kernel k(q: inout f32[n], n: i64) { gpu { launch grid(1) block(32) cuda """ q[0] = 1; """ } }\n'
        "dag { for i in 0..2500 { o[i] : gpu k(a[i], rows) } }\n"
    )
    report = api.count(tmp_path / "a.dag", seconds=0.2)
    assert (report.count, report.states, report.whole_note) == (None, 0, "stopped by --time")


# ---- against enumeration ----


def enumerated(text: str) -> int:
    """Traversals of all programs that the choices give, each lowered by itself."""
    parsed = parse_with_includes(Source("p.dag", text))
    counts: dict[Choice, int] = {}

    def choose(defines: dict[str, Value]) -> None:
        with suppress(ProgramError):
            program = lower(parsed, defines)
            undecided = next((d for d in program.decisions if len(d.values) > 1), None)
            if undecided is None:
                graph = build_graph(program)
                counts.setdefault(configuration_of(graph), Space(graph).count())
            else:
                for value in undecided.values:
                    choose({**defines, undecided.name: value})

    choose({})
    return sum(counts.values())


DECISIONS = {
    "p0": "tune p0 in {1, 2, 3}",
    "p1": "tune p1 in {1, 2, 4}",
    "p2": "tune p2 in {0, 2}",
    "extra": "tune extra in {false, true}",
    "streams": "tune streams in {1, 2}",
    "transport": "tune transport in {mpi_host, peer}",
}
NUMBERS = ["p0", "p1", "p2", "streams", "n", "m", "2", "3", "(extra ? 1 : 3)"]
SUMS = st.recursive(
    st.sampled_from(NUMBERS),
    lambda inner: st.tuples(inner, st.sampled_from("+*-"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
    max_leaves=3,
)
CONDITIONS = st.tuples(SUMS, st.sampled_from(["<=", "<", "==", "!="]), SUMS).map(" ".join)
IN_KERNEL = st.sampled_from(["q * bx <= 128", "q <= p0", "bx * p1 <= 128", "q * p2 < 4 || bx == 32", "q != 2"])
BLOCKS = st.sampled_from(["bx", "bx * q", "64 * p1 * q", "400 * p0", "bx, p0"])
SLICES = st.sampled_from(["a, b", "a[0 .. 8 * p0], b[0 .. 8 * p0]", "a, b, bx = 32"])


@st.composite
def coupled_programs(draw: st.DrawFn) -> str:
    """Ops of one kernel and a message, under decisions that `require`s connect."""
    used = draw(st.lists(st.sampled_from(sorted(DECISIONS)), min_size=2, max_size=3, unique=True))
    declared = "\n".join(DECISIONS[name] if name in used else f"let {name} = {OTHERWISE[name]}" for name in OTHERWISE)
    declared += "\n" + "\n".join(DECISIONS[name] for name in ("streams", "transport") if name in used)
    conditions = "\n".join(f"require {c}" for c in draw(st.lists(CONDITIONS, min_size=1, max_size=3)))
    conditions = conditions if "streams" in used else conditions.replace("streams", "2")
    second = f"gpu two {{ tune r in {{1, 2}} require r + q <= {draw(st.integers(1, 4))} {LAUNCH % '32'} }}"
    exchange = "e : mpi exchange { send c to (rank + 1) % ranks recv b from (rank + ranks - 1) % ranks }"
    return f"""program p
param n : i64 = {draw(st.integers(1, 4))}
scalar m : i64
{declared}
{conditions}
array a, b, c : f64[64] inout
kernel k(y: inout f64[*], x: in f64[*]) {{
  tune bx in {{32, 64}}
  tune q in {{1, 2}}
  require {draw(IN_KERNEL)}
  gpu one {{ {LAUNCH % draw(BLOCKS)} }}
  {second if draw(st.booleans()) else ""}
}}
dag {{
  o1 : gpu k({draw(SLICES)})
  if extra {{ o2 : gpu k(b[16 .. 24], c) }} else {{ o3 : gpu k(b[16 .. 24], c, q = 1) }}
  {exchange if "transport" in used else ""}
}}
"""


OTHERWISE = {"p0": "2", "p1": "1", "p2": "0", "extra": "false"}
LAUNCH = 'launch grid(1) block(%s) cuda """ ; """'


@settings(max_examples=examples(12), deadline=None)
@given(coupled_programs())
def test_the_count_is_the_number_of_what_the_choices_give(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "coupled.dag"
    path.write_text(text)
    try:
        report = api.count(path)
    except ProgramError:
        assert enumerated(text) == 0
        return
    assert report.whole == enumerated(text)
    assert report.whole_note == ""


def test_requires_that_connect_choices_of_any_number() -> None:
    """Only the choices that a condition names are enumerated together."""
    chain = {f"t{k}": (1, 2, 3, 4) for k in range(60)}
    ascending = [condition(Apply(Fn.LE, (Var(f"t{k}"), Var(f"t{k + 1}"))), may_hold) for k in range(59)]
    assert assignments(chain, ascending) == comb(60 + 3, 3)
    assert assignments(chain, ()) == 4**60
    with pytest.raises(TooManyAssignments):
        sum_ = reduce(lambda a, b: Apply(Fn.ADD, (a, b)), [Var(name) for name in chain])
        assignments(chain, [condition(Apply(Fn.LE, (sum_, Const(100))), may_hold)])


def test_the_text_says_how_many_combinations_are_left(tmp_path: Path) -> None:
    path = tmp_path / "w.dag"
    choices = "tune layout in {0, 1, 2}\ntune chunk in {1, 2}\nrequire chunk * (layout + 1) <= 4"
    kernel = f"kernel k(y: inout f64[8]) {{ gpu {{ {LAUNCH % '32 * (layout + 1)'} }} }}"
    path.write_text(f"program w\n{choices}\narray a : f64[8] inout\n{kernel}\ndag {{ o : gpu k(a) }}\n")
    report = api.count(path)
    assert (report.count, report.whole) == (1, 5)
    assert as_text(report).splitlines()[1:] == [
        "variants and tunables, for each of them: layout 3, chunk 2: 5 of 6 satisfy the `require`s",
        "whole space: 5",
    ]


def test_the_default_is_an_implementation_with_a_legal_choice(tmp_path: Path) -> None:
    """Where a decision leaves the first implementation no legal tunables, the next one is the default."""
    path = tmp_path / "w.dag"
    first = f"gpu one {{ tune r in {{1, 2}} require r >= layout {LAUNCH % '32'} }}"
    second = f"gpu two {{ tune s in {{3, 4, 5}} {LAUNCH % '32'} }}"
    path.write_text(
        "program w\ntune layout in {1, 2, 3}\narray a : f64[8] inout\n"
        f"kernel k(y: inout f64[8]) {{ {first} {second} }}\ndag {{ o : gpu k(a) }}\n"
    )
    assert api.count(path).whole == (2 + 3) + (1 + 3) + 3
    assert dict(api.load(path, {"layout": 3}).ops[0].tunables) == {"s": 3}  # type: ignore[union-attr]
    assert api.load(path, {"layout": 2}).ops[0].variant == "one"  # type: ignore[union-attr]


CHUNKS = """program chunks
for c in 0..4 { array a[c], b[c] : f64[64] inout }
array sum : f64[64] inout
kernel work(y: out f64[64], x: in f64[64]) { gpu { launch grid(1) block(64) cuda \"\"\" ; \"\"\" } }
kernel add(y: inout f64[64], x: in f64[64]) { gpu { launch grid(1) block(64) cuda \"\"\" ; \"\"\" } }
dag {
  for c in 0..4 {
    work[c] : gpu work(b[c], FROM)
    add[c]  : gpu add(sum, b[c])
  }
}
"""


def test_a_loop_whose_rounds_could_overlap_is_noted(tmp_path: Path) -> None:
    """The first op of a chunk waits for no other chunk, which is lost in a loop of one order."""
    path = tmp_path / "chunks.dag"
    path.write_text(CHUNKS.replace("FROM", "a[c]"))
    (note,) = api.count(path).loops
    assert note.endswith("; work[c] waits for no earlier round, and only --unroll has orders in which they overlap")
    path.write_text(CHUNKS.replace("FROM", "sum"))
    (note,) = api.count(path).loops
    assert note.endswith("repeat one order (--unroll: an order for each)")

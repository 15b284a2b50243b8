"""Kernels whose variant is chosen when the program runs: what is open, what is tuned, kept and compiled."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from dagc import api
from dagc.base.errors import ProgramError, UsageError
from dagc.choice.legal import legal_settings, open_sites
from dagc.cli.main import main
from dagc.emit import emit
from dagc.ir.choice import Choice, own_name
from dagc.ir.plan import Plan, Target
from dagc.lab.configurations import configurations, open_decisions
from dagc.measure.launch import launch
from dagc.recipes import tune as tune_recipe
from dagc.space import Space
from dagc.stages.options import TuneOptions
from dagc.stages.program import read
from dagc.store.tuned import load_tuned
from dagc.study.tuned import choosers_of, open_choices
from tests.precompiled import do_not_optimise
from tests.study.programs import change_chooser, stored_chooser, write_sums
from tests.tiers import representatives

ROW = Choice.at("y", [("variant", "row")])
CALLED = Choice.at("y", [("variant", "called")])
LIMITS = {"max_threads_per_block": 1024}


def vector(lanes: int) -> Choice:
    return Choice.at("y", [("variant", "vector"), ("lanes", lanes)])


def settings_of(program: Path, **defines: object) -> tuple[Choice, ...]:
    graph = read(program, defines or None).graph()
    (site,) = open_sites(graph, variants=True)
    return legal_settings(graph, site, LIMITS)


# ---- what is open ----


def test_a_setting_has_the_variant_and_the_tunables_that_it_has(tmp_path: Path) -> None:
    found = settings_of(write_sums(tmp_path))
    assert found == (ROW, vector(2), vector(4), CALLED)
    assert [s.in_words for s in found] == ["row", "vector lanes=2", "vector lanes=4", "called"]


def test_tunables_that_the_select_does_not_name_keep_their_values(tmp_path: Path) -> None:
    program = write_sums(tmp_path, {"select variant, lanes": "select variant"})
    assert settings_of(program) == (ROW, Choice.at("y", [("variant", "vector")]), CALLED)


def test_of_all_variants_the_tunable_is_open_that_the_select_names(tmp_path: Path) -> None:
    program = write_sums(tmp_path, {"select variant, lanes": "select variant, block"})
    blocks = [Choice.at("y", [("variant", v), ("block", b)]) for v in ("row", "vector") for b in (32, 64)]
    assert settings_of(program) == (*blocks, CALLED)  # host code launches for itself


def test_a_value_from_the_command_line_is_not_open(tmp_path: Path) -> None:
    program = write_sums(tmp_path)
    assert settings_of(program, **{"y.lanes": 4}) == (ROW, Choice.at("y", [("variant", "vector")]), CALLED)
    with pytest.raises(UsageError, match="y.lanes"):
        read(program, {"y.lanes": 3}).graph()


def test_a_variant_that_requires_forbid_is_none(tmp_path: Path) -> None:
    program = write_sums(tmp_path, {"tune lanes in {2, 4}": "tune lanes in {2, 4} require block * lanes <= 128"})
    assert settings_of(program, **{"y.block": 64}) == (ROW, vector(2), CALLED)
    never = write_sums(tmp_path, {"tune lanes in {2, 4}": "tune lanes in {2, 4} require block * lanes <= 32"})
    assert settings_of(never, **{"y.block": 32}) == (ROW, CALLED)


def test_a_variant_that_is_given_is_not_open(tmp_path: Path) -> None:
    program = write_sums(tmp_path)
    graph = read(program, {"y.variant": "vector"}).graph()
    (site,) = open_sites(graph, variants=True)
    assert site.variants == ()
    assert legal_settings(graph, site, LIMITS)[0] == Choice.at("y", [("block", 32), ("lanes", 2)])


def test_a_search_has_the_variant_as_a_choice_of_its_own(tmp_path: Path) -> None:
    (site,) = open_sites(read(write_sums(tmp_path)).graph())
    assert [d.name for d in site.open] == ["y.block"]


def test_the_count_has_every_variant_with_its_own_tunables(tmp_path: Path) -> None:
    program = write_sums(tmp_path)
    variants = ("row", "vector", "called")
    each = [api.count(program, defines={"y.variant": variant}).whole for variant in variants]
    assert each == [2, 4, 2]
    assert api.count(program).whole == 8


# ---- conditions between choices ----

LAYOUT = {
    "setup \"sums.py\"": "tune layout in {0, 1, 2}\nsetup \"sums.py\"",
    "gpu row {": "gpu row { require layout == 0 || layout == 2",
    "gpu vector {": "gpu vector { require layout >= 1",
    "tune lanes in {2, 4}": "tune lanes in {2, 4} require block * lanes <= 64 * layout",
    "require longest <= 500": "require layout != 1 && longest <= 500",
    "y : gpu sums(y, ptr, val, n, nnz, weight)":
        "y : gpu sums(y, ptr, val, n, nnz, weight)\n  z : gpu sums(z, ptr, val, n, nnz, weight)",
    "array y : f32[n] out": "array y, z : f32[n] out",
    "select variant, lanes with knn(longest, mean)": "",
}  # fmt: skip


def settings_under(layout: int) -> list[dict[str, object]]:
    """Those of one op, enumerated."""
    out: list[dict[str, object]] = []
    for block in (32, 64):
        if layout in (0, 2):
            out.append({"variant": "row", "block": block})
        for lanes in (2, 4):
            if layout >= 1 and block * lanes <= 64 * layout:
                out.append({"variant": "vector", "block": block, "lanes": lanes})
        if layout != 1:
            out.append({"variant": "called", "block": block})
    return out


def test_a_decision_of_the_program_decides_the_variants_of_all_ops(tmp_path: Path) -> None:
    program = write_sums(tmp_path, LAYOUT)
    orders = len(list(api.traversals(program)))
    each = {layout: len(settings_under(layout)) ** 2 for layout in (0, 1, 2)}
    assert each == {0: 16, 1: 1, 2: 49}
    found = {layout: api.count(program, defines={"layout": layout}).whole for layout in each}
    assert found == {layout: orders * number for layout, number in each.items()}
    report = api.count(program)
    assert report.whole == orders * sum(each.values())
    assert {line.label: line.count * line.combinations for line in report.lines} == {
        f"layout={layout}": orders * number for layout, number in each.items()
    }
    text = read(program)
    graphs = {}
    for layout in each:
        for y, z in itertools.product(("row", "vector", "called"), repeat=2):
            with contextlib.suppress(ProgramError):
                graphs[layout, y, z] = text.graph({"layout": layout, "y.variant": y, "z.variant": z})
    allowed = {n: {str(s["variant"]) for s in settings_under(n)} for n in each}
    assert graphs.keys() == {(n, y, z) for n in each for y in allowed[n] for z in allowed[n]}
    opened = open_decisions(text.program(), ["layout", "y.variant", "z.variant"], ())
    configured, rejected = configurations(opened, text.graph)
    assert len(configured) == len(graphs) == len(opened["layout"]) * 9 - len(rejected)
    assert configured[0].configuration["y.variant"] == "row"
    (site, _) = open_sites(text.with_defines({"layout": 1}).graph(), variants=True)
    assert site.variants == (), "open where a `select` names it"


def test_an_implementation_that_the_program_excludes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = write_sums(tmp_path, LAYOUT)
    assert main(["check", str(program), "-D", "layout=1", "-D", "y.variant=called"]) == 2
    said = capsys.readouterr().err
    assert "a `require` of `called` is false for layout = 1" in said
    assert "help: " in said
    assert main(["check", str(program), "-D", "layout=1"]) == 0, "the default is the first that is left"


# ---- tuned, kept, compiled ----


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, unoptimised: None) -> Path:
    folder = tmp_path_factory.mktemp("sums")
    done = tune_recipe.tune(write_sums(folder), folder / "t.db", TuneOptions(target="host", cell=0.005))
    assert not done.failures
    assert (done.method, done.cells) == ("knn", 15)
    assert {line.default for line in done.lines} == {ROW}
    return folder / "t.db"


def launched(tuned: Path) -> list[str]:
    return [str(tuned.parent / "sums.dag"), "--launch", str(tuned), "--target", "host"]


@pytest.mark.mpi
def test_every_variant_is_measured_and_kept(tuned: Path) -> None:
    kept = load_tuned(tuned)
    assert {c.choice for c, sample in kept.samples if sample.times} == {ROW, vector(2), vector(4), CALLED}
    allowed = [dict(c.case.params)["SPREAD"] for c, _ in kept.samples if c.choice == CALLED]
    assert sorted(allowed) == [0, 10, 200], "not where its `require` does not hold"
    assert stored_chooser(tuned, "y")["settings"] == [
        {"variant": "row"}, {"variant": "vector", "lanes": 2}, {"variant": "vector", "lanes": 4}, {"variant": "called"},
    ]  # fmt: skip
    selector = kept.kernel_choosers["y"].selector
    assert selector is not None
    assert selector.data == ("longest", "mean")


@pytest.mark.mpi
def test_the_answers_in_c_are_numbers_in_the_order_of_the_text(tuned: Path) -> None:
    graph = read(tuned.parent / "sums.dag").graph()
    (chooser,) = choosers_of(graph, load_tuned(tuned))
    assert chooser.site.decisions == ("y.variant", "y.lanes")
    assert [chooser.site.row(i) for i in range(4)] == [(0, 2), (1, 2), (1, 4), (2, 2)]
    assert "{{0, 2}, {1, 2}, {1, 4}, {2, 2}}" in chooser.c_text()


@pytest.mark.mpi
def test_only_what_may_be_answered_is_compiled(tuned: Path, tmp_path: Path) -> None:
    other = tmp_path / "t.db"
    other.write_bytes(tuned.read_bytes())
    change_chooser(other, "y", settings=[{"variant": "called"}, {"variant": "vector", "lanes": 4}], anchors=[],
                   selector=None)  # fmt: skip
    found = open_choices(read(tuned.parent / "sums.dag").graph(), load_tuned(other), None)
    assert [(d.variant, own_name(d.name), d.values) for d in found.decisions] == [
        ("", "variant", ("vector", "called")), ("vector", "lanes", (4,)),
    ]  # fmt: skip


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("changes", "message"),
    [({"settings": [{"variant": "ell"}]}, "which is not among its choices"),
     ({"settings": [{"variant": 3}]}, "is damaged"),
     ({"settings": [{"variant": "row"}, {"lanes": 2}]}, "is damaged"),
     ({"settings": [{"variant": "vector", "lanes": "row"}]}, "is damaged"),
     ({"settings": [{"variant": "row", "lanes": 2}]}, "which is not among its choices"),
     ({"data": ["width"]}, "neither a size nor a feature of the program")],
)  # fmt: skip
def test_a_file_with_other_variants_is_refused(
    tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object], message: str
) -> None:
    other = tmp_path / "t.db"
    other.write_bytes(tuned.read_bytes())
    change_chooser(other, "y", **{"anchors": [], "selector": None, **changes})
    program, *options = launched(tuned)
    options[1] = str(other)
    assert main(["compile", program, *options, "--no-build", "-o", str(tmp_path / "o")]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "help: " in said


@pytest.mark.mpi
def test_the_chooser_is_shown(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = str(tuned.parent / "sums.dag")
    assert main(["tune", program, "--show", "y", "--format", "c", "-o", str(tuned)]) == 0
    assert "{{0, 2}, {1, 2}, {1, 4}, {2, 2}}" in capsys.readouterr().out
    selector = load_tuned(tuned).kernel_choosers["y"].selector
    assert selector is not None
    for format in ("text", "latex", "dot", "svg"):
        assert main(["tune", program, "--show", "y", "--format", format, "-o", str(tuned)]) == 0
        text = capsys.readouterr().out
        assert selector.text in text, "what the file learned"
        assert "cycles" not in text, "not a model that it does not use"
    assert main(["tune", program, "--show", "x", "--format", "c", "-o", str(tuned)]) == 2
    capsys.readouterr()
    assert main(["tune", program, "--show", "program"]) == 2
    assert "help: name the tuned file: -o FILE" in capsys.readouterr().err


@pytest.mark.mpi
def test_a_fixed_variant_cannot_be_chosen(tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["-D", "y.variant=vector", "--no-build", "-o", str(tmp_path / "o")]
    assert main(["compile", *launched(tuned), *options]) == 2
    assert "-D y.variant=..., or compile without --launch" in capsys.readouterr().err


# ---- what the program chooses, and why ----


@dataclass(frozen=True)
class Program:
    """The compiled program."""

    bench: Path
    folder: Path
    text: Path

    def data(self, ranks: int, spread: int) -> Path:
        found = self.folder / f"data-{ranks}-{spread}"
        if not found.exists():
            given = ["-n", str(ranks), "-D", f"SPREAD={spread}", "-o", str(found)]
            assert main(["setup", str(self.text), *given]) == 0
        return found

    def choices(self, data: Path, ranks: int = 1) -> tuple[str, dict[str, int]]:
        """The answer on rank 0, and how many ranks have which reason."""
        done = launch(
            [str(self.bench), "--data", str(data), "--repeats", "1", "--json", "-", "--seconds", "1e-6"], ranks
        )
        assert done.returncode == 0, done.stderr
        (choice,) = json.loads(done.stdout)["choices"]
        assert choice["op"] == "y"
        return choice["answer"], {reason: n for reason, n in choice["counts"].items() if n}

    def with_data(self, folder: Path, spreads: Sequence[int]) -> Path:
        """Data of several ranks, of which each has its own SPREAD."""
        shutil.copytree(self.data(len(spreads), spreads[0]), folder)
        for rank, spread in enumerate(spreads):
            for of_rank in (f"rank-{rank:04}", f"rank-{rank:04}/expected"):
                for file in (self.data(len(spreads), spread) / of_rank).glob("*.npy"):
                    shutil.copy(file, folder / of_rank)
        return folder


CPU = '''program total
param N : i64 = 64 over {64, 5000, 20000}
setup "total.py" init(N)
scalar n : i32
array x : f32[n] on pinned in
array s : f32[1] on pinned out
kernel total(s: out f32[1], x: in f32[n], n: i32) {
  select variant with knn(n)
  cpu plain { cpp """ double t = 0; for (int i = 0; i < n; ++i) t += x[i]; s[0] = t; """ }
  cpu slow {
    cpp """
      double t = 0;
      for (int i = 0; i < n; ++i) t += x[i];
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      s[0] = t;
    """
  }
}
dag { s : cpu total(s, x, n) }
verify s ~ reference() rtol 1e-5
'''
CPU_PY = """import numpy as np
def init(rank, size, seed, N):
    return {"n": N, "x": np.ones(N, np.float32)}
def reference(data, **_):
    return {"s": np.array([data["n"]], np.float32)}
"""


@pytest.mark.mpi
def test_ops_of_the_cpu_have_variants_too(tmp_path: Path) -> None:
    (tmp_path / "total.py").write_text(CPU_PY)
    (tmp_path / "total.dag").write_text(CPU)
    done = tune_recipe.tune(tmp_path / "total.dag", tmp_path / "t.db", TuneOptions(target="host", cell=0.01))
    assert not done.failures
    samples = load_tuned(tmp_path / "t.db").samples
    slow = [sample.value for cell, sample in samples if cell.choice == Choice.at("s", [("variant", "slow")])]
    assert len(slow) == 3
    assert min(slow) >= 3e-3, "what the op takes, not the stream, which has nothing to do"
    options = ["--launch", str(tmp_path / "t.db"), "--target", "host", "-o", str(tmp_path / "o"), "--run", "-n", "1"]
    assert main(["compile", str(tmp_path / "total.dag"), *options]) == 0


@pytest.fixture(scope="module")
def chosen(tuned: Path) -> Path:
    """A tuned file that takes `called` at SPREAD 0 and 1000, else `vector lanes=4`, and `vector lanes=4` at 200."""
    return chosen_by(tuned, "longest", "mean")


def chosen_by(tuned: Path, *names: str) -> Path:
    chosen = tuned.parent / f"chosen-by-{'-'.join(names)}.db"
    chosen.write_bytes(tuned.read_bytes())
    anchors = [
        ({"longest": 3, "mean": 3.0}, 3),
        ({"longest": 203, "mean": 6.125}, 2),
        ({"longest": 1003, "mean": 18.625}, 3),
    ]
    called, vector = ({"label": one, "sure": 1.0, "then": [other, 1]} for one, other in ((3, 2), (2, 3)))
    tree = [names.index("mean"), 4, called, [names.index("mean"), 10, vector, called]]
    change_chooser(
        chosen, "y", data=[*names],
        selector={"method": "tree", "data": [*names], "tree": tree},
        anchors=[{"data": [at[name] for name in names], "chosen": answer} for at, answer in anchors],
    )  # fmt: skip
    return chosen


@pytest.fixture(scope="module", params=[("now", "mean"), ("async", "longest", "mean")], ids=["now", "async"])
def program(tuned: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Program:
    """Chosen by `mean` alone, the longest row is computed for the `require` of `called`, which only this needs."""
    folder = tmp_path_factory.mktemp("chosen")
    mode, *names = request.param
    options = ["--features", mode, "-o", str(folder / "out")]
    assert main(["compile", *launched(chosen_by(tuned, *names)), *options]) == 0
    assert ("compute_features()" in (folder / "out/program.hpp").read_text()) == ("longest" in names)
    return Program(folder / "out/bench", folder, tuned.parent / "sums.dag")


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("spread", "answer", "reason"),
    [
        (0, "called", "chosen"),
        (200, "vector lanes=4", "chosen"),
        (1000, "vector lanes=4", "constraint"),
        (9000, "row", "outside"),
    ],
)
def test_the_next_best_is_taken_where_the_choice_is_not_allowed_and_the_default_far_outside(
    program: Program, spread: int, answer: str, reason: str
) -> None:
    assert program.choices(program.data(1, spread)) == (answer, {reason: 1})


@pytest.mark.mpi
def test_the_default_is_taken_where_a_feature_is_not_finite(program: Program, tmp_path: Path) -> None:
    shutil.copytree(program.data(1, 0), tmp_path / "data")
    np.save(tmp_path / "data/rank-0000/weight.npy", np.float32(np.nan))
    assert program.choices(tmp_path / "data") == ("row", {"not finite": 1})


@pytest.mark.mpi
def test_all_ranks_take_the_answer_with_the_most_votes(program: Program, tmp_path: Path) -> None:
    """Rank 0 alone would take `called`, answer 3; of one vote each the lowest wins."""
    both = program.with_data(tmp_path / "both", (0, 200))
    assert program.choices(both, 2) == ("vector lanes=4", {"chosen": 2})


@pytest.mark.mpi
def test_a_constraint_that_fails_on_one_rank_fails_for_all(program: Program, tmp_path: Path) -> None:
    """Both want `called`, which rank 1 must not run."""
    both = program.with_data(tmp_path / "both", (0, 1000))
    assert program.choices(both, 2) == ("vector lanes=4", {"constraint": 2})


@pytest.mark.mpi
def test_the_program_says_what_it_chose(program: Program) -> None:
    done = launch([str(program.bench), "--data", str(program.data(2, 0)), "--check-only", "--verbose"], 2)
    assert done.stdout.splitlines()[0].startswith("y: called (chosen ")


@pytest.mark.mpi
@pytest.mark.parametrize("features", representatives(["parallel", "async"], "async"))
def test_a_library_chooses_at_create_and_rebind(
    chosen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, features: str
) -> None:
    """With `async` it chooses when it first runs; the features are computed from when it gets the arrays on."""
    do_not_optimise(monkeypatch, "-Wall", "-Wextra", "-Werror")
    options = ["--features", features, "--as", "library", "-o", str(tmp_path / "sums")]
    assert main(["compile", *launched(chosen), *options]) == 0
    header = next((tmp_path / "sums").rglob("sums.h")).read_text()
    assert ("the first call that runs waits" in header) == (features == "async")
    script = (
        "import dagc, sys, numpy as np; from mpi4py import MPI; sys.path.insert(0, sys.argv[2]); import sums as setup\n"
        "def given(spread):\n"
        "    data = setup.init(0, 1, 0, 64, spread)\n"
        "    return data | {'y': np.zeros(64, np.float32)}, setup.reference(data)['y']\n"
        "values, wanted = given(0); library = dagc.load_library(sys.argv[1])\n"
        "with library.Instance(MPI.COMM_WORLD, **values) as idle: idle.rebind(**values)\n"
        "with library.Instance(MPI.COMM_WORLD, **values) as one:\n"
        "    for spread in (0, 1000, 200):\n"
        "        if spread: values, wanted = given(spread); one.rebind(**values)\n"
        "        before = one.choices; one.run(); print(one.choices, (values['y'] == wanted).all())\n"
        "        assert (one.choices == before) == (sys.argv[3] == 'parallel')\n"
    )
    done = launch([sys.executable, "-c", script, str(tmp_path / "sums"), str(chosen.parent), features], 1)
    assert done.stdout.splitlines() == [
        "y: called (chosen 1) True", "y: vector lanes=4 (chosen 1, constraint 1) True",
        "y: vector lanes=4 (chosen 2, constraint 1) True",
    ], done.stderr  # fmt: skip


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("options", "message"),
    [(["--features", "parallel"], "add --launch TUNED"), (["--no-constraints"], "add --launch TUNED")],
)
def test_options_without_anything_to_act_on(
    chosen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    given = [str(chosen) if option == "TUNED" else option for option in options]
    text = str(chosen.parent / "sums.dag")
    assert main(["compile", text, "--target", "host", "--no-build", "-o", str(tmp_path / "o"), *given]) == 2
    assert message in capsys.readouterr().err


# ---- a search ----


@pytest.mark.mpi
def test_a_search_takes_the_variant_from_the_file(
    chosen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a feature that the compiled program computes; a variant whose `require` does not hold is not taken."""
    for spread, taken in ((200, "y.variant=vector y.lanes=4"), (1000, "y.variant=vector y.lanes=4")):
        options = ["-D", f"SPREAD={spread}", "--only", "orders", "--budget", "1", "--seconds", "1e-4", "-n", "1"]
        assert main(["explore", *launched(chosen), *options, "-o", str(tmp_path / f"{spread}.db")]) == 0
        assert f"{taken} (tuned file)" in capsys.readouterr().out


# ---- emitted text ----


def emitted(tuned: Path, target: Target = Target.HOST, **changes: object) -> dict[str, str]:
    """The files of the program, whose chooser is changed."""
    graph = read(tuned.parent / "sums.dag").graph()
    launched = open_choices(graph, load_tuned(tuned), None)
    assert launched.chooser is not None
    chooser = replace(launched.chooser, **changes)  # type: ignore[arg-type]
    return emit(
        Plan(graph, Space(graph).first(), target, open=launched.decisions, chooser=chooser, features=launched.features)
    )


@pytest.mark.mpi
def test_without_constraints_those_on_the_memory_stay(tuned: Path) -> None:
    def line(**changes: object) -> str:
        text = emitted(tuned, **changes)["program.hpp"]
        return next(line.strip() for line in text.splitlines() if "p.y_variant == 2 && " in line)

    assert "!(p.feature_0() <= 500 && 8 * p.nnz <= p.hardware.memory)" in line()
    assert "!(8 * p.nnz <= p.hardware.memory)" in line(constraints=False)

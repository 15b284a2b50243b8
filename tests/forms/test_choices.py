"""Forms as choices: with launch settings in tasks, counts, models, tuned files and compiled programs."""

from __future__ import annotations

import math
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from dagc.base.errors import UsageError
from dagc.base.source import Source
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from dagc.choice.legal import legal_settings, open_sites
from dagc.choice.models import ModelInputs, ranking_model
from dagc.choice.residual import launch_terms
from dagc.emit.kernels import Functions
from dagc.forms import MOST_COMPILED, is_sent
from dagc.ir.choice import AS_WRITTEN, Choice
from dagc.ir.plan import Target
from dagc.lang.lower import lower, parse_with_includes
from dagc.passes import build_graph
from dagc.perf.hardware import load_hardware
from dagc.recipes.compile import compile
from dagc.recipes.explore import explore
from dagc.recipes.forms import show_forms
from dagc.recipes.tune import tune
from dagc.stages.options import ExploreOptions, TuneOptions
from dagc.stages.program import count, read
from dagc.store.tuned import load_tuned
from dagc.study.task import tuning_task
from tests.tiers import representatives

ROOT = Path(__file__).parents[2]
JACOBI = ROOT / "samples/jacobi/jacobi.dag"
COARSE = Path(__file__).parent / "data/coarse.dag"
BLOCKS = 15  # legal blocks of the kernel of jacobi
FORMED = {"form.wide": (1, 2, 4), "form.coarsen": (1, 2, 4, 8)}  # it loads nothing after a store


def test_a_task_on_a_gpu_has_forms_among_the_settings() -> None:
    """And none on the host target or with --forms off, so that files made without forms are continued."""
    text = read(JACOBI)
    sites = {
        forms: tuning_task(text, TuneOptions(target="cuda", kernels=("inner",), forms=forms)).sites[0]
        for forms in (None, "on", "off")
    }
    assert sites[None] == sites["on"]
    assert {d.name: d.values for d in sites["on"].open if "form." in d.name} == {
        f"inner.{name}": values for name, values in FORMED.items()
    }
    assert len(sites["on"].choices) == BLOCKS * 12
    assert len(sites["off"].choices) == BLOCKS
    written = {**dict.fromkeys(FORMED, AS_WRITTEN), "bx": 32, "by": 1}
    assert sites["on"].default.own == written
    host = tuning_task(text, TuneOptions(target="host", kernels=("inner",)))
    assert len(host.sites[0].choices) == BLOCKS
    listed = tuning_task(text, TuneOptions(target="cuda", kernels=("inner",), forms="wide=2,tile"))
    assert len(listed.sites[0].choices) == BLOCKS
    assert listed.graph.program.decision("inner.form.wide") == 2
    assert listed.without == ("kernel `stencil`: tile: neighbours along y load nothing in common in a loop",)


def test_the_count_is_exact() -> None:
    per_op = {forms: dict(count(JACOBI, forms=forms).per_op) for forms in ("off", "on", "wide=2")}
    assert per_op["off"]["inner"] == per_op["wide=2"]["inner"] == BLOCKS
    assert per_op["on"]["inner"] == BLOCKS * 12


def test_a_choice_reads_as_before_where_its_forms_are_as_written() -> None:
    block = [("bx", 32), ("by", 8)]
    assert Choice.at("inner", [*block, ("form.coarsen", AS_WRITTEN)]).in_words == "32 x 8"
    assert Choice.at("inner", [*block, ("form.coarsen", 4)]).in_words == "32 x 8 form.coarsen=4"
    assert Choice.at("inner", [*block, ("form.coarsen", 4)]).own == {"bx": 32, "by": 8, "form.coarsen": 4}


def test_a_fusion_is_no_form_of_a_kernel() -> None:
    """Its value as written is 0, that of a form 1."""
    assert not Choice.of({"fuse.a_b": 0, "a.form.wide": AS_WRITTEN, "a.bx": 32}).formed
    assert Choice.of({"fuse.a_b": 1, "a.form.wide": 4}).formed == ("a.form.wide",)


@pytest.mark.parametrize(
    ("constants", "formed"),
    [("", 12), ("tune u in {1, 2}", 6), ("tune u in {1, 2, 3, 4}", 3), ("tune u in 0..9", 1), ("tune u in 0..40", 1)],
)
def test_few_kernels_are_compiled(constants: str, formed: int) -> None:
    """Of a kernel with constants of its own, forms keep so many values that no more are compiled than allowed."""
    launch = "launch grid(ceil(n / 32), n) block(32)"
    stored = "u" if constants else "1"
    body = f"const int i = blockIdx.x * 32 + threadIdx.x; if (i < n) y[blockIdx.y * n + i] = {stored};"
    text = f"""
      program few
      scalar n : i64
      array y : f32[n, n] out
      kernel k(y: out f32[n, n], n: i64) {{ {constants} gpu {{ {launch} cuda \"\"\"{body}\"\"\" }} }}
      dag {{ a : gpu k(y, n) }}"""
    kernel = lower(parse_with_includes(Source("few.dag", text)), forms=True).kernel("k")
    own = prod(len(t.values) for t in kernel.tunables)
    forms = prod(len(t.values) for t in kernel.impls[0].tunables)
    assert (forms, forms == 1 or own * forms <= MOST_COMPILED) == (formed, True)


def test_values_that_are_not_compiled_by_themselves_can_be_given() -> None:
    """-D gives a form a value that a search leaves out, since it would compile too many kernels."""
    text = replace(read(JACOBI), forms=True)
    left = {d.name: d.values for d in text.program().decisions}
    for name, values in FORMED.items():
        chosen = text.program({f"inner.{name}": values[-1]}).decision(f"inner.{name}")
        assert chosen == values[-1], left.get(f"inner.{name}")


@pytest.mark.parametrize("columns", representatives([2048, 8192], 8192))
def test_the_model_ranks_forms_with_nothing_measured(columns: int) -> None:
    """On an H200 four columns a thread were 1.8 times as fast as one, and two rows 1.37 times (4096 x 8192): the
    model sees each text, and orders them so."""
    text = replace(read(JACOBI, {"nx": columns, "rows": 4096}), forms=True)
    graph, hardware = text.graph(), load_hardware("h200")
    (site,) = open_sites(graph, ("inner",))
    site = replace(site, choices=legal_settings(graph, site, {"max_threads_per_block": 1024}))
    table = launch_terms(graph, site, site.choices, hardware)
    assert table.note == ""
    seconds = table.at({})[:, 0]
    best: dict[tuple[int, int], float] = {}
    for time, own in zip(seconds, (c.own for c in site.choices), strict=True):
        key = own["form.wide"], own["form.coarsen"]
        best[key] = min(time, best.get(key, math.inf))
    assert best[1, 1] > 1.1 * best[1, 2] > 1.1 * best[4, 2]
    names = {p.name for p in ranking_model(graph, site, ModelInputs(), hardware).parameters}
    assert names == {"blockDim_x", "blockDim_y", *(f"{name.replace('.', '_')}_tunable" for name in FORMED)}


def test_kernels_that_write_messages_have_the_forms_that_can() -> None:
    """Transport `put`: stores by vectors are sent too, those of the form `stream` are not."""
    graph = replace(read(JACOBI, {"transport": "put", "steps": 2}), forms=True).graph()
    wide = {
        site.name: {c.own["form.wide"] for c in legal_settings(graph, site, {"max_threads_per_block": 1024})}
        for site in open_sites(graph)
    }
    assert wide == {site: {1, 2, 4} for site in ("first", "last", "inner")}
    functions = Functions(graph, Target.CUDA, tuple(d for site in open_sites(graph) for d in site.open))
    names = {functions.name(one) for op in graph.ops if op.kernel is not None for one in functions.settled(op.kernel)}
    coarse = ("", *(f"_coarsen{n}" for n in (2, 4, 8)))
    each = {f"stencil{w}{c}" for w in ("", "_wide2", "_wide4") for c in coarse}
    assert {n for n in names if "put" in n} == {f"{name}_put" for name in each}
    for form in (None, "form.stream"):  # no vector that bypasses the caches
        rows = next(op.kernel for op in graph.ops if op.kernel is not None and op.kernel.puts)
        wide = {"form.wide": 4, **({form: 2} if form else {})}
        rows = replace(rows, tunables=(*((n, v) for n, v in rows.tunables if n not in wide), *wide.items()))
        assert is_sent(graph.program, rows) is (form is None)


def test_the_forms_of_a_kernel_are_listed_with_reasons_and_shown() -> None:
    text = show_forms(JACOBI, "inner", {"inner.form.coarsen": 4})
    assert "\n  wide     1, 2, 4 " in text
    assert "stencil with form.coarsen = 4:" in text
    assert "for (unsigned part = 0; part < 4; ++part) {" in text
    with pytest.raises(UsageError, match="no op calls a kernel `sten`") as refused:
        show_forms(JACOBI, "sten")
    assert refused.value.help == "one of: stencil"
    assert "stencil with form.wide = 4:" in show_forms(JACOBI, "stencil")  # a text in any case: of the first searched
    assert "stencil with form.wide = 2, form.freedom = 2:" in show_forms(JACOBI, "inner,wide=2,freedom")


def test_a_list_of_forms_is_for_all_kernels_that_allow_them(tmp_path: Path) -> None:
    """`--forms wide=2,tile`: the ops of the loop and of their fusions have it, -D of an op counts before, and what no
    kernel allows is named with the reason."""
    done = compile(
        JACOBI, tmp_path, target="host", build=False, forms="wide=2,tile,coarsen", defines={"last.form.coarsen": 2}
    )
    assert done.left_out == ("kernel `stencil`: tile: neighbours along y load nothing in common in a loop",)
    emitted = (tmp_path / "kernels.cu").read_text()
    assert "form.wide = 2: 2 neighbours" in emitted
    assert "for (unsigned part = 0; part < 8; ++part)" in emitted
    assert "for (unsigned part = 0; part < 2; ++part)" in emitted
    for asked, message, help in (
        ("wid", "'wid': not a form", "did you mean `wide`?"),
        ("wide=", "'wide=': not a form", "choose from unroll"),
        ("wide=4,coarsen,wide=2", "wide=4,coarsen,wide=2: `wide` is given twice", "give each form once"),
        ("wide=3", "no kernel allows wide=3", "kernel `stencil`: wide=3: it has 1, 2, 4"),
        ("on", "--forms on: compile searches nothing", "list them"),
    ):
        with pytest.raises(UsageError, match=message) as refused:
            compile(JACOBI, tmp_path, target="host", build=False, forms=asked)
        assert (refused.value.help or "").startswith(help)
    with pytest.raises(UsageError, match="'wid': not a form"):
        explore(JACOBI, tmp_path / "j.db", ExploreOptions(target="host", forms="wid"))


PROGRAM = """
array y : f32[n * n] on pinned
array y1 : f32[n * n] on pinned
dag {
  a : gpu guarded(y, x, n, bx = 32, by = 3)
  b : gpu guarded(y1, x, n, bx = 32, by = 1)
  c : cpu same(apart[0 .. 1], y, y1, y, y1, n * n)
}
"""


@pytest.mark.mpi
@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
@pytest.mark.usefixtures("unoptimised")
def test_from_tuning_to_the_program(tmp_path: Path) -> None:
    """Every form is measured, the file has them as tunables, and the program that it makes chooses one."""
    path = tmp_path / "one.dag"
    path.write_text(COARSE.read_text().replace("many : i64 = 8", "many : i64 = 1") + PROGRAM)
    (tmp_path / "coarse.py").write_text(COARSE.with_suffix(".py").read_text())
    tuned = tmp_path / "tuned.db"
    options = TuneOptions(
        target="host", method="exhaustive", kernels=("a",), forms="on", cell=0.001, sizes="side=33", defines={}
    )
    done = tune(path, tuned, options)
    file = load_tuned(tuned)
    measured = {tuple(cell.choice.own.items()) for cell, sample in file.samples if sample.times}
    assert {name for own in measured for name, _ in own} == {"form.coarsen", "form.columns"}  # it has a lambda
    assert len(measured) == 12
    assert file.forms
    assert "a" in {line.op for line in done.lines}
    ran = compile(path, tmp_path / "out", target="host", launch=str(tuned), run=True, ranks=1, defines={"side": 33})
    assert ran.result is not None
    assert {d.name for d in ran.plan.open} == {"a.form.coarsen", "a.form.columns"}


def test_a_form_whose_text_cannot_be_read_is_ranked_as_the_kernel_as_written() -> None:
    """A `return` in a loop makes the body a lambda, which the reader of accesses does not follow."""
    text = COARSE.read_text().replace("verify apart ~ none(many) rtol 0", "")
    text += "array y : f32[n * n] out\ndag { a : gpu search(y, x, n) }"
    graph = build_graph(lower(parse_with_includes(Source("c.dag", text)), forms=True))
    (site,) = open_sites(graph, ("a",))
    site = replace(site, choices=legal_settings(graph, site, {"max_threads_per_block": 1024}))
    table = launch_terms(graph, site, site.choices, load_hardware("h200"))
    seconds = table.at({"n": 4096})[:, 0]
    assert (table.note, len(site.choices)) == ("", 8)
    written = {"form.coarsen": 1, "form.freedom": 1}
    (plain,) = (s for c, s in zip(site.choices, seconds, strict=True) if {**c.own, **written} == c.own)
    assert {s for c, s in zip(site.choices, seconds, strict=True) if c.own["form.coarsen"] > 1} == {plain}
    assert ranking_model(graph, site, ModelInputs(), load_hardware("h200")).body


def test_the_model_sees_what_arrays_that_do_not_overlap_allow() -> None:
    """nvcc loads ahead of stores then: on an H200 a recurrence along columns took a fourth of the time."""
    text = replace(read(ROOT / "benchmarks/corpus/fronts/front_step.dag", {"N": 16384, "M": 256}), forms=True)
    graph, hardware = text.graph(), load_hardware("h200")
    (site,) = open_sites(graph, ("front_step",))
    written = {"bx": 256, "form.wide": 1, "form.coarsen": 1}
    choices = [c for c in site.every if {**c.own, **written} == c.own]
    table = launch_terms(graph, site, choices, hardware).at({"n": 16384, "m": 256})
    seconds = {c.own["form.freedom"]: time for c, time in zip(choices, table[:, 0], strict=True)}
    assert seconds[1] > 2 * seconds[2]


def test_rows_that_begin_anywhere_have_no_vectors_in_the_model() -> None:
    seconds = {}
    for columns in (4096, 4097):
        text = replace(read(JACOBI, {"nx": columns, "rows": 4096}), forms=True)
        graph, hardware = text.graph(), load_hardware("h200")
        (site,) = open_sites(graph, ("inner",))
        block = {"bx": 32, "by": 8, "form.coarsen": 1}
        choices = [c for c in site.every if {**c.own, **block} == c.own]
        times = launch_terms(graph, site, choices, hardware).at({})[:, 0]
        seconds |= {(columns, c.own["form.wide"]): time for c, time in zip(choices, times, strict=True)}
    assert seconds[4096, 4] < 0.9 * seconds[4096, 1]
    assert seconds[4097, 4] > seconds[4097, 1]

"""Lowering of the seven samples and of small programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from dagc.base.errors import ProgramError, Severity, UsageError
from dagc.base.source import Source
from dagc.ir import program as ir
from dagc.ir.enums import ElementType, Mode
from dagc.ir.program import Device
from dagc.ir.sym import Const, Fn, Var, evaluate, show
from dagc.lang.lower import analyse, lower, parse_with_includes
from dagc.passes import analysis_of, build_graph

SAMPLES = Path(__file__).parents[2] / "samples"
PATHS = sorted(SAMPLES.glob("*/*.dag"))

BASE = """\
program t
{decls}
scalar n : i32
array x : f32[n] in
array y : f32[n] out
kernel scale(y: out f32[n], x: in f32[n], n: i32) {{
  {items}
  gpu {{
    launch grid(ceil(n / 256)) block(256)
    cuda \"\"\" if (threadIdx.x < n) y[threadIdx.x] = 2 * x[threadIdx.x]; \"\"\"
  }}
}}
dag {{
{dag}
}}
"""


def program(decls: str = "", dag: str = "  y : gpu scale(y, x, n)", items: str = "", **defines: str) -> ir.Program:
    source = Source("t.dag", BASE.format(decls=decls, dag=dag, items=items))
    return lower(parse_with_includes(source), defines)


def sample(name: str, defines: Mapping[str, str | int | float | bool] | None = None) -> ir.Program:
    """`sample("heat")`, `sample("spmv/variants")`."""
    source = Source.read(SAMPLES / f"{name if '/' in name else f'{name}/{name}'}.dag")
    return lower(parse_with_includes(source), defines or {})


def decision(p: ir.Program, name: str) -> ir.Decision:
    return next(d for d in p.decisions if d.name == name)


def names(p: ir.Program) -> list[str]:
    return [op.name for op in p.ops]


EVEN = """param width : i64 = 8
let half = width / 2"""
WIDE = '''gpu wide {
    require half == floor(half)
    launch grid(1) block(32)
    cuda """ y[0] = x[0]; """
  }'''


def test_a_variant_that_params_exclude_is_no_choice() -> None:
    """It is one again where they allow it."""
    assert decision(program(EVEN, items=WIDE), "y.variant").values == ("wide", "default")
    odd = program(EVEN, items=WIDE, width="7")
    assert decision(odd, "y.variant").values == ("default",)
    with pytest.raises(UsageError, match="y.variant=wide: not one of the choices"):
        program(EVEN, items=WIDE, width="7", **{"y.variant": "wide"})
    with pytest.raises(ProgramError) as caught:
        program(EVEN, "  y : gpu scale.wide(y, x, n)", WIDE, width="7")
    (found,) = caught.value.diagnostics
    assert (found.code, found.message) == ("unsatisfiable-require", "a `require` of `wide` is false for half = 7/2")


GIVEN = """param real : type = f32
let w[1] = 2
let sizes = {4, 8, 16}"""


@pytest.mark.parametrize(
    ("condition", "given"),
    [
        ("sizeof(real) == 8", "real = f32"),
        ("w[1] == 3", "w[1] = 2"),
        ("sizes[1] == 3", "sizes = {4, 8, 16}"),
        ("w[1] == 3\n    require sizeof(real) == 8", "w[1] = 2"),
    ],
)
def test_types_lists_and_indexed_names_exclude_a_variant(condition: str, given: str) -> None:
    wide = WIDE.replace("half == floor(half)", condition)
    assert decision(program(GIVEN, items=wide), "y.variant").values == ("default",)
    with pytest.raises(ProgramError) as caught:
        program(GIVEN, "  y : gpu scale.wide(y, x, n)", wide)
    (found,) = caught.value.diagnostics
    assert found.message == f"a `require` of `wide` is false for {given}"


@pytest.mark.parametrize("condition", ["a == b", "1 == 2", "block > 64 && 1 == 2"])
def test_a_require_that_no_value_makes_true_is_an_error_where_it_is_written(condition: str) -> None:
    items = WIDE.replace("require half == floor(half)", f"tune block in {{64, 128}}\n    require {condition}")
    with pytest.raises(ProgramError) as caught:
        program("enum side {a, b}", items=items)
    (found,) = caught.value.diagnostics
    assert (found.code, found.message) == ("unsatisfiable-require", "this is never true")


CPU = '''cpu { cpp """ y[0] = x[0]; """ }'''
ON_HOST = "  y : cpu scale(hy, hx, 64)"
HOST = f"{EVEN}\narray hx : f32[64] on host in\narray hy : f32[64] on host out"


@pytest.mark.parametrize("width", ["8", "7"])
def test_an_excluded_variant_of_the_gpu_changes_no_op_on_the_cpu(width: str) -> None:
    host = ON_HOST.replace("scale", "scale.wide")
    with pytest.raises(ProgramError) as caught:
        program(HOST, host, WIDE + CPU, width=width)
    (found,) = caught.value.diagnostics
    assert (found.code, found.message) == ("unknown-name", "kernel `scale` has no cpu variant `wide`")
    with pytest.raises(UsageError, match="y.variant"):
        program(HOST, ON_HOST, WIDE + CPU, width=width, **{"y.variant": "default"})


@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_an_op_on_any_device_has_the_same_decisions_where_a_variant_is_excluded(device: str) -> None:
    decls = f"{EVEN}\narray ax : f32[64] on any in\narray ay : f32[64] on any out"
    for width, values in (("8", ("wide", "default")), ("7", ("default",))):
        found = program(decls, "  y : any scale(ay, ax, 64)", WIDE + CPU, width=width, **{"y.device": device})
        assert decision(found, "y.gpu.variant").values == values
        assert "y.cpu.variant" not in {d.name for d in found.decisions}


# ---- the samples --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_samples_have_no_errors_and_no_warnings(path: Path) -> None:
    analysis = analysis_of(Source.read(path), None)  # as `dagc check`: of all values of decisions together
    assert [d for d in analysis.diagnostics if d.severity is not Severity.NOTE] == []
    assert analysis.program is not None
    build_graph(analysis.program)


def test_the_samples_are_these() -> None:
    found = [p.stem for p in PATHS if p.parent.name != "polybench"]
    assert found == [
        "bfs",
        "cg",
        "corr",
        "detectors",
        "fft",
        "gemm",
        "gcn",
        "sage",
        "grid2d",
        "halo3d",
        "grid",
        "heat",
        "histogram",
        "jacobi",
        "kmotif",
        "nbody",
        "pagerank",
        "pipeline",
        "overlap",
        "port",
        "solvers",
        "sort",
        "distributed",
        "split",
        "spmv",
        "variants",
        "tridiag",
    ]


def test_spmv() -> None:
    p = sample("spmv")
    assert names(p) == ["pack", "x", "yl", "yr", "y"]
    assert p.explicit
    assert len(p.edges) == 4
    exchange = p.ops[1]
    assert isinstance(exchange, ir.ExchangeOp)
    assert exchange.messages[0].label == ""
    assert (exchange.messages[0].to, exchange.messages[0].send_counts) == ("send_ranks", "send_counts")
    assert {d.name: d.values for d in p.decisions}["yl.variant"] == ("thread_per_row", "warp_per_row")
    assert p.setup is not None
    assert dict(p.setup.args) == {"rows": 150_000, "nnz_per_row": 10, "bandwidth": 37_500}
    assert p.decision("streams") == 2
    assert decision(p, "streams").values == (2,)


def test_inferred_edges_of_spmv_are_the_explicit_ones() -> None:
    text = (SAMPLES / "spmv/spmv.dag").read_text(encoding="utf-8")
    explicit = Source("a.dag", text)
    start, stop = text.index("  edges explicit"), text.index("}\nverify")
    inferred = Source("b.dag", text[:start] + text[stop:])
    graphs = [build_graph(lower(parse_with_includes(s), {"transport": "mpi_cuda"})) for s in (explicit, inferred)]
    assert set(graphs[0].completion) == set(graphs[1].completion)


def test_halo_names_come_from_labels() -> None:
    p = sample("halo3d")
    assert "pack[x,lo]" in names(p)
    halo = next(op for op in p.ops if isinstance(op, ir.ExchangeOp))
    first = halo.messages[0]
    assert (first.label, first.send.array, first.recv.array) == ("face[x,lo]", "snd[x,lo]", "rcv[x,hi]")
    assert (first.to, first.source) == (Var("nbr[x,lo]"), Var("nbr[x,hi]"))
    pack = p.ops[1]
    assert isinstance(pack, ir.KernelOp)
    assert pack.args[2:4] == (Const(0), Const(1))
    assert pack.tunables == (("block", 128),)


def test_halo_exchange_per_axis() -> None:
    p = sample("halo3d", {"per_axis": "true", "threads[y]": 512})
    assert [op.name for op in p.ops if isinstance(op, ir.ExchangeOp)] == ["halo[x]", "halo[y]", "halo[z]"]
    blocks = {op.name: dict(op.tunables)["block"] for op in p.ops if isinstance(op, ir.KernelOp)}
    assert (blocks["pack[x,lo]"], blocks["unpack[y,hi]"]) == (128, 512)
    assert decision(sample("halo3d"), "per_axis").structural
    assert not decision(p, "threads[x]").structural


def test_tridiag_picks_choices_that_satisfy_its_require() -> None:
    p = sample("tridiag", {"streams": 4})
    assert p.decision("chunks") == 4
    up = next(op for op in p.ops if op.name == "up[3]")
    assert isinstance(up, ir.CopyOp)
    assert up.stream == 3
    assert up.src.start is not None
    assert up.src.stop is not None
    assert evaluate(up.src.start, {"n": 100}) == 4 * 18
    assert evaluate(up.src.stop, {"n": 100}) == 4 * 25
    assert decision(p, "chunks").structural
    assert not decision(p, "m").structural


def test_corr_takes_the_first_legal_block() -> None:
    p = sample("corr")
    assert (p.decision("centre.bx"), p.decision("centre.by")) == (1, 32)
    fixed = sample("corr", {"centre.bx": 64})
    assert (fixed.decision("centre.bx"), fixed.decision("centre.by")) == (64, 1)


def test_gcn_moves_arrays_where_they_are_needed() -> None:
    deep = {"layers": 4}
    assert names(sample("gnn/gcn", deep))[0] == "h[0].to_device"
    assert names(sample("gnn/gcn", deep))[-1] == "h[4].to_host"
    p = sample("gnn/gcn", deep | {"layer[1].device": "cpu"})
    assert names(p)[1:5] == ["layer[0]", "h[1].to_host", "layer[1]", "h[2].to_device"]
    on_cpu = {f"layer[{i}].device": "cpu" for i in range(4)}
    assert not any(isinstance(op, ir.CopyOp) for op in sample("gnn/gcn", deep | on_cpu).ops)


def test_cg_compounds_and_repetition() -> None:
    p = sample("cg")
    assert names(p)[:4] == ["mv[0].pack", "mv[0].ghosts", "mv[0].local", "mv[0].remote"]
    assert {"mv[0].v_send", "mv[1].v_r"} <= {a.name for a in p.arrays}
    local = p.ops[2]
    assert isinstance(local, ir.KernelOp)
    assert (local.base, local.accesses[0]) == ("mv.local", ir.Access(ir.Region("q"), Mode.OUT))
    assert (p.repeat, p.until) == (Const(250), ir.Until("rr_h", Fn.LT, Const(1.0000000000000001e-16)))
    collective = next(op for op in p.ops if isinstance(op, ir.CollectiveOp))
    assert (collective.reduce, [a.mode for a in collective.accesses]) == ("sum", [Mode.INOUT])


def test_variants_keep_features_and_selectors() -> None:
    p = sample("spmv/variants")
    kernel = p.kernels[0]
    assert [f.name for f in kernel.features][:4] == ["slots_1", "slots_4", "slots_16", "slots_32"]
    assert (kernel.selects[0].method, kernel.selects[0].names) == ("cost", ("variant", "lanes"))
    assert decision(p, "y.variant").values[:3] == ("merge", "thread_per_row", "lanes_per_row")


# ---- defines ----------------------------------------------------------------------------------


def test_defines_override_params_before_what_depends_on_them() -> None:
    p = sample("spmv", {"rows": "400"})
    assert p.setup is not None
    assert dict(p.setup.args)["bandwidth"] == 100


def test_a_define_closes_a_decision() -> None:
    p = sample("spmv", {"transport": "mpi_cuda", "streams": "3", "staging": "ops", "yl.block": "256"})
    assert decision(p, "transport").values == ("mpi_cuda",)
    assert (p.decision("streams"), p.decision("staging"), p.decision("yl.block")) == (3, "ops", 256)


def test_a_type_may_be_defined() -> None:
    p = sample("corr", {"real": "f64"})
    assert p.arrays[0].type is ElementType.F64


@pytest.mark.parametrize(
    ("defines", "message", "help"),
    [
        ({"transport": "ucx"}, "not one of the choices", "mpi_host, mpi_cuda, nccl"),
        ({"yl.block": "100"}, "not one of the choices", "64, 128, 256, 512"),
        ({"rows": "many"}, "not an integer", "i64"),
        ({"rows": str(2**63)}, "does not fit", "9223372036854775807"),
        ({"row": "4"}, "no param or decision", "did you mean `rows`?"),
        ({"x[0].transport": "nccl"}, "no param or decision", "did you mean `x.transport`?"),
        ({"streams": "0"}, "not one of the choices", "1 to 64"),
    ],
)
def test_a_bad_define_names_the_choices(defines: dict[str, str], message: str, help: str) -> None:
    with pytest.raises(UsageError) as caught:
        sample("spmv", defines)
    assert message in caught.value.message
    assert help in caught.value.help


# ---- decisions ----------------------------------------------------------------------------------


def test_a_program_without_messages_has_one_transport() -> None:
    p = program()
    assert decision(p, "transport").values == ("mpi_host",)
    assert decision(p, "streams").values == (2,)


def test_a_pinned_choice_is_no_decision() -> None:
    text = "  y : gpu scale(y, x, n, width = k)"
    p = program("let k = 2 * 4", text, "tune width in {4, 8}")
    assert "y.width" not in {d.name for d in p.decisions}
    assert isinstance(p.ops[0], ir.KernelOp)
    assert p.ops[0].tunables == (("width", 8),)


def test_a_decision_is_structural_where_the_graph_depends_on_it() -> None:
    decls = "tune deep in {1, 2}\ntune wide in {1, 2}\nlet twice = 2 * deep\nparam unused : i64 = 1"
    dag = "  for i in 0..twice { s[i] : gpu scale(y, x, n) }\n  y : gpu scale(y, x, n, w = wide)"
    p = program(decls, dag, "tune w in {1, 2}")
    assert decision(p, "deep").structural
    assert not decision(p, "wide").structural
    assert names(program(decls, dag, "tune w in {1, 2}", deep="2")) == ["s[0]", "s[1]", "s[2]", "s[3]", "y"]


def test_a_require_on_ranks_is_left_for_run_time() -> None:
    assert program("require ranks > 1").requires != ()
    assert program("require 1 < 2").requires == ()


def test_devices_of_any_ops() -> None:
    source = Source(
        "t.dag",
        BASE.format(decls="", dag="  y : any scale(y, x, n)", items='cpu { cpp """ y[0] = x[0]; """ }')
        .replace("f32[n] in", "f32[n] on any in")
        .replace("f32[n] out", "f32[n] on any out"),
    )
    p = lower(parse_with_includes(source))
    assert decision(p, "y.device").values == ("gpu", "cpu")
    assert names(p) == ["x.to_device", "y", "y.to_host"]
    q = lower(parse_with_includes(source), {"y.device": "cpu"})
    assert names(q) == ["y"]
    assert isinstance(q.ops[0], ir.KernelOp)
    assert q.ops[0].device is Device.CPU


# ---- values ---------------------------------------------------------------------------------------


def let(p: ir.Program, name: str) -> object:
    value = dict(p.lets)[name]
    assert isinstance(value, Const)
    return value.value


def test_expressions_are_exact() -> None:
    p = program(
        "enum side {lo, hi}\nlet area = {3, 5}\n"
        "let a = 7 / 2 * 2\nlet b = ceil(7 / 2)\nlet c = area[1]\nlet d = 1 == 2 ? 1 / 0 : 4\nlet e = sizeof(f64) % 3\n"
        "for s in side { let f[s] = area[1 - s] }\nlet g = -7 % 3\nlet h = max(1, area[hi])"
    )
    assert [let(p, n) for n in ("a", "b", "c", "d", "e", "f[lo]", "f[hi]", "g", "h")] == [7, 4, 5, 4, 2, 5, 3, 2, 5]


def test_a_label_minus_a_label_index_is_shown_as_a_label() -> None:
    p = program("enum side {lo, hi}", "  for s in side { y[1 - s] : gpu scale(y, x, n) }")
    assert names(p) == ["y[hi]", "y[lo]"]


def test_edges_name_messages_and_ops_of_compounds() -> None:
    decls = """\
array a, b : f32[4] inout
dag twice(z: out f32[n]) {
  one : gpu scale(z, x, n)
  two : gpu scale(z, x, n)
}"""
    dag = """
  c : dag twice(y)
  swap : mpi exchange { row : send a to rank - 1 recv b from rank + 1 }
  d : gpu scale(y, x, n)
  c.one -> swap.row.send
  swap.recv -> d
  c before d
"""
    source = Source("t.dag", BASE.format(decls="", dag=dag, items="").replace("dag {", decls + "\ndag {"))
    p = lower(parse_with_includes(source))
    ends = [(e.u.op, e.u.end.value, e.v.op, e.v.end.value, e.v.message, e.completion) for e in p.edges]
    assert ends == [
        ("c.one", "whole", "swap", "send", "row", True),
        ("swap", "recv", "d", "whole", None, True),
        ("c.one", "whole", "d", "whole", None, False),
        ("c.two", "whole", "d", "whole", None, False),
    ]


def test_included_files_bring_their_items_and_sources(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "sizes.dag").write_text('include "more.dag"\nlet k = more\n')
    (tmp_path / "parts" / "more.dag").write_text("let more = 3\n")
    main = tmp_path / "main.dag"
    main.write_text(BASE.format(decls='include "parts/sizes.dag"', dag="  y : gpu scale(y, x, n)", items=""))
    source = Source.read(main)
    p = lower(parse_with_includes(source))
    assert let(p, "k") == 3
    assert sorted(Path(s).name for s in p.sources) == ["main.dag", "more.dag", "sizes.dag"]


def test_all_errors_are_raised_together() -> None:
    with pytest.raises(ProgramError) as caught:
        program("let a = b\nlet c = d", "  y : gpu scale(y, z, n)")
    assert [d.code for d in caught.value.diagnostics] == ["unknown-name"] * 3


def test_a_long_chain_of_lets_is_refused_not_overflown() -> None:
    chain = "\n".join(f"let a{i + 1} = a{i} + n" for i in range(2000))
    source = Source("t.dag", BASE.format(decls="", dag="  y : gpu scale(y, x, n)", items="") + f"let a0 = n\n{chain}\n")
    lowered = analyse(parse_with_includes(source))
    assert {d.code for d in lowered.diagnostics if d.severity is Severity.ERROR} == {"too-large"}


def test_set_up_files_are_not_looked_for() -> None:
    p = program('setup "not_there.py" make(size_of = 3)')
    assert p.setup is not None
    assert p.setup.args == (("size_of", 3),)


def test_collectives() -> None:
    decls = "array total, piece : f32[4] inout\narray many : i32[ranks] on host const\narray all : f32[8] inout"
    dag = """
  s : mpi allreduce(total, piece, max)
  b : mpi bcast(total, ranks - 1)
  a : mpi alltoallv(all, total, many, many)
  w : mpi barrier()
  y : gpu scale(y, x, n)
"""
    ops = {op.name: op for op in program(decls, dag).ops if isinstance(op, ir.CollectiveOp)}
    assert [a.mode for a in ops["s"].accesses] == [Mode.OUT, Mode.IN]
    assert (ops["s"].reduce, ops["b"].accesses[0].mode, ops["w"].args) == ("max", Mode.INOUT, ())
    assert ops["a"].args[2:] == (ir.Region("many"), ir.Region("many"))


def test_what_a_kernel_touches_is_apart_from_the_pointer_that_it_gets() -> None:
    source = """program t
array u, v : f64[9] inout
kernel step(v: inout f64[*], u: in f64[*], first: i32, last: i32) {
  gpu {
    launch grid(1) block(32)
    cuda \"\"\" int i = first + threadIdx.x; if (i < last) v[i] = u[i - 1] + u[i + 1]; \"\"\"
  }
}
dag {
  halo   : mpi exchange { send u[1 .. 2] to rank - 1  recv u[8 .. 9] from rank + 1 }
  inner  : gpu step(v touching [1 .. 7], u touching [0 .. 8], 1, 7)
  last   : gpu step(v touching [7 .. 8], u touching [6 .. 7][8 .. 9], 7, 8)
}"""
    graph = build_graph(lower(parse_with_includes(Source("t.dag", source))))
    op = next(op for op in graph.program.kernel_ops if op.name == "last")
    assert [a.text for a in op.args if isinstance(a, ir.Region)] == ["v", "u"]
    assert [a.region.text for a in op.accesses] == ["v[7 .. 8]", "u[6 .. 7]", "u[8 .. 9]"]
    edges = {(graph.ops[a].name, graph.ops[b].name) for a, b in graph.completion}
    assert ("wait_recv", "last") in edges
    assert not any(after == "inner" for before, after in edges if before != "start")


@pytest.mark.parametrize("repeat", ["0", "2 - 5"])
def test_a_dag_runs_at_least_once(repeat: str) -> None:
    text = BASE.format(decls="", items="", dag="o : gpu scale(y, x, n)").replace("\ndag {", f"\ndag repeat {repeat} {{")
    found = analyse(parse_with_includes(Source("t.dag", text))).diagnostics
    assert [(d.code, d.help) for d in found if d.severity is Severity.ERROR] == [("bad-size", "give at least 1")]
    program = lower(parse_with_includes(Source("t.dag", text.replace(f"repeat {repeat}", "repeat n"))))
    assert [show(require.condition) for require in program.requires] == ["n >= 1"]


def test_an_edge_puts_a_writer_before_a_reader_that_is_above_it_in_the_text() -> None:
    decls = 'kernel fill(z: out f32[4]) { gpu { launch grid(1) block(4) cuda """ z[threadIdx.x] = 1; """ } }\n'
    decls += "array a : f32[4]\narray b : f32[4] out"
    dag = "  y : gpu scale(y, x, n)\n  late : gpu copy(b, a)\n  early : gpu fill(a)\n"
    assert names(program(decls, f"{dag}  early -> y -> late")) == ["y", "late", "early"]
    written_first = "  early : gpu fill(a)\n  late : gpu copy(b, a)\n  y : gpu scale(y, x, n)\n  late -> y -> early"
    for wrong in (dag, f"{dag}  late -> early", f"{dag}  early before late", written_first):
        with pytest.raises(ProgramError, match="`a` is read before any op writes it"):
            program(decls, wrong)

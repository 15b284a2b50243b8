"""What is emitted, and what is refused."""

from __future__ import annotations

import re
from itertools import islice

import pytest

from dagc.base.errors import DagcError
from dagc.base.resources import resource
from dagc.emit import emit, emit_runner, runtime_headers
from dagc.emit.library import emit_library
from dagc.emit.render import comment, number_lines, tidy
from dagc.ir.plan import Plan, Target
from dagc.space import Space
from tests.emit.build import ALLTOALLV, COLLECTIVES, HALO, ROOT, SINK, SPMV, graph, graph_of, plan


def first(text: str, target: Target = Target.HOST, **defines: str) -> Plan:
    made = graph_of(text, **defines)
    return Plan(made, next(iter(Space(made))), target)


def test_files_of_both_targets() -> None:
    host, cuda = emit(plan(SPMV, Target.HOST)), emit(plan(SPMV, Target.CUDA))
    both = {"kernels.cu", "program.hpp", "iteration.hpp", "CMakeLists.txt", "plan.json", "traversal.txt"}
    assert host.keys() == both | {"bench.cpp", "runner.cpp"}
    assert cuda.keys() == both | {"bench.cu", "runner.cu", "driver.py", "driver_runtime.py"}


def test_kernels_of_a_search_are_apart_from_its_program() -> None:
    apart, whole = emit_runner(plan(SPMV, Target.CUDA)), emit(plan(SPMV, Target.CUDA))
    assert apart.keys() - whole.keys() == {"launches.cu", "launches.hpp", "runner.cpp", "runner_rest.cpp"}
    assert apart["kernels.cu"] == whole["kernels.cu"]
    assert "<<<" not in apart["iteration.hpp"] + apart["runner.cpp"]
    called = set(re.findall(r"dagc_entry::(\w+)\(grid", apart["iteration.hpp"]))
    for name in ("launches.hpp", "launches.cu"):
        assert set(re.findall(r"^void (\w+)\(dim3 grid", apart[name], re.MULTILINE)) == called
    # Host functions of the program, and reductions by kernels of templates.
    for other in (plan(SINK, Target.CUDA), plan(COLLECTIVES, Target.CUDA, transport="peer"), plan(SPMV, Target.HOST)):
        assert "launches.cu" not in emit_runner(other)
    for other in (plan(ALLTOALLV, Target.CUDA), plan(HALO, Target.CUDA)):  # HALO: a function that kernels call
        assert "launches.cu" in emit_runner(other)


def test_kernels_are_the_same_text_on_both_targets() -> None:
    for path in (SPMV, HALO):
        host, cuda = (emit(plan(path, target))["kernels.cu"] for target in (Target.HOST, Target.CUDA))
        assert host.replace("dagc::here().", "") == cuda  # how the host target finds the indices of a thread


def test_only_launches_differ() -> None:
    host = emit(plan(SPMV, Target.HOST))["iteration.hpp"].splitlines()
    cuda = emit(plan(SPMV, Target.CUDA))["iteration.hpp"].splitlines()
    different = [(h, c) for h, c in zip(host, cuda, strict=True) if h != c]
    assert len(different) == 4
    assert all("dagc::launch(" in h and "<<<" in c for h, c in different)


def test_lines_point_into_the_program() -> None:
    text = emit(plan(SPMV, Target.CUDA))["kernels.cu"].splitlines()
    source = SPMV.read_text().splitlines()
    seen = 0
    for i, line in enumerate(text):
        if match := re.fullmatch(r'#line (\d+) "samples/spmv/spmv.dag"', line):
            assert text[i + 1].strip() == source[int(match[1]) - 1].strip()
            seen += 1
        elif match := re.fullmatch(r'#line (\d+) "kernels.cu"', line):
            assert int(match[1]) == i + 2
    assert seen == 3


def test_instances_of_a_kernel_get_names_of_their_own() -> None:
    text = emit(plan(SPMV, Target.CUDA, **{"yl.variant": "warp_per_row", "yr.block": "128"}))["kernels.cu"]
    assert "void spmv_warp_per_row(" in text
    assert "void spmv_thread_per_row(" in text
    text = emit(plan(SPMV, Target.CUDA, **{"yr.block": "128"}))["kernels.cu"]
    assert "void spmv_block64(" in text
    assert "void spmv_block128(" in text


def test_names_of_columns_and_members_do_not_clash() -> None:
    text = """
      program clash
      scalar count, event : i32
      array lambda : f32[count] in
      array load : f32[count] out
      kernel double(y: out f32[n], x: in f32[n], n: i32) {
        gpu { launch grid(1) block(1) cuda \"\"\" if (n) y[0] = x[0]; \"\"\" }
      }
      dag { iteration : gpu double(load, lambda, count) }
    """
    program = emit(first(text))["program.hpp"]
    for member in ("event_{}", "lambda_;", "load_;"):
        assert member in program


@pytest.mark.parametrize("path", sorted((ROOT / "samples").glob("*/*.dag")), ids=lambda p: p.stem)
def test_every_sample_is_emitted_or_refused_clearly(path) -> None:  # type: ignore[no-untyped-def]
    try:
        files = emit(plan(path, Target.HOST))
    except DagcError as error:
        assert "not supported yet" in error.message  # noqa: PT017
        assert re.match(r"samples/\w+/\w+\.dag:\d+:\d+: ", error.message)  # noqa: PT017
    else:
        assert "@" not in re.sub(r"@s\d+", "", files["kernels.cu"])


def test_the_driver_has_a_library_where_pycuda_has_no_function() -> None:
    assert {"driver.py", "driver.cu"} <= emit(plan(SINK, Target.CUDA)).keys()
    assert "driver.cu" not in emit(plan(SPMV, Target.CUDA))
    assert "driver.cu" in emit(plan(SPMV, Target.CUDA, transport="mpi_cuda", capture="true"))


STATEFUL = """program stateful
array x : f64[8] inout
array h : f64[8] on host inout
cuda \"\"\" %s \"\"\"
kernel keep(x: inout f64[8]) { gpu { launch grid(1) block(8) cuda \"\"\" x[threadIdx.x] += 1; \"\"\" } }
kernel look(x: inout f64[8]) { cpu { cpp \"\"\" x[0] += 1; \"\"\" } }
dag { a : gpu keep(x)  %s }
"""


@pytest.mark.parametrize("code", ["__device__ double last;", "static __constant__ float table[2] = {1, 2};"])
def test_variables_of_the_gpu_are_in_one_module(code: str) -> None:
    """Each module has its own, so that PyCUDA launches no kernel of a program that has some beside C++ code."""

    def launched(code: str, more: str) -> bool:
        return "launch_keep(" in emit(first(STATEFUL % (code, more), Target.CUDA))["driver.py"]

    assert launched(code, "")
    assert launched("__device__ double twice(double x) { return 2 * x; }", "b : cpu look(h)")
    assert not launched(code, "b : cpu look(h)")


def test_arrays_may_have_names_of_the_driver_s_own() -> None:
    text = """program names
array receive, want, before_run : f64[8] inout
kernel one(x: inout f64[8]) { gpu { launch grid(1) block(8) cuda \"\"\" x[threadIdx.x] += 1; \"\"\" } }
dag { a : gpu one(receive)  b : gpu one(want)  c : gpu one(before_run) }
"""
    driver = emit(first(text, Target.CUDA))["driver.py"]
    assert len(re.findall(r"self\.\w+ = self\.load", driver)) == 3
    runtime = resource("templates/python/driver_runtime.py").read_text()
    rank = runtime[runtime.index("class Rank:") : runtime.index("def streams(")]
    own = set(re.findall(r"def ([a-z]\w+)|self\.([a-z]\w+)\b", rank))
    members = set(re.findall(r"self\.(\w+) = self\.load", driver))
    assert members.isdisjoint(name for pair in own for name in pair)


def test_device_pointers_are_asked_for_before_any_message() -> None:
    for path, target in ((SPMV, Target.CUDA), (HALO, Target.CUDA), (SPMV, Target.HOST)):
        files = emit(plan(path, target, transport="mpi_cuda"))
        bench = files["bench.cu" if target is Target.CUDA else "bench.cpp"]
        assert bench.index("dagc::require_device_pointers(device_pointers);") < bench.index("iteration(p);")
    assert "require_device_pointers" not in emit(plan(SPMV, Target.CUDA))["bench.cu"]


def test_sizes_that_cannot_be_proved_are_checked() -> None:
    checks = re.findall(r"dagc::check_\w+\(.*\);", emit(plan(SINK, Target.HOST))["program.hpp"])
    assert 'dagc::check_slice(500, p.n, p.n, "b in op high");' in checks
    assert 'dagc::check_peer(p.towards, p.ranks, "x");' in checks
    assert not any("sums" in c for c in checks)  # 0 .. 1 of 2 elements needs no check


def test_requires_are_checked_before_the_first_op() -> None:
    """The order of the ops relies on them, in every program."""
    files = emit(plan(ROOT / "samples/heat/heat.dag", Target.CUDA, transport="mpi_cuda"))
    place, values = r'[^"]*heat.dag:\d+:\d+: ', re.escape('{{"m", p.m}}')
    assert re.search(rf'dagc::check_require\(p.m >= 2, "{place}require m >= 2", {values}\);', files["program.hpp"])
    driver = files["driver.py"]
    (check,) = re.finditer(rf"dagc.check_require\(p.m >= 2, '{place}require m >= 2', {{'m': p.m}}\)", driver)
    assert check.start() < driver.index("def iteration")
    assert "dagc.check_slice(2, p.m, p.m + 2, 'u[0]')" in driver


def test_runtime_headers_are_complete() -> None:
    names = set(runtime_headers())
    for name, path in runtime_headers().items():
        for included in re.findall(r'#include "(dagc/\w+\.hpp)"', path.read_text()):
            assert included in names, f"{name} includes {included}"


def test_tags_are_unique() -> None:
    text = emit(plan(HALO, Target.HOST, per_axis="true"))["iteration.hpp"]
    tags = re.findall(r"dagc::post_send\(.*, (\d+), p\.comm\);", text)
    assert sorted(tags) == [str(t) for t in range(6)]


def test_staging_copies_whole_arrays_once() -> None:
    text = emit(plan(HALO, Target.CUDA, staging="ops"))["iteration.hpp"]
    assert text.count("cudaMemcpyDeviceToHost") == 6
    assert text.count("cudaMemcpyHostToDevice") == 6


def test_graph_choices_reach_the_plan() -> None:
    made = graph(HALO, streams="3", per_axis="true")
    assert made.streams == 3


# ---- filters ------------------------------------------------------------------------------


def test_comment() -> None:
    assert comment("a\n  b \\") == "  // a b \\."  # a backslash at its end would take the next line in
    assert comment("") == ""


def test_number_lines() -> None:
    assert number_lines('a\n#line @ "f"\nb\n#line @ "f"') == 'a\n#line 3 "f"\nb\n#line 5 "f"'


def test_tidy() -> None:
    assert tidy("\n\na  \n\n\n\nb\n\n") == "a\n\nb\n"
    assert tidy("a\n\n\n\nb", empty=2) == "a\n\n\nb\n"


def test_streams_with_a_part_of_messages_have_a_higher_priority() -> None:
    """Where others have none, in the bench and in a library; the runner has the part of each op."""
    made = graph(SPMV, transport="peer", streams="2")
    alone, apart = (Plan(made, traversal, Target.CUDA) for traversal in islice(Space(made), 2))
    assert "iteration_sends" not in emit(alone)["iteration.hpp"]
    texts = emit(apart)
    sends = dict(re.findall(r'\{op_\d+, "(\w+)".*, (\w+)\}', texts["runner.cu"]))
    assert sends == {"pack": "false", "x": "true", "yl": "false", "yr": "false", "y": "false", "end": "false"}
    assert "iteration_sends = {true, false};" in texts["iteration.hpp"]
    assert "prefer(&p.stream, iteration_sends);" in texts["bench.cu"]
    assert "prefer(&program->stream, {true, false" in emit_library(apart, "spmv", "a test")["src/spmv.cu"]

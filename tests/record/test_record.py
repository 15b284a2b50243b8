"""`dagc record`: applications of CUDA and MPI are built for the host and recorded, and their programs run."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dagc import api
from dagc.base.resources import resource
from dagc.build.builder import Build, build
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from dagc.cuda.text import rewrite_for_host
from dagc.emit.common import host_headers
from dagc.ir.program import KernelOp
from dagc.perf.geometry import read_accesses
from dagc.record.application import build_for_host
from dagc.record.footprints import with_footprints
from dagc.record.log import LaunchCall, RankLog
from dagc.record.loop import Window
from dagc.record.sources import Sources
from tests.cli.command import dagc
from tests.tiers import thorough

ROOT = Path(__file__).parents[2]
APPS = Path(__file__).parent / "apps"
mpi = find_mpi()
pytestmark = [
    pytest.mark.skipif(
        mpi is None or mpi.mpiexec is None or find_cxx() is None, reason="needs an MPI and a C++ compiler"
    ),
    pytest.mark.mpi,
    pytest.mark.usefixtures("unoptimised"),
]


def recorded(source: Path, folder: Path, *arguments: str, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
    """Exit code, output, and the program of an application that is recorded in a folder."""
    shutil.copy(source, folder)
    words = ("--host", source.name, "-o", f"{source.stem}.dag", *options, "--quiet", "--")
    done = dagc("record", *words, "mpiexec", "-n", "2", f"./{source.stem}", *arguments, cwd=folder)
    program = folder / f"{source.stem}.dag"
    return done.returncode, done.stdout + done.stderr, program.read_text() if program.exists() else ""


def agrees(program: Path) -> bool:
    """Whether the program computes what was recorded, each op by itself and all of them as they are ordered."""
    done = api.compile(program, program.parent / "out", target="host", run=True, ranks=2, seconds=1e-3, repeats=2)
    return done.result is not None


def built(text: str, folder: Path, name: str, libraries: Path | None = None) -> Path:
    """A program of one file for the host target, without what records."""
    source = folder / f"{name}.cpp"
    source.write_text(rewrite_for_host(text))
    for header, content in host_headers().items():
        (folder / "headers" / header).parent.mkdir(parents=True, exist_ok=True)
        (folder / "headers" / header).write_text(content)
    include = [resource("templates") / "runtime", folder / "headers", *([libraries / "include"] if libraries else [])]
    flags = (f"-L{libraries / 'lib'}", f"-Wl,-rpath,{libraries / 'lib'}") if libraries else ()
    order = Build(
        [source], include=include, mpi=mpi, libraries=("heat",) if libraries else (), warnings_as_errors=False,
        flags=("-w", *flags),
    )  # fmt: skip
    return build(order, folder / name)


def temperature(program: Path, *arguments: str) -> str:
    assert mpi is not None
    done = subprocess.run([str(mpi.mpiexec), "-n", "2", str(program), *arguments], capture_output=True, text=True)
    return done.stdout.rpartition("mean temperature ")[2].strip() or done.stderr


def test_staging_buffers_are_dropped_and_the_loop_is_put_back(tmp_path: Path) -> None:
    """The solver of the port: each exchange through the host is one of rows on the device, and the kernel has the name
    and the launch that it has in the unchanged file. The patched application computes what it did before, by the
    library while its iterations and sizes are those that it has: the application's own kernel is wrong here. It
    computes inner rows during the exchange, as the accesses of the kernel allow."""
    heat = ROOT / "samples/port/before/heat.cu"
    code, said, text = recorded(heat, tmp_path, "64", "32", "12", options=("--replace",))
    assert code == 0, said
    assert "with -D rows_apart=true, so that messages overlap: heat.cu:76: heat_step in inner, first, last rows" in said
    apart = {"rows_apart": True}
    api.compile(tmp_path / "heat.dag", tmp_path / "library", defines=apart, target="host", form="library", force=True)
    graph = api.load_graph(tmp_path / "heat.dag", {"staging": "fused", **apart})
    waits = {op.name: {graph.ops[u].name for u, v in graph.completion if v == op.id} for op in graph.ops}
    assert [waits[f"heat_step_{part}[0]"] for part in ("inner", "first", "last")] == [
        set(), {"halo[0].wait_recv.m0"}, {"halo[0].wait_recv.m1"},
    ]  # fmt: skip
    subprocess.run(["patch", "-s", "-o", "patched.cu", "heat.cu", "heat.patch"], cwd=tmp_path, check=True)
    patched = (tmp_path / "patched.cu").read_text()
    assert "for (int t = 0 + dagc_done; t < steps; ++t)" in patched
    wrong = patched.replace("0.25 *", "0.2 *")
    assert wrong != patched
    before = built(heat.read_text(), tmp_path, "before")
    after = built(wrong, tmp_path, "after", tmp_path / "library")
    assert temperature(after, "64", "32", "16") == temperature(before, "64", "32", "16")
    assert temperature(after, "64", "32", "17") != temperature(before, "64", "32", "17")
    assert temperature(after, "32", "66", "16") != temperature(before, "32", "66", "16")
    ops = re.findall(r"(\w+)\[t\] : (\w+ \w+)", text)
    kinds = [kind for _, kind in ops]
    assert kinds == ["mpi exchange", *["gpu heat_step"] * 4] * 2  # three parts, or all at once
    inner = "heat_step(next[128 .. 2176] touching [128 .. 2048], now[64 .. 2176] touching [65 .. 2111], 30, 64)"
    assert f"heat_step_inner[t] : gpu {inner}" in text
    assert "send now[2048 .. 2112] to partner  recv now[0 .. 64] from partner_2" in text
    assert "launch grid(ceil(nx / 32), ceil(rows / 8)) block(32, 8)" in text
    assert 'cuda heat_step from "heat.cu"' in text
    assert "gpu heat_step(next[64 .. 2176] touching [64 .. 2112], now touching [1 .. 2175], 32, 64)" in text


def test_what_the_host_computes_is_an_op_or_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Conjugate gradients: scalars of each round are ratios of sums of this round and the one before, found by their
    values, which kernels with the same text, and cuBLAS, get from memory; also a result of cuBLAS for the host. What
    follows from nothing that the host read is an op with what was recorded, which a person finishes."""
    monkeypatch.setattr("dagc.recipes.record.with_footprints", text_says_as_much)
    code, said, text = recorded(APPS / "cg.cu", tmp_path, "64", "12", options=("--rounds", "2"))
    assert code == 1, said
    assert "copy(scale, data[t])" in text  # 160 bytes in each round
    assert re.search(r"cg.cu:\d+: the host computes what is copied to scale in each round", said)
    found = re.findall(r"cg.cu:(\d+): the host computes (\w+) of (\w+): (.*)", said)
    lines = (APPS / "cg.cu").read_text().splitlines()
    assert all(kernel in lines[int(number) - 1] for number, _, kernel, _ in found)
    assert [(f"{name} of {kernel}", formula) for _, name, kernel, formula in found] == [
        ("alpha of cublasDgemv", "result_3_kept[0] / result_2[0]"),
        ("alpha of cublasDaxpy", "-(result_3_kept[0] / result_2[0])"),
        ("b of xpby", "result_3[0] / result_3_before[0]"),
    ]  # fmt: skip
    assert re.search(
        r"the host computes middle of apply in each round; the op host_middle gives what was recorded", said
    )
    assert "middle[0] = recorded[0];" in text
    assert "allreduce_2[t - 1] -> host_middle[t]" in text
    assert "dgemv(0, 64, 1, alpha_there, p[1 .. 66] touching [1 .. 65], 64, column, 1, 1.0, x, 1)" in text
    assert "daxpy[t] : gpu daxpy(64, alpha_2_there, q, 1, r, 1)" in text
    assert 'gpu { link "cublas"  cpp dgemv_on_stream from "cg_calls_cublas_v2.cu" }' in text
    assert "b: in f64[*], n: i32) {\n  gpu {\n    launch grid(1) block(128)\n    cuda dot_blocks" in text  # not const
    assert "ddot(64, p[1 .. 66] touching [1 .. 65], 1, q, 1, result)" in text
    assert "dot_blocks(sums, r, r, 64)" in text
    assert "barrier" not in text.partition("dag {")[2]
    left_out = re.search(r"waits that no data require, left out: (.*)", said)
    assert left_out is not None
    assert re.sub(r":\d+", "", left_out[1]) == "cudaDeviceSynchronize at cg.cu, MPI_Barrier at cg.cu"
    assert agrees(tmp_path / "cg.dag")


def text_says_as_much(logs: Sequence[RankLog], found: Sequence[Window], sources: Sources) -> tuple[RankLog, ...]:
    """What kernels touch by their texts covers what was recorded of them."""
    bare = [replace(log, events=tuple(replace(e, touched=()) if isinstance(e, LaunchCall) else e for e in log.events))
            for log in logs]  # fmt: skip
    pairs = [
        (one, other)
        for log, read in zip(logs, with_footprints(bare, found, sources), strict=True)
        for one, other in zip(log.events, read.events, strict=True)
        if isinstance(one, LaunchCall) and isinstance(other, LaunchCall)
    ]
    for recorded_launch, read_launch in pairs:
        said = {touched.memory: touched for touched in read_launch.touched}
        for one in recorded_launch.touched:
            text = said.get(one.memory)
            sides = [] if text is None else [(one.reads, text.reads), (one.writes, text.writes)]
            assert sides or not one.reads + one.writes
            assert all(not real or (its[0] <= real[0] and real[-1] <= its[-1]) for real, its in sides)
    assert any(launch.touched for launch, _ in pairs)
    return tuple(logs)


def test_what_kernels_touch_leaves_the_overlap_of_the_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waves: the inner rows are computed while messages are under way, which need no buffers; the constant is set by an
    op."""
    monkeypatch.setattr("dagc.recipes.record.with_footprints", text_says_as_much)
    code, said, text = recorded(APPS / "waves.cu", tmp_path, "64", "32", "12", options=("--rounds", "2", "--replace"))
    assert code == 0, said
    patch = (tmp_path / "waves.patch").read_text()
    assert "((steps) - (0)) / 4;" in patch  # not of the loop around MPI_Irecv, nor its two calls an iteration
    assert "arrays.before_t_ = {(float*)p.before, 2304};" in patch
    assert "cudaGetSymbolAddress((void**)&arrays.speed.data, speed);" in patch
    assert (text.count("mpi exchange"), text.count("gpu copy")) == (2, 0)
    assert "set_speed : gpu set_speed(speed)" in text
    assert "grid(ceil(nx / 32), ceil((last - first) / 4))" in text
    assert 'cuda rows_of from "waves_calls_waves.cu"' in text  # the file is compiled once
    assert "rows_of(before_ touching [130 .. 254], now touching [2 .. 382], 64, 0, 2)" in text
    assert "rows_of(before_ touching [258 .. 2046], now touching [130 .. 2174], 64, 2, 30)" in text
    order = (tmp_path / "waves_original.txt").read_text().split("\n")
    its = ["rows_of[0]@s0", "rows_of_2[0]@s0", "halo[0].stage_out.m1@s0", "rows_of_3[0]@s1", "halo[0].post_send.m1",
           "halo[0].wait_recv.m0", "halo[0].stage_in.m1@s0", "rows_of_4[0]@s0", "rows_of[1]@s0"]  # fmt: skip
    assert [line for line in order if line in its] == its
    graph = api.load_graph(tmp_path / "waves.dag", {"staging": "fused"})
    before = {name: {graph.ops[u].name for u, v in graph.completion if graph.ops[v].name == name}
              for name in ("rows_of[1]", "rows_of_3[1]")}  # fmt: skip
    assert "halo_2[0].wait_recv.m0" in before["rows_of[1]"]
    assert before["rows_of_3[1]"] == {"rows_of_4[0]", "rows_of_5[0]", "rows_of_6[0]"}
    program = graph.program
    calls = [op for op in program.ops if isinstance(op, KernelOp) and op.name.startswith("rows_of")]
    assert all(read_accesses(program, op).accesses for op in calls)
    assert agrees(tmp_path / "waves.dag")
    assert re.search(
        r"left out: cudaStreamSynchronize at waves.cu:\d+\n.*as dependencies: cudaStream.*, cudaStream", said
    )


def test_waits_are_kept_for_who_wants_them(tmp_path: Path) -> None:
    """Each waits for what its stream, or the device, was given before, and all later calls wait for it."""
    options = ("--rounds", "2", "--keep-waits")
    code, said, _ = recorded(APPS / "waves.cu", tmp_path, "64", "32", "12", options=options)
    assert code == 0, said
    graph = api.load_graph(tmp_path / "waves.dag", {"staging": "fused"})
    before = {op.name: {graph.ops[u].name for u, v in graph.completion if v == op.id} for op in graph.ops}
    assert {"rows_of[0]", "rows_of_2[0]"} <= before["host_wait[0]"]  # on the stream that it waits for
    assert "rows_of_3[0]" not in before["host_wait[0]"] | before["host_wait_2[0]"]
    assert "rows_of_3[0]" in before["host_wait_3[0]"]
    assert "host_wait_3[0]" in before["rows_of_4[0]"]
    assert "host_wait_6[0]" in before["rows_of[1]"]


def test_rows_by_messages_of_their_own_and_sums_by_two_kernels(tmp_path: Path) -> None:
    """Two messages into one buffer, which one copy takes to the GPU, are two messages to its rows there; those of ranks
    that have one buffer for different neighbours are exchanges of their own; sums need no order. What all ranks gather
    is messages between the parts of one array, through no host."""
    code, said, text = recorded(APPS / "rows.cu", tmp_path, options=("--rounds", "1"))
    assert (code, "to finish" in said + text) == (0, False), said
    exchanges = re.findall(r"halo\w* : mpi exchange \{(.*?)\}", text, re.DOTALL)
    gathers = [lines for lines in exchanges if "all_[" in lines]
    exchanges = [lines for lines in exchanges if "recv in_[" in lines]
    assert [re.findall(r"(?:send|recv) all_\[", lines) for lines in gathers] == [["send all_[", "recv all_["]] * 2
    assert re.search(r"require \w+ <= recv_begin \|\| recv_end <= \w+\n", text)
    assert "copy(all_" not in text
    rows = [re.findall(r"recv (\w+)\[(\d+) \.\. (\d+)\]", lines) for lines in exchanges]
    assert len(rows) == 4
    assert all([one[1:] for one in each] == [("0", "32"), ("32", "64")] for each in rows)
    assert len({one[0] for each in rows for one in each}) == 1
    assert text.count(": accumulate f64[*]") == 2


def test_memory_of_a_step_and_columns_of_derived_datatypes(tmp_path: Path) -> None:
    """What each step allocates and frees are arrays; the new field, for which the old one is freed, two that alternate.
    Staging buffers of a step are dropped. Columns are packed, on ranks with a neighbour unpacked. What the host keeps
    from one step to the next are arrays of the host, which begin with what it has then."""
    code, said, text = recorded(APPS / "columns.cu", tmp_path, options=("--rounds", "1"))
    assert (code, "to finish" in said + text, "nothing orders" in said) == (0, False, False), said
    arrays = re.findall(r"^array (\w+) : f64\[(\d+)\] ?(\w*)$", text, re.MULTILINE)
    buffers = [(f"{kind}_{i}", "16", "") for kind in ("from", "to") for i in "01"]
    fields = [(name, "468", "inout") for name in ("f", "v", "v_2")]
    assert sorted(arrays) == sorted([("a", "40", "inout"), ("b", "40", "inout"), *fields, *buffers])
    on_host = re.findall(r"^array (\w+) : f64\[40\] on pinned inout$", text, re.MULTILINE)
    assert re.findall(r"copy\([ab], (\w+)\)", text) == [*on_host, *on_host[::-1]]
    assert len(re.findall(r"^  pack\w* : gpu pack_f64\(to_[01], \w+ touching ", text, re.MULTILINE)) == 4
    assert "unpack : gpu unpack_f64(from_0, v touching [51 .. 442], 51, 1, 16, 26, 1, 0)" in text
    assert sorted(re.findall(r"verify (\w+) ", text)) == ["a", "b", "f", "v", "v_2"]
    assert agrees(tmp_path / "columns.dag")


@thorough
def test_files_of_c_keep_their_names_for_others(tmp_path: Path) -> None:
    """Also where they include headers whose replacements are templates."""
    (tmp_path / "part.c").write_text('#include <curand.h>\n#include <stdio.h>\nvoid said(int n) { printf("%d", n); }\n')
    (tmp_path / "main.cu").write_text('extern "C" void said(int n);\nint main() { said(3); }\n')
    application = build_for_host([str(tmp_path / name) for name in ("main.cu", "part.c")], tmp_path, tmp_path / "built")
    assert subprocess.run([application.program], capture_output=True, text=True, check=True).stdout == "3"

"""Where the application defines its kernels, and what they need; what the host computes."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from dagc.base.errors import RunFailed, UsageError
from dagc.base.flags import user_flags
from dagc.base.resources import resource
from dagc.base.source import include_directories
from dagc.build.builder import Build, build
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from dagc.cuda.text import additions_of
from dagc.recipes.record import shared_gpus
from dagc.record.application import Application, command_of, read_texts, run
from dagc.record.arrays import FreeNames, Values
from dagc.record.commands import WRITTEN, CompileCommands, compiled_as, files_below, read_commands
from dagc.record.flow import KernelCall, Messages, PointerArgument, flow_of
from dagc.record.footprints import pieces_of_launch
from dagc.record.functions import CallableFunctions
from dagc.record.host import History, Read, call_of, formula_of, literals_in, operands_of
from dagc.record.libraries import library_function
from dagc.record.log import LaunchArgument, LaunchCall, MemoryPlace, RankLog, Unsupported, joined, read_logs
from dagc.record.loop import Window, between, period_of, refuse, windows
from dagc.record.merge import Blocks, steps_of
from dagc.record.native import allocated, check_mpi, constant, place_calls
from dagc.record.program import Writer, Written
from dagc.record.races import races
from dagc.record.sources import KernelSource, Sources
from dagc.record.split import RowPart, parts_of, rows_of, value_of_stride

HEADER = """
__global__ void shifted(point* x) { x[threadIdx.x] = x[threadIdx.x + 1]; }
"""
TEXTS = {"src/main.cu": 'typedef double point;\n#include "../include/kernels.h"', "include/kernels.h": HEADER}


def call(kernel: str) -> KernelCall:
    pointer = PointerArgument(MemoryPlace(0, 64, 8), "f64", 8, False, "double")
    return KernelCall("src/main.cu:9", kernel, (1, 1, 1), (32, 1, 1), 0, 0, (pointer,))


def test_a_kernel_of_a_header_is_that_of_the_file_which_is_compiled() -> None:
    """The header needs names that the file defines before it."""
    source = Sources(TEXTS, ["src/main.cu"]).kernel(call("shifted"))
    assert source is not None
    assert source.file == "src/main.cu"


def test_files_whose_functions_and_variables_are_used_are_linked() -> None:
    texts = {
        "k.cu": "extern const float most; float half(float); float f() { return half(1); }",
        "half.cu": "extern const float most;\nfloat half(float x) { return x < most ? x / 2 : 0; }",
        "constants.cu": "const float most = 2;",
        "main.cu": "int main() { return 0; }",
    }
    assert Sources(texts, list(texts)).needed_by(["k.cu"]) == ["half.cu", "constants.cu"]


def test_bounds_that_differ_between_ranks_are_ordered_by_requires() -> None:
    """Without what others imply: rows of 10 .. 30 on one rank, and 20 .. 40 on another, of arrays of 64."""
    values = Values(FreeNames(), 2)
    texts = [values.bound(column, hint) for column, hint in (([64, 64], "size"), ([10, 20], "low"), ([30, 40], "high"))]
    assert texts == ["64", "low", "high"]
    assert list(values.requires()) == ["require low <= high", "require high <= 64"]
    assert values.scalars == {"low": (10, 20), "high": (30, 40)}


SUMS = np.random.default_rng(1).random((2, 3, 4))  # of two ranks, three rounds
ONE = np.random.default_rng(2).random((2, 3, 1))


LOOP = "[&] {{ auto x = {0}[0]; for (int i = 1; i < 4; ++i)"


def in_order(values: np.ndarray) -> np.ndarray:
    total = values[..., 0]
    for i in range(1, values.shape[-1]):
        total = total + values[..., i]
    return total.reshape(-1)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (in_order(SUMS), f"{LOOP} x += {{0}}[i]; return x; }}}}()"),
        (SUMS.max(axis=2).reshape(-1), f"{LOOP} x = std::max(x, {{0}}[i]); return x; }}}}()"),
        (np.sqrt(ONE.reshape(-1) / 0.7), "std::sqrt(({0}[0] / 0.7))"),
        (-(ONE.reshape(-1) * 0.7), "-({0}[0] * 0.7)"),
        ((1.0 - ONE.reshape(-1)) * ONE.reshape(-1), "(1.0 - {0}[0]) * {0}[0]"),
        (0.3 * (9.81 / ONE.reshape(-1)), "(9.81 / {0}[0]) * 0.3"),
        (1 / np.sqrt(ONE.reshape(-1) / 1.2345), "1.0 / std::sqrt({0}[0] / 1.2345)"),
        (np.sin(ONE.reshape(-1)), None),  # no such expression
        (np.array([0.5, 0.25] * 3), None),  # too few bits to tell
    ],
)  # fmt: skip
def test_what_the_host_computes_is_found_by_its_values(wanted: np.ndarray, text: str | None) -> None:
    operands = [*operands_of(Read(3, False), ONE), *operands_of(Read(5, False), SUMS)]
    found = formula_of(wanted, operands, [0.7, *literals_in("a = 0.3f * x1.5 + .25e1 * 9.81;  // 1e3")])
    assert (None if found is None else found.text) == text


CALLED = """#include <cmath>
#include <cstdio>
#include <cstdlib>
static double time_step(double fastest) { return 0.004 / (fastest + std::exp(-fastest)); }
double damped(double a, float b) { return std::tanh(a) * b; }
double whole(double a, int n) { return a * n; }
double counted(double a) { static int calls = 0; std::printf("a call\\n"); return std::tanh(a) + 0.1 * calls++; }
double unused(double a) { std::exit(3); }
int main() { return time_step(1) + damped(1, 2) + whole(1, 2) + counted(1) > 9; }
"""


@pytest.mark.skipif(find_cxx() is None, reason="needs a C++ compiler")
def test_the_host_may_call_functions_of_the_application(tmp_path: Path) -> None:
    """Of one or two floating-point numbers, here of an operand, and of an operand and a number."""

    def built(text: str, file: str) -> Path:
        (tmp_path / file).write_text(CALLED)
        (tmp_path / "a.cpp").write_text(text)
        return build(Build([tmp_path / "a.cpp"], warnings_as_errors=False, flags=("-O0",)), tmp_path / "a")

    functions = CallableFunctions({"app.cu": CALLED}, built)
    assert [function.name for function in functions] == ["time_step", "damped", "counted"]
    values = np.sin(np.arange(1.0, 9.0))
    operands = list(operands_of(Read(3, False), values.reshape(2, 4, 1)))
    wanted = np.array([0.004 / (x + math.exp(-x)) for x in values])
    formula = call_of(wanted, operands, (), functions)
    assert formula is not None
    assert (formula.text, formula.file) == ("time_step({0}[0])", "app.cu")
    formula = call_of(np.array([math.tanh(x) * 0.5 for x in values]), operands, (), functions)
    assert formula is not None
    assert formula.text == "damped({0}[0], 0.5)"
    assert call_of(np.cos(values), operands, (), functions) is None
    of_calls = np.array([math.tanh(x) + 0.1 * calls for calls, x in enumerate(values)])
    assert call_of(of_calls, operands, (), functions) is None


def test_sums_of_single_precision_may_be_in_double() -> None:
    values = SUMS.astype(np.float32)
    wanted = np.sqrt(in_order(values.astype(np.float64)))
    found = formula_of(wanted, list(operands_of(Read(0, True), values)), [])
    assert found is not None
    assert "double x" in found.text
    assert math.isclose(wanted[0] ** 2, float(values[0, 0].sum()), rel_tol=1e-6)


STENCIL = """{
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= rows || j >= nx) return;
  const float* c = now + (size_t)(i + 1) * nx + j;
  next[(i + 1) * nx + j] = 0.25f * (c[-nx] + c[nx] + c[0]) * weight[j];
}"""


def test_rows_are_independent_if_addresses_are_linear_in_them() -> None:
    rows = rows_of(STENCIL, ["next", "now", "weight"], ["rows", "nx"])
    assert rows is not None
    assert (rows.count, rows.more) == ("rows", 0)
    values = {name: value_of_stride(stride, {"rows": 32, "nx": 64}) for name, stride in rows.strides.items()}
    assert values == {"next": 64, "now": 64, "weight": 0}
    kept = STENCIL.replace("i >= rows || j >= nx) return;", "1 + i <= rows - 2 && j < nx) {") + "}"
    inside = rows_of(kept, ["next", "now", "weight"], ["rows", "nx"])
    assert inside is not None
    assert (inside.count, inside.more) == ("rows", -2)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.25f *", "i *"),  # a value depends on the row
        ("c[nx]", "now[rows * nx]"),  # an address on their number
        ("next[(i + 1) * nx + j]", "next[(i + 1) / 2 * nx + j]"),
        ("next[(i + 1) * nx + j]", "next[f(i) * nx + j]"),
        ("next[(i + 1) * nx + j]", "next[blockIdx.y * nx + j]"),
        ("weight[j]", "weight[threadIdx.y]"),  # another stride than that of blocks
        ("weight[j]", "now[2 * i * nx]"),  # another one than that of the array
        ("i >= rows ||", "i >= rows || i < 1 ||"),  # a boundary
        ("i >= rows ||", ""),  # none
        ("if (i >= rows || j >= nx) return;", "if (i < rows) { next[j] = 0; return; }"),
        ("if (i >= rows || j >= nx) return;", "if (i >= rows) { next[j] = 0; return; }"),
        ("if (i >= rows || j >= nx) return;", "if (i < rows && j < nx) next[j] = 1; else return;"),
    ],
)  # fmt: skip
def test_rows_that_may_depend_on_each_other_are_not_apart(old: str, new: str) -> None:
    assert old in STENCIL
    assert rows_of(STENCIL.replace(old, new), ["next", "now", "weight"], ["rows", "nx"]) is None


def test_parts_are_the_largest_that_need_nothing_of_a_message() -> None:
    """Ten rows of four elements: two below and one above are received."""
    parts = parts_of(10, [(0, 48, 4)], [[(0, 8), (44, 48)]])
    assert parts == (RowPart("inner", 2, 9), RowPart("first", 0, 2), RowPart("last", 9, 10))
    assert parts_of(10, [(0, 48, 4)], [[]]) == ()  # nothing is received
    assert parts_of(10, [(0, 48, 0)], [[(0, 8)]]) == ()  # all rows read it


ADDS = "__global__ void add(double* u, double source) { u[threadIdx.x] += source; }"


COPY = {"e": "copy", "at": "app.cu:4", "to": 99, "from": 4096, "bytes": 8, "data": "00" * 8}


def log_of(folder: Path, *more: dict[str, object]) -> RankLog:
    """Of five rounds in which a kernel gets another number each time, and further calls."""
    pointer = {"p": 4096, "of": "f64", "bytes": 8, "const": 0, "type": "double"}
    events: list[dict[str, object]] = [{"e": "rank", "rank": 0, "size": 1},
              {"e": "alloc", "p": 4096, "bytes": 64, "kind": "device", "text": "&u, 64", "of": "",
               "memory": 1}]  # fmt: skip
    for t in range(5):
        number = {"of": "f64", "bytes": 8, "hex": struct.pack("<d", math.sin(t)).hex(), "type": "double"}
        events.append({"e": "launch", "at": "app.cu:3", "kernel": "add", "grid": [1, 1, 1], "block": [8, 1, 1],
                       "shared": 0, "stream": 0, "args": [pointer, number]})  # fmt: skip
        events += more
    events.append({"e": "end"})
    lines = [json.dumps({"n": n, **event}) for n, event in enumerate(events)]
    (folder / "events-1.jsonl").write_text("\n".join(lines))
    return read_logs(folder)[0]


ORDERED: dict[str, list[dict[str, object]]] = {
    "an event": [{"e": "record", "event": 7, "stream": 3}, {"e": "wait", "event": 7, "stream": 5}],
    "the host": [{"e": "sync", "what": "stream", "stream": 3}],
    "an event and the host": [{"e": "record", "event": 7, "stream": 3}, {"e": "sync", "what": "event", "event": 7}],
    "the device": [{"e": "sync", "what": "device"}],
    "the default stream": [{"e": "fill", "to": 9000, "value": 0, "bytes": 8, "stream": 0}],
    "the default stream, apart": [
        {"e": "stream", "stream": 3, "apart": 1},
        {"e": "stream", "stream": 5, "apart": 0},
        {"e": "fill", "to": 9000, "value": 0, "bytes": 8, "stream": 0},
        {"e": "sync", "what": "stream", "stream": 0},
    ],
    "nothing": [],
    "an event of the other stream": [{"e": "record", "event": 7, "stream": 5}, {"e": "wait", "event": 7, "stream": 3}],
    "an event recorded too early": [{"e": "wait", "event": 6, "stream": 5}],
}


@pytest.mark.parametrize("between", ORDERED)
@pytest.mark.parametrize("after", ["fill", "rows", "send", "far"])
def test_races_are_what_nothing_orders(tmp_path: Path, between: str, after: str) -> None:
    """A fill of bytes 0 to 8 in stream 3, and what reads or writes them, or bytes 8 to 16, then. Rows have gaps."""
    place = 4104 if after == "far" else 4096
    later = {"e": "fill", "at": "b.cu:2", "to": place, "value": 0, "bytes": 8, "stream": 5}
    if after == "rows":
        later |= {"bytes": 4, "rows": 2, "pitch": 32}
    if after == "send":
        later = {"e": "send", "at": "b.cu:2", "buf": 4096, "bytes": 8, "type": "f64", "peer": 0, "tag": 0, "comm": 0,
                 "reqs": []}  # fmt: skip
    events = [
        {"e": "alloc", "p": 4096, "bytes": 64, "kind": "device", "text": "&u", "of": "", "memory": 0},
        {"e": "alloc", "p": 9000, "bytes": 8, "kind": "device", "text": "&v", "of": "", "memory": 1},
        {"e": "record", "event": 6, "stream": 3},
        {"e": "fill", "at": "b.cu:1", "to": 4096, "value": 0, "bytes": 8, "stream": 3},
        *ORDERED[between],
        later,
    ]
    lines = [{"e": "rank", "rank": 0, "size": 1}, *({"n": n, **event} for n, event in enumerate([*events]))]
    (tmp_path / "events-1.jsonl").write_text("\n".join(map(json.dumps, lines)))
    logs = read_logs(tmp_path)
    unordered = ["nothing", "the default stream, apart", "an event of the other stream", "an event recorded too early"]
    stream_alone = ["an event", "the default stream"] if after == "send" else []
    found = races(logs, (Window((2, len(logs[0].events))),))
    assert bool(found) is (after != "far" and between in [*unordered, *stream_alone])
    assert all(line.startswith("nothing orders the fill at b.cu:1 in stream 1 before the ") for line in found)
    assert all(("and one may write what" in line) is (after == "rows") for line in found)


def test_what_dagc_wrote_is_no_file_of_the_application(tmp_path: Path) -> None:
    for name, text in (("a.cu", "int main() {}"), ("a_calls_a.cu", f'{WRITTEN}\n#include "a.cu"\n')):
        (tmp_path / name).write_text(text)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/.dagc-output").touch()
    (tmp_path / "out/a.cu").write_text("int main() {}")
    assert files_below(tmp_path) == (str(tmp_path / "a.cu"),)


@pytest.mark.parametrize(("gpus", "said"), [("aab", ["ranks 0 and 1"]), ("abc", []), (("", "", "a"), [])])
def test_ranks_on_one_gpu_are_named(tmp_path: Path, gpus: Sequence[str], said: list[str]) -> None:
    for rank, gpu in enumerate(gpus):
        lines = [
            {"e": "rank", "rank": rank, "size": len(gpus)},
            {"e": "gpu", "uuid": gpu},
            {"e": "alloc", "n": 0, "p": 4096, "bytes": 64, "kind": "device", "text": "&u", "of": "", "memory": 0},
        ]
        (tmp_path / f"events-{rank}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert [line.partition(" ran on")[0] for line in shared_gpus(read_logs(tmp_path))] == said


def of_a_log(log: RankLog) -> Written:
    found = next(windows([log], between([log], None, None), 4))
    steps = steps_of([flow_of(log, found[0])])
    blocks, sources = Blocks([log], found, steps), Sources({"app.cu": ADDS}, ["app.cu"])
    return Writer("app", steps, blocks, sources, found[0].rounds, History([log], found)).write("")


def test_a_wait_for_an_event_is_for_what_was_issued_before_it(tmp_path: Path) -> None:
    """The copy after it has not arrived: the wait for the stream is what a reduction of it on the host requires."""
    reduced = {"e": "collective", "op": "allreduce", "send": 99, "recv": 199, "bytes": 8, "type": "MPI_DOUBLE",
               "operator": "sum", "root": -1, "ranks": [0]}  # fmt: skip
    waits = ({"e": "sync", "what": "event", "event": 7}, {"e": "sync", "what": "stream", "stream": 0})
    log = log_of(tmp_path, {"e": "record", "event": 7, "stream": 0}, COPY, *waits, reduced)
    found = next(windows([log], between([log], None, None), 4))
    assert [(wait.call, required) for wait, required in flow_of(log, found[0]).waits] == [
        ("cudaEventSynchronize", False), ("cudaStreamSynchronize", True),
    ]  # fmt: skip


def test_a_buffer_that_is_sent_and_then_received_into_is_one_exchange(tmp_path: Path) -> None:
    """What was sent of it is on the device."""
    message = {"buf": 99, "bytes": 8, "type": "MPI_DOUBLE", "peer": 0, "tag": 0, "comm": 1, "reqs": []}
    send, receive = {"e": "send", "at": "app.cu:5", **message}, {"e": "recv", "at": "app.cu:6", **message}
    log = log_of(tmp_path, COPY, send, receive, {**COPY, "at": "app.cu:7", "to": 4104, "from": 99})
    found = next(windows([log], between([log], None, None), 4))
    exchanges = [op for op in flow_of(log, found[0]).rounds[0] if isinstance(op, Messages)]
    assert [(len(one.sends), len(one.receives)) for one in exchanges] == [(1, 1)]


def test_sends_that_are_never_waited_for_belong_to_their_rounds(tmp_path: Path) -> None:
    message = {"bytes": 8, "type": "MPI_DOUBLE", "peer": 0, "tag": 0, "comm": 1}
    send = {"e": "send", "at": "app.cu:5", "buf": 4096, "reqs": [5], **message}
    receive = {"e": "recv", "at": "app.cu:6", "buf": 4104, "reqs": [6], **message}
    log = log_of(tmp_path, send, receive, {"e": "complete", "at": "app.cu:7", "reqs": [6]})
    found = next(windows([log], between([log], None, None), 4))
    assert [sum(isinstance(op, Messages) for op in ops) for ops in flow_of(log, found[0]).rounds] == [1] * 4


def test_of_several_loops_that_with_launches_and_messages_is_recorded() -> None:
    """Not one that warms up MPI, nor one that computes the result again on one GPU: all of them have one period."""
    warm, alone = [("Send", "a:1"), ("Recv", "a:2")], [("LaunchCall", "a:3"), ("Fill", "a:4")]
    both = [("LaunchCall", "a:5"), ("Send", "a:6")]
    assert period_of([*warm * 20, *alone * 9, *both * 9], 0, 76) == (58, 2, 9)
    assert period_of([*warm * 20, *alone * 9], 0, 58) == (40, 2, 9)


def test_numbers_of_a_host_that_reads_nothing_are_data(tmp_path: Path) -> None:
    """They depend on nothing that the rounds compute. If it reads something, they may: a person looks."""
    alone = of_a_log(log_of(tmp_path))
    assert (alone.own, alone.unfinished) == (("app.cu:3: source of add",), ())
    assert "add[t] : gpu add(u, source[t])" in alone.text
    beside = of_a_log(log_of(tmp_path, COPY))
    assert beside.own == ()
    assert ["source of add in each round; the op host_source gives" in note for note in beside.unfinished] == [True]
    assert "copy_source[t] : gpu copy(source_there, source)" in beside.text


PROGRAM = r"""#include <cstdio>
long where[2];
__attribute__((noinline)) long call() { return (long)__builtin_return_address(0) - 1; }
__attribute__((always_inline)) inline void kernel() { where[0] = call(); }
int main() {
  kernel();
  where[1] = call();  // cudaMalloc(&x,
                      // 8)
  std::printf("%ld %ld", where[0], where[1]);
}
"""


@pytest.mark.skipif(find_cxx() is None or shutil.which("addr2line") is None, reason="needs a compiler and binutils")
def test_calls_of_a_program_as_it_is_stand_where_its_debug_information_says(tmp_path: Path) -> None:
    """A launch not at the definition of its kernel, to which nvcc gives the call."""
    source, program, compiler = tmp_path / "a.cpp", tmp_path / "a", find_cxx()
    source.write_text(PROGRAM)
    assert compiler is not None
    subprocess.run([compiler.path, "-g", "-no-pie", source, "-o", program], check=True)
    check_mpi(["mpiexec", str(program)], find_mpi())  # it is linked with none
    launch, alloc = map(int, subprocess.run([program], capture_output=True, check=True).stdout.split())
    log, application = tmp_path / "events-1.jsonl", Application(program, {"a.cpp": PROGRAM}, ("a.cpp",), None, program)
    events = [
        {"e": "launch", "n": 0, "frames": [launch], "symbol": "_Z6kernelv", "args": [], "parameters": 0},
        {"e": "alloc", "n": 1, "frames": [alloc]},
    ]
    log.write_text("\n".join(map(json.dumps, events)))
    with pytest.raises(RunFailed, match="no process loaded the library that records the calls of CUDA"):
        place_calls(tmp_path, application, tmp_path)
    (tmp_path / "program-1").write_text(str(program))
    place_calls(tmp_path, application, tmp_path)
    placed = [json.loads(line) for line in log.read_text().splitlines()]
    assert [event["at"] for event in placed] == ["a.cpp:6", "a.cpp:7"]
    assert placed[1]["text"].startswith("&x,")
    log.write_text("\n".join(map(json.dumps, events)))
    os.utime(source, (program.stat().st_mtime + 1,) * 2)
    with pytest.raises(UsageError, match=r"a.cpp is newer than .*a, which was recorded"):
        place_calls(tmp_path, application, tmp_path)
    os.utime(source, (0, 0))
    log.write_text(json.dumps(events[0] | {"frames": [1], "kernel": ""}))
    with pytest.raises(UsageError, match=r"its calls stand in no line of a.cpp"):
        place_calls(tmp_path, application, tmp_path)


def test_a_variable_that_is_set_is_constant_memory() -> None:
    """Kernels may have written another since, so the data of the host that set it are not what the GPU has."""
    declared = "__device__ __constant__ double a2, tau[4];\n__device__ float hits;\n"
    texts = {"a.cu": f"{declared}cudaMemcpyToSymbol(\n  tau,\n &t, 32)"}
    event = {"e": "alloc", "kind": "symbol", "at": "a.cu:4", "text": allocated(texts, "a.cu:4")}
    assert event["text"] == "tau, &t, 32"
    assert constant(event, texts) == "f64"
    with pytest.raises(UsageError, match="a.cu:4: hits is not __constant__"):
        constant(event | {"text": "hits, &h, 4"}, texts)


TOUCHES = """{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  BODY
}
"""


@pytest.mark.parametrize(
    ("body", "reads", "writes"),
    [
        ("if (i >= 1 && i < n - 1) y[i] = x[i - 1] + x[i + 1];", ((0, 100),), ((1, 99),)),
        ("if (i < n) for (int k = 0; k < 3; ++k) y[i] += x[k * n + i];", ((0, 300),), ((0, 100),)),
        ("for (int k = i; k < n; k += blockDim.x * gridDim.x) y[k] = x[k];", ((0, 100),), ((0, 100),)),
        ("if (i < n) y[i] = x[max(i - kHalo, 0)];", ((0, 98),), ((0, 100),)),
        ("if (i < LAST) y[i] = x[i / 2];", ((0, 5),), ((0, 10),)),
        ("if (i < n) add(y, x[i]);", ((0, 100),), None),  # a function may store anywhere
        ("if (i < n) y[i] = x[(int)y[i]];", None, ((0, 100),)),
        ("if (i < n) for (int k = 0; k < (int)y[0]; ++k) y[i] = x[k];", ((0, math.inf),), ((0, 100),)),
        ("if (i < n && i < SIZE) y[i] = x[i];", ((0, 100),), ((0, 100),)),  # SIZE may be another
        ("if (i < 0) y[i] = x[i];", (), ()),
        ("if (i < 4) y[(i - 10) / 8 + 5] = x[(i - 10) % 8 + 7];", ((-3, 9),), ((4, 6),)),  # rounded towards zero
        ("if ((unsigned)(i - 2) < 10u) y[i] = 1; else y[0] = x[i];", ((0, 128),), ((0, 128),)),  # large, if negative
        ("if (threadIdx.x - 4 > 6) y[i] = x[threadIdx.x - 4 > 6 ? i : 0];", ((0, 128),), ((0, 128),)),
        ("if (i < 9) y[min(threadIdx.x - 4, 10u)] = 1;", (), None),
        ("int k = 50; do { y[k] = 1; ++k; } while (k < 40);", (), ((50, 51),)),
        ("#define X(k) x[k]\n  if (i < n) { real a = X(i); y[i] = (real)a; }", ((0, 100),), ((0, 100),)),
    ],
)  # fmt: skip
def test_what_a_kernel_touches_is_read_from_its_text(
    body: str, reads: tuple[tuple[float, float], ...] | None, writes: tuple[tuple[int, int], ...] | None
) -> None:
    """Elements of `x` and `y`; None: all. 4 blocks of 32 threads; 100 is passed by value."""
    text = "typedef double real;\nconstexpr int kHalo = 2;\n#define X(k) x[k]\n#define LAST 10\n"
    text += "#ifndef SIZE\n#define SIZE 50\n#endif\n"
    source = KernelSource("a.cu", ("y", "x", "n"), False, (), TOUCHES.replace("BODY", body))
    pointers = tuple(LaunchArgument("f64", 8, p, const, "", "double") for p, const in ((4096, 0), (1 << 20, 1)))
    args = (*pointers, LaunchArgument("i32", 4, -1, 0, "64000000", "int"))
    launch = LaunchCall(n=0, kernel="k", grid=(4, 1, 1), block=(32, 1, 1), shared=0, stream=0, args=args)
    found = pieces_of_launch(launch, source, text)
    assert found is not None
    for key, wanted in (((1, False), reads), ((0, True), writes)):
        pieces = joined(cast("list[tuple[int, int]]", found.get(key, ())), 4)  # or infinite, which compare as well
        every = ((-math.inf, math.inf),)
        assert pieces == (every if wanted is None else tuple((8 * a, 8 * b) for a, b in wanted))


@pytest.mark.parametrize(
    ("body", "other", "passed", "adds"),
    [
        ("atomicAdd(&y[x[i]], 1); if (x[i] > 0) { atomicSub(y + i, x[i]); atomicAdd(y, 1); }", "", "", True),
        ("atomicAdd(&y[i], 1); x[i] = y[i];", "y[i]", "", True),
        ("atomicAdd(&y[i], 1); (*y)++;", "*y", "", True),
        ("atomicAdd(y + i + 1, 1); x[i] = y[i] + 1;", "y[i] + 1", "", True),
        ("int k = atomicAdd(&y[i], 1); x[k] = i;", "atomicAdd(&y[i], 1)", "", False),
        ("atomicMax(y + i, x[i]);", "atomicMax(y + i, x[i])", "", False),
        ("atomicAdd(&x[i], y[i]);", "atomicAdd(&x[i], y[i])", "", False),
        ("add(&y[i], x[i]); int* p = y + i;", "", "add(&y[i], x[i])", False),
        ("#define Y y[i]\natomicAdd(&y[0], Y);", "", "#define Y y[i]", True),
        ("atomicExch((unsigned*)&y[i], 1);", "atomicExch((unsigned*)&y[i], 1)", "", False),
        ("x[i] = (int)atomicAdd((int*)(y + i), 1);", "atomicAdd((int*)(y + i), 1)", "", False),
        ("atomicAdd((int*)(y + i), 1);", "", "atomicAdd((int*)(y + i), 1)", False),
        ("x[i] = 1;", "", "", False),
    ],
)
def test_a_kernel_accumulates_if_it_only_adds_atomically(body: str, other: str, passed: str, adds: bool) -> None:
    found = additions_of(body, "y")
    assert (found.adds, found.passed) == (adds, passed)
    assert other in found.other
    assert bool(found.other) == bool(other)


@pytest.mark.parametrize(
    ("name", "numbers", "elements"),
    [  # as recorded on the host target
        ("cublasDgemm", (0, 1, 24, 20, 24, 24, 24, 24), {"A": 576, "B": 572, "C": 480, "beta": 1}),
        ("cublasDgemv", (1, 24, 12, 24, 1, 2), {"A": 288, "x": 24, "y": 23}),
        ("cublasDger", (4, 5, 1, 1, 24), {"A": 100, "x": 4, "y": 5}),
        ("cublasScopy", (24, 1, -1), {"x": 24, "y": 24}),
        ("cublasSdot", (12, -2, 2), {"x": 23, "y": 23, "result": 1}),
        ("cublasSaxpy", (0, 1, 1), {"x": 0, "y": 0}),
        ("cublasDgeam", (1, 0, 3, 2, 5, 4, 3), {"A": 12, "B": 7, "C": 6}),
        ("cublasSdgmm", (1, 3, 2, 3, 2, 3), {"A": 6, "x": 3, "C": 6}),
        ("cublasIdamax", (7, 1), {"x": 7, "result": 1}),
    ],
)
def test_what_calls_of_cublas_touch(name: str, numbers: tuple[int, ...], elements: dict[str, int]) -> None:
    function = library_function(name)
    assert function is not None
    names = function.parameters
    pointers = {*function.arrays, *(i for i, its in enumerate(names) if its in ("alpha", "beta", "result"))}
    values = dict(zip((its for i, its in enumerate(names) if i not in pointers), numbers, strict=True))
    found = {one: function.touched(values, names.index(one), 8) for one in elements}
    assert found == {one: ((0, 8 * count),) if count else () for one, count in elements.items()}


def test_a_kernel_that_a_library_launches_is_named() -> None:
    launch = LaunchCall(
        n=0, at="a.cu:7", kernel="gemm", grid=(1, 1, 1), block=(1, 1, 1), shared=0, stream=0, args=(), library="cublas"
    )
    with pytest.raises(UsageError, match="a.cu:7: cublas launches a kernel here"):
        refuse((RankLog(0, 1, (launch,), ended=True),), (Window((0, 1)),))


def test_a_kernel_with_conditions_of_the_preprocessor_may_touch_anything() -> None:
    source = KernelSource("a.cu", ("y",), False, (), "{\n#ifdef ALL\n  y[0] = 1;\n#endif\n}")
    args = (LaunchArgument("f64", 8, 4096, 0, "", "double"),)
    launch = LaunchCall(n=0, kernel="k", grid=(1, 1, 1), block=(1, 1, 1), shared=0, stream=0, args=args)
    assert pieces_of_launch(launch, source, "") is None


RANKS = """#include <mpi.h>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Barrier(MPI_COMM_WORLD);
  int one = 1, sum = 0;
  MPI_Scan(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
}
"""
IN_EACH = """#include <unistd.h>
#include <execinfo.h>
#include <fstream>
#include "log.hpp"
static std::string frames() {  // of a program that is not position-independent
  void* stack[16];
  const int count = backtrace(stack, 16);
  std::string out;
  for (int i = 0; i < count; ++i) out += (i == 0 ? "" : ", ") + std::to_string((unsigned long)stack[i] - 1);
  return "[" + out + "]";
}
__attribute__((constructor(102))) static void loaded() {
  const char* folder = getenv("DAGC_RECORD_TO");
  if (folder == nullptr) return;
  char path[4096] = "";
  if (readlink("/proc/self/exe", path, sizeof path - 1) > 0)
    std::ofstream(std::string(folder) + "/program-" + std::to_string(getpid())) << path;
  dagc::record::device({nullptr, nullptr, nullptr, nullptr, frames});
}
"""


@pytest.mark.mpi
@pytest.mark.skipif(
    find_cxx() is None or find_mpi() is None or shutil.which("addr2line") is None or sys.platform != "linux",
    reason="needs a compiler, an MPI and binutils",
)
def test_the_starter_of_mpi_is_not_the_application(tmp_path: Path) -> None:
    """It loads the library too, as an MPI that looks for GPUs makes it do; it is older than the source."""
    own, mpi, compiler = resource("templates") / "record", find_mpi(), find_cxx()
    assert mpi is not None
    assert compiler is not None
    (tmp_path / "ranks.cpp").write_text(RANKS)
    (tmp_path / "each.cpp").write_text(IN_EACH)
    sources = [tmp_path / "each.cpp", own / "log.cpp", own / "mpi.cpp"]
    library = Build(
        sources, include=(own,), mpi=mpi, shared=True, flags=("-w", "-O0"), libraries=(), warnings_as_errors=False
    )
    flags = ("-g", "-no-pie", "-fno-pie", "-O0")
    program = build(Build([tmp_path / "ranks.cpp"], mpi=mpi, flags=flags, warnings_as_errors=False), tmp_path / "ranks")
    loaded = build(library, tmp_path / "librecord.so")
    application = Application(loaded, {"ranks.cpp": RANKS}, ("ranks.cpp",), mpi, loaded)
    words = command_of(application, ["ranks.cpp"], ["mpiexec", "-n", "2", str(program)])
    run(words, tmp_path / "log", application, 60, "", 0)
    notes = [note.read_text() for note in (tmp_path / "log").glob("program-*")]
    assert sum(Path(note).name == "ranks" for note in notes) == 2
    assert len(notes) > 2
    place_calls(tmp_path / "log", application, tmp_path)
    logs = read_logs(tmp_path / "log")
    assert [[event.at for event in log.events] for log in logs] == [["ranks.cpp:4", "ranks.cpp:6", "ranks.cpp:7"]] * 2
    assert all(log.events[1] == Unsupported(n=log.events[1].n, at="ranks.cpp:6", call="MPI_Scan") for log in logs)


COMMANDS = [
    {
        "directory": "build",
        "file": "../src/main.cu",
        "command": "nvcc -dc -DN=64 -I../include -isystem /usr/include -I" + 300 * "long",
    },
    {
        "directory": "build",
        "file": "../src/k.cpp",
        "arguments": "c++ -D N=64 --options-file inc.rsp -iquote../src -include config.h -DX=1 -U X".split(),
    },
    {"directory": "build", "file": "../src/tables.s", "command": "as"},
]


def test_files_and_flags_of_compile_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories of the application, not those of its libraries; in the environment within the block."""
    (tmp_path / "include").mkdir()
    (tmp_path / "build").mkdir()
    (tmp_path / "src/own").mkdir(parents=True)
    (tmp_path / "build/inc.rsp").write_text("-I../src/own")
    (tmp_path / "build/config.h").touch()
    path = tmp_path / "compile_commands.json"
    path.write_text(json.dumps(COMMANDS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGC_CXXFLAGS", "-O1")
    for name in ("DAGC_INCLUDE", "DAGC_NVCCFLAGS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("src/main.cu", "src/own/k.cpp", "src/own/part.c", "src/own/.k.cpp", "src/notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "src/own/k.cpp").write_text('#include "part.c"')
    (tmp_path / "src/main.cu").write_text(text := f'#include "{300 * "long"}.h"\n')
    assert read_texts(["src/main.cu"], tmp_path) == {tmp_path / "src/main.cu": text}  # where a condition leaves it out
    with compiled_as(["src"]) as commands:
        assert commands == CompileCommands(("src/main.cu", "src/own/k.cpp"))
        assert commands.environment() == {"DAGC_CXXFLAGS": "-O1"}  # the command to run next has it too
    (tmp_path / "src/own/part.c").write_text('#include "k.cpp"')
    with pytest.raises(UsageError, match="each file is included by another"), compiled_as(["src/own"]):
        pass
    with compiled_as([str(path)]) as commands:
        assert commands.files == ("src/main.cu", "src/k.cpp")
        assert include_directories() == (tmp_path / "include", tmp_path / "src/own", tmp_path / "src")
        flags = ["-DN=64", "-UX", "-include", str(tmp_path / "build/config.h")]
        assert user_flags(cuda=False) == ["-O1", *flags]
        assert user_flags(cuda=True) == [*flags, "-rdc=true"]
    assert include_directories() == ()
    assert user_flags(cuda=False) == ["-O1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a list of commands"),
        ('[{"file": "a.cu"}]', "entry 1: not a command with its directory and file"),
        ('[{"directory": ".", "file": "a.cu", "command": "nvcc \'"}]', "entry 1: not a command"),
        ('[{"directory": ".", "file": "a.s", "command": "as"}]', "no file of C, C[+][+] or CUDA"),
        (
            json.dumps([{"directory": ".", "file": f"{n}.cu", "command": f"nvcc -DN={n}"} for n in (1, 2)]),
            "entry 2: N is another macro than for a file before",
        ),
        (
            '[{"directory": ".", "file": "a.cu", "command": "nvcc @loop.rsp"}]',
            "loop.rsp: files of options name each other",
        ),
        ('[{"directory": ".", "file": "a.cu", "command": "nvcc @torn.rsp"}]', "torn.rsp: no file of options"),
        (
            '[{"directory": ".", "file": "a.cu", "arguments": ["-DX=\\u0000"]}]',
            "entry 1: .* neither a path nor a flag",
        ),
        ('[{"directory": "\\ud800", "file": "a.cu", "arguments": []}]', "entry 1: .* neither a path nor a flag"),
        ('[{"directory": ".", "file": "a.cu", "command": "nvcc @wide.rsp"}]', "are more than 64"),
        ('[{"directory": ".", "file": "a.cu", "command": "nvcc -D -fplugin=a"}]', "'-fplugin' is no name of a macro"),
        ('[{"directory": ".", "file": "a.cu", "command": "nvcc -DX=%s"}]' % ("2" * 200_000), "longer than 131072"),
        ('[{"directory": ".", "file": "a.cu", "command": "nvcc -DX=%s"}]' % ("2" * 300_000), "more than 262144"),
    ],
)
def test_compile_commands_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "loop.rsp").write_text("@loop.rsp")
    (tmp_path / "torn.rsp").write_text("-I'")
    (tmp_path / "wide.rsp").write_text("@other.rsp " * 64)
    path = tmp_path / "compile_commands.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_commands(path)

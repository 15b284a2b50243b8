"""Ops whose device is chosen when the program runs: every placement gives the results of NumPy, under any traversal; a
copy, an order or a note that is missing is found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from random import Random

import pytest

from dagc import api
from dagc.base.errors import UsageError
from dagc.base.source import Source
from dagc.build.builder import Build, build
from dagc.build.mpi import find_mpi, require_mpi, thread_sanitizer_environment
from dagc.build.toolchain import find_cxx, find_nvcc, gpus
from dagc.emit import emit, never_captured
from dagc.emit.forms import table_line
from dagc.ir.plan import Plan, Target, answers_of, open_variants, users_of, values_of
from dagc.ir.program import CopyOp, Graph, KernelOp
from dagc.ir.sym import show
from dagc.ir.traversal import Traversal
from dagc.lang.lower import analyse, parse_with_includes
from dagc.measure.launch import Finished, launch
from dagc.passes import build_graph
from dagc.recipes.show import show as show_dag
from dagc.setup import run_setup
from dagc.space import Space
from dagc.space.loops import unroll
from dagc.space.proof import Prover
from dagc.stages.program import ProgramText, read
from tests.emit.build import ROOT, write
from tests.measure.conftest import wander
from tests.precompiled import by_clang, do_not_optimise

PLACED = ROOT / "tests/emit/data/placed.dag"
MAIN = ROOT / "tests/emit/data/placements.cpp"
OPS = ("first", "second", "half", "rest", "only", "last")
RANKS = 2

mpi = find_mpi()
needs_mpi = pytest.mark.skipif(mpi is None or mpi.mpiexec is None or find_cxx() is None, reason="needs an MPI")

# What a mutant of the runtime leaves out, and the text that does it.
MUTANTS = {
    "the wait for a copy on another stream": "if (copy.under_way && stream != copy.stream)",
    "the note that the device was written": "void wrote(Side side) {",
    "the wait of the host for the stream": "{ DAGC_CUDA(cudaStreamSynchronize(stream)); }",
    "the copy of what ends on the host": "if (ends_ == Ends::on_host) need_on_host_now();",
    "the wait before a copy of pageable memory": "if (!storage_.page_locked && kind == cudaMemcpyHostToDevice)",
}


# Ops that a worker thread runs where they are on the CPU; `host` and `beside` are there always.
WORKERS = {f"{op}.thread": "worker" for op in ("first.cpu", "half.cpu", "last.cpu", "host", "beside")}


def text_of(capture: str = "false", path: Path = PLACED) -> ProgramText:
    """`path`: if it is another file, its ops on the CPU run in no worker threads."""
    how = {"capture": capture, "host_memory": "pageable", "transfers": "early"}
    return read(path, {**how, **(WORKERS if path == PLACED else {})}).with_open_devices()


def plan_of(graph: Graph, target: Target = Target.HOST) -> Plan:
    ops = {op.op.site: op.op for op in graph.ops if isinstance(op.op, KernelOp)}
    opened = tuple(t for op in ops.values() for t in open_variants(graph.program, op))
    return Plan(graph, Space(graph).first(), target, open=opened)


@dataclass(frozen=True)
class Placements:
    """The program with every variant, which runs traversals under placements."""

    graph: Graph
    binary: Path
    data: Path
    sanitize: str

    def run(self, lines: list[str], first_report: bool = False, pageable: bool = False) -> Finished:
        orders = self.data.parent / "orders.txt"
        orders.write_text("".join(f"{line}\n" for line in lines))
        env = thread_sanitizer_environment(require_mpi()) if self.sanitize else {}
        env["PLACEMENTS_PAGEABLE"] = "1" if pageable else ""
        if first_report:
            env["TSAN_OPTIONS"] += " halt_on_error=1"
        return launch([self.binary, self.data, orders], RANKS, env=env, timeout=300)

    def lines(self, number: int, seed: int, mutant: int = 0) -> list[str]:
        """Random placements, each under a random traversal, with and without capture regions."""
        random, space = Random(seed), Space(self.graph)
        ops = {op.name: op for op in self.graph.program.kernel_ops}
        numbers = [len(answers_of(self.graph.program, ops[op])) for op in OPS]
        out = []
        for turn in range(number):
            traversal = wander(space, random)
            assert Prover(self.graph).proved(traversal)
            variants = [random.randrange(number) for number in numbers]
            rows = table_line(traversal, turn % 2 == 1, never_captured(self.graph))
            out.append(f"{mutant} {' '.join(map(str, variants))} |{rows}")
        return out


def built(folder: Path, sanitize: str = "", target: Target = Target.HOST, path: Path = PLACED) -> Placements:
    graph = text_of("true", path).graph()
    write(plan_of(graph, target), folder)
    header = folder / "include/dagc/two_sided.hpp"
    text = header.read_text()
    for number, left_out in enumerate(MUTANTS.values(), 1):
        assert text.count(left_out) == 1
        guarded = left_out.replace("if (", f"if (!mutated({number}) && ")
        guarded = guarded.replace("DAGC_CUDA", f"if (!mutated({number})) DAGC_CUDA")
        if left_out.startswith("void"):
            guarded = f"{left_out}\n    if (mutated({number}) && side == Side::device) return;"
        text = text.replace(left_out, guarded)
    copy = "void copy(T* to, const T* from, cudaMemcpyKind kind, cudaStream_t stream, Copy& copy) const {"
    assert text.count(copy) == 1
    header.write_text(text.replace(copy, f"{copy}\n    ++copies;"))
    program = folder / "program.hpp"
    text, pageable = program.read_text(), "store.page_locked = false;"
    assert text.count(pageable) == 1
    chosen = 'store.page_locked = *std::getenv("PLACEMENTS_PAGEABLE") == 0;'
    program.write_text(text.replace(pageable, chosen))
    end = "cu" if target is Target.CUDA else "cpp"
    main = folder / f"placements.{end}"
    main.write_text(MAIN.read_text().replace("runner.cpp", f"runner.{end}"))
    run_setup(graph.program, PLACED.parent, RANKS, 3, folder / "data")
    openmp = graph.program.devices.sockets > 0
    flags = ("-O0", *by_clang()) if target is Target.HOST else ()
    order = Build([main], mpi=require_mpi(), target=target.value, sanitize=sanitize, flags=flags, openmp=openmp)
    binary = build(order, folder / "placements")
    return Placements(graph, binary, folder / "data", sanitize)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Placements:
    return built(tmp_path_factory.mktemp("plain") / "out")


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Placements:
    return built(tmp_path_factory.mktemp("sanitized") / "out", "thread")


@needs_mpi
@pytest.mark.mpi
def test_every_placement_gives_the_results_of_numpy(plain: Placements) -> None:
    """All placements under the first traversal, and random ones under random traversals; each op changes only what it
    declares."""
    first = table_line(Space(plain.graph).first())
    every = product(range(3), range(3), range(2), range(2), range(2), range(3))
    lines = [f"0 {' '.join(map(str, variants))} |{first}" for variants in every] + plain.lines(60, seed=1)
    for some, pageable in ((lines, False), (plain.lines(30, seed=6), True)):
        done = plain.run(some, pageable=pageable)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert done.stdout.count(": good") == len(some)


@needs_mpi
@pytest.mark.mpi
@pytest.mark.gpu
@pytest.mark.nvcc
@pytest.mark.skipif(not gpus() or find_nvcc() is None, reason="needs a CUDA device")
def test_every_placement_on_a_gpu(tmp_path: Path) -> None:
    placements = built(tmp_path / "out", target=Target.CUDA)
    first = table_line(Space(placements.graph).first())
    every = product(range(3), range(3), range(2), range(2), range(2), range(3))
    lines = [f"0 {' '.join(map(str, variants))} |{first}" for variants in every] + placements.lines(60, seed=1)
    for pageable in (False, True):
        done = placements.run(lines, pageable=pageable)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert done.stdout.count(": good") == len(lines)


@needs_mpi
@pytest.mark.mpi
@pytest.mark.parametrize("name", ["the note that the device was written", "the copy of what ends on the host"])
def test_wrong_results_show_what_is_missing(plain: Placements, name: str) -> None:
    done = plain.run(plain.lines(20, seed=2, mutant=list(MUTANTS).index(name) + 1))
    assert done.returncode != 0
    assert " is wrong: " in done.stdout


@needs_mpi
@pytest.mark.mpi
def test_a_launch_is_timed_from_host_to_host_or_where_its_data_are(plain: Placements) -> None:
    """On the device: each launch copies what it reads there, and back what it wrote; constants are on both sides."""
    said = plain.run([f"time {variant} {transfers}" for variant in (0, 2) for transfers in (1, 0)]).stdout
    assert [line.partition(", ")[2] for line in said.splitlines()] == ["10 copies", "0 copies", "0 copies", "0 copies"]
    assert said.count("first: 5 launches") == 4


@needs_mpi
@pytest.mark.mpi
@pytest.mark.thorough
@pytest.mark.parametrize("pageable", [False, True])
def test_thread_sanitizer_is_silent(sanitized: Placements, pageable: bool) -> None:
    done = sanitized.run(sanitized.lines(40, seed=3), pageable=pageable)
    assert "ThreadSanitizer" not in done.stderr, done.stderr[:4000]
    assert done.returncode == 0, done.stdout[-2000:]
    assert done.stdout.count(": good") == 40


@needs_mpi
@pytest.mark.mpi
@pytest.mark.parametrize("name", [name for name in MUTANTS if name.startswith("the wait ")])
def test_thread_sanitizer_speaks_where_a_wait_is_missing(sanitized: Placements, name: str) -> None:
    lines = sanitized.lines(60, seed=4, mutant=list(MUTANTS).index(name) + 1)
    done = sanitized.run(lines, first_report=True, pageable="pageable" in name)
    assert "WARNING: ThreadSanitizer: data race" in done.stderr


@needs_mpi
@pytest.mark.mpi
def test_a_wait_that_a_worker_lacks_is_found(sanitized: Placements) -> None:
    """Of random traversals without one wait: by the proof each that leaves an op in a worker thread unordered, and by
    ThreadSanitizer."""
    random, prover = Random(5), Prover(sanitized.graph)
    always = {sanitized.graph.by_name(op).id for op in ("host", "beside")}  # not chosen: on the CPU in any placement
    assert all(sanitized.graph.ops[op].in_worker for op in always)
    mutants = []
    while len(mutants) < 20:
        entries = wander(Space(sanitized.graph), random).entries
        for at, entry in enumerate(entries):
            shorter = Traversal(entries[:at] + entries[at + 1 :])
            if entry.waits and any(always & {g.first, g.second} for g in prover.gaps(shorter)):
                mutants.append(f"0 {' '.join('0' * len(OPS))} |{table_line(shorter)}")
    done = sanitized.run(mutants[:20], first_report=True)
    assert "WARNING: ThreadSanitizer: data race" in done.stderr


# ---- the graph ------------------------------------------------------------------------------


def test_the_thread_of_an_op_is_a_decision() -> None:
    """Two threads to choose from; a `cpu` op with a stream is in a worker thread, and bound to that stream."""
    program = read(PLACED, {}).program()
    assert {d.name: d.values for d in program.decisions if d.name.endswith(".thread")} == {
        f"{op}.thread": ("caller", "worker") for op in ("host", "beside", *(f"{op}.cpu" for op in OPS))
    }
    graph = text_of().graph()
    host = graph.by_name("host")
    assert (host.gpu, host.in_worker, host.stream) == (True, True, None)
    assert "cpu  host" in show_dag(PLACED, {"host.thread": "worker"})
    assert "[add, in a worker thread]" in show_dag(PLACED, {"host.thread": "worker"})
    pinned = analyse(parse_with_includes(Source("test.dag", PINNED)), {}).program
    assert pinned is not None
    (op,) = pinned.ops
    assert isinstance(op, KernelOp)
    assert (op.worker, op.stream, [d.name for d in pinned.decisions if "." in d.name]) == (True, 1, [])


PINNED = '''
program pinned
array x : f32[4] on pinned inout
kernel twice(x: inout f32[4]) { cpu { cpp """ for (int i = 0; i < 4; ++i) x[i] *= 2; """ } }
dag { twice : cpu twice(x) stream 1 }
'''


def test_it_is_ordered_as_an_op_of_the_gpu() -> None:
    """So the space is that of the program with these ops on the GPU, whose copies the program makes when it runs."""
    graph = text_of().graph()
    assert all(graph.by_name(op).gpu for op in OPS)
    assert not any(isinstance(op, CopyOp) and op.inserted for op in graph.program.ops)
    fixed = read(PLACED, {f"{op}.device": "gpu" for op in OPS}).graph()
    assert any(isinstance(op, CopyOp) and op.inserted for op in fixed.program.ops)
    halves = {graph.by_name(op).id for op in ("half", "rest")}
    assert any({u, v} == halves for u, v in graph.completion)  # parts of an array whose sides are copied as a whole


def copies_of(text: str, **choices: str) -> list[tuple[str, bool]]:
    """The copies to the device of the program with its first traversal, and whether the host waits before each."""
    program = analyse(parse_with_includes(Source("test.dag", text)), choices).program
    assert program is not None
    lines = [
        line.strip()
        for line in emit(plan_of(build_graph(program)))["iteration.hpp"].splitlines()
        if "DAGC_CUDA" in line
    ]
    return [
        (line.split("(")[2].split(",")[0], "cudaStreamSynchronize" in before)
        for before, line in pairwise(("", *lines))
        if "cudaMemcpyHostToDevice" in line
    ]


def test_the_host_waits_before_a_copy_of_pageable_memory() -> None:
    """CUDA may read it when the copy is issued, before a worker thread has written it. Copies to it are complete when
    they return."""
    assert copies_of(SIDES) == [("p.x.data", False)]
    assert copies_of(SIDES, host_memory="pageable") == [("p.x.data", True)]


SIDES = '''
program sides
array x : f32[4] on any inout
kernel twice(x: inout f32[4]) {
  select device with tree()
  gpu { launch grid(1) block(4) cuda """ x[threadIdx.x] *= 2; """ }
  cpu { cpp """ for (int i = 0; i < 4; ++i) x[i] *= 2; """ }
}
dag { twice : any twice(x) }
'''


def test_how_arrays_are_copied_is_counted() -> None:
    """Where there are copies: the memory on the host; where the program makes them when it runs, also when."""

    def decisions(choices: dict[str, str]) -> dict[str, tuple[object, ...]]:
        program = analyse(parse_with_includes(Source("test.dag", SIDES)), choices).program
        assert program is not None
        return {d.name: d.values for d in program.decisions if d.name in ("host_memory", "transfers")}

    memory = {"host_memory": ("pinned", "pageable")}
    assert decisions({}) == memory
    assert decisions({"twice.device": "cpu"}) == {}
    assert decisions({"twice.device": "any"}) == {**memory, "transfers": ("at_need", "early")}


def test_the_answers_name_the_device() -> None:
    program = text_of().program()
    first, half = (next(op for op in program.ops if op.name == name) for name in ("first", "half"))
    assert isinstance(first, KernelOp)
    assert isinstance(half, KernelOp)
    assert (first.placed, first.answer, first.site) == (True, "gpu.naive", "first")
    assert answers_of(program, first) == ("gpu.naive", "gpu.host", "cpu.naive")
    assert [t.values for t in open_variants(program, half)] == [("gpu.default", "cpu.default")]
    forced = read(PLACED, {"first.device": "any", "first.variant": "cpu.naive"}).program()
    assert not open_variants(forced, next(op for op in forced.ops if op.name == "first"))  # type: ignore[arg-type]
    assert next(op for op in forced.ops if op.name == "first").answer == "cpu.naive"  # type: ignore[union-attr]


def test_a_placed_op_is_in_no_capture_region() -> None:
    graph = text_of("true").graph()
    assert {graph.ops[i].name for i in never_captured(graph)} >= {*OPS, "device"}
    fixed = read(PLACED, {"capture": "true"}).graph()
    assert not never_captured(fixed)
    assert "region_0" in emit(replace(plan_of(fixed), open=()))["iteration.hpp"]
    assert "region_0" not in emit(plan_of(graph))["iteration.hpp"]


@needs_mpi
@pytest.mark.mpi
def test_a_library_places_the_arrays_of_the_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ops on both devices, and scratch with two sides."""
    do_not_optimise(monkeypatch, "-Werror")
    answers = dict(
        zip(OPS, ("gpu.naive", "cpu.naive", "gpu.default", "cpu.default", "cpu.default", "gpu.host"), strict=True)
    )
    forced = {f"{op}.device": "any" for op in OPS} | {f"{op}.variant": answer for op, answer in answers.items()}
    done = api.compile(PLACED, tmp_path, defines=forced, target="host", form="library")
    assert "There is no placed_enqueue: op `first` may run on the host" in (tmp_path / "include/placed.h").read_text()
    assert done.binary is not None
    run_setup(done.plan.program, PLACED.parent, RANKS, 3, tmp_path / "data")
    order = Build(
        [tmp_path / "example/main.cpp"], directory=tmp_path, mpi=require_mpi(), include=("include", "src/include"),
        flags=("-O0", *by_clang(), f"-L{tmp_path / 'lib'}", f"-Wl,-rpath,{tmp_path / 'lib'}"), libraries=("placed",),
    )  # fmt: skip
    example = build(order, tmp_path / "example/main")
    said = launch([example, tmp_path / "data"], RANKS, timeout=300)
    assert said.returncode == 0, said.stdout + said.stderr


def test_what_the_ops_hand_on_to_each_other() -> None:
    """For placing them: each write makes a value, parts keep the rest, constants are everywhere."""
    program = text_of().program()
    found = [(v.array, v.producer, v.readers, v.ends_on_host) for v in values_of(program)]
    assert found == [
        ("x", None, ("first", "second", "device"), False),
        ("z", "first", ("host",), False),
        ("z", "host", ("half", "last"), False),
        ("w", "second", ("device",), False),
        ("w", "device", ("beside", "rest", "only"), False),
        ("y", "last", (), True),
        ("s", None, ("half",), False),
        ("s", "half", ("rest",), False),
        ("s", "rest", ("only",), False),
        ("s", "only", ("last",), True),
    ]
    assert {show(v.bytes) for v in values_of(program) if v.bytes is not None} == {"4 * n"}
    assert [op.name for op in users_of(program)] == [op.name for op in program.ops]


LOOP = '''
program loop
scalar n : i32
array x : f32[n] on any in
array s : f32[n] on any inout
kernel add(y: inout f32[n], x: in f32[n], n: i32) {
  select device with tree(n)
  gpu { launch grid(n) block(32) cuda """ y[blockIdx.x] += x[blockIdx.x]; """ }
  cpu { cpp """ for (int i = 0; i < n; ++i) y[i] += x[i]; """ }
}
dag { for l in 0..6 { step[l] : any add(s, x, n) } }
'''


def test_each_op_of_a_loop_is_placed_for_itself(tmp_path: Path) -> None:
    (tmp_path / "loop.dag").write_text(LOOP)
    text = read(tmp_path / "loop.dag", folds=True).with_open_devices()
    folded = text.graph()
    first = Space(folded).first()
    graph, traversal = unroll(folded, first)
    made = replace(plan_of(graph), traversal=traversal, period=(folded, first))
    iteration = emit(made)["iteration.hpp"]
    assert all(f"if (p.step_{turn}_variant == 1) {{  // cpu.default" in iteration for turn in range(6))
    forced = {
        f"step[{turn}].{name}": value
        for turn in range(6)
        for name, value in (("device", "any"), ("variant", "cpu.default"))
    }
    folded = text.with_defines(forced).graph()
    first = Space(folded).first()
    graph, traversal = unroll(folded, first)
    alike = Plan(graph, traversal, Target.HOST, period=(folded, first))
    assert "turn < 6" in emit(alike)["iteration.hpp"]
    assert "step[0]  after start   [add on gpu or cpu]" in show_dag(tmp_path / "loop.dag", {"step[0].device": "any"})


# ---- what is wrong in a program --------------------------------------------------------------


def findings(text: str, **defines: str) -> list[str]:
    lowered = analyse(parse_with_includes(Source("test.dag", text)), {"step.device": "any", **defines})
    return [f"{d.message}; {d.help}" for d in lowered.diagnostics]


ONE = LOOP.replace("for l in 0..6 { step[l] : any add(s, x, n) }", "step : any add(s, x, n)")


def test_what_cannot_be_placed() -> None:
    (explicit,) = findings(ONE.replace("step :", "edges explicit\n  step :"))
    assert explicit.startswith("`x` is `on any`, whose copies follow text order")
    (place,) = findings(ONE.replace("x : f32[n] on any in", "x : f32[n] in"))
    assert place == "a cpu op cannot access `x`, which is on the device; declare it `on any`"
    assert not findings(ONE.replace("on any", "on pinned"))  # both devices access it
    with pytest.raises(UsageError, match=r"-D step.variant=gpu.fast: not one of the choices"):
        findings(ONE, **{"step.variant": "gpu.fast"})
    only = ONE.replace("cpu { cpp", "gpu other { cpp")
    assert findings(only)[0].startswith("there is no device to select: all implementations are for the gpu")

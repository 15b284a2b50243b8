"""Times given settings of kernels, forms included, from binaries that another machine has compiled.

    python benchmarks/gpu/settings.py make FOLDER FILE@SIZE[@SETTINGS] ...    # needs nvcc, no GPU
    python benchmarks/gpu/settings.py time FOLDER OUT.csv --seconds 60        # needs pycuda and a GPU, no nvcc
    python benchmarks/gpu/settings.py compare FOLDER OUT.csv

SIZE is `NI=256,NJ=512` (other scalars are 1/8), or several, `NI=256,NJ=512/NI=7,NJ=5`: the first is timed, `compare`
runs the others, with arrays at their places and all an element later, unless the kernel as written has vectors, as
`float4`; bytes around arrays count as results (with `--around 0` there are none, so that memcheck of compute-sanitizer
sees each access beyond an array). SETTINGS is
`;form.wide=4;form.wide=4,form.coarsen=4`: the kernel as written, and two others; without them, all that a search
compiles. All settings of a kernel are functions
of one binary; those that the kernel does not allow are left out with the reason. Block dimensions are left open: each
is timed at all legal blocks, at most `--blocks` of them at random; other tunables have their first value. For
`form.index` the arrays are said to have at most 2^32 elements, and for `form.literals` the sizes are numbers in the
call. `--label` names the dagc that made them, to compare revisions in one run; `--sm` is the architecture, `--sms` its
multiprocessors. All settings of a kernel are timed in random order, which `--seed` draws, the L2 cache flushed before
each launch, beside a copy of the largest array, and their results are compared word by word with those of the first. A
setting that is given twice shows by how much times of equal code differ.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from dagc.base.errors import DagcError
from dagc.cuda.lexer import words_of
from dagc.cuda.state import definitions_of
from dagc.emit.kernels import Functions
from dagc.emit.render import number_lines, render
from dagc.forms import forms_of, kernel_of, surroundings_of
from dagc.forms.freedom import LITERALS
from dagc.forms.text import product_of
from dagc.forms.types import Refusal
from dagc.ir.choice import own_name
from dagc.ir.plan import Target, kernel_as_written, open_tunables
from dagc.ir.program import Decision, Impl, Kernel, KernelOp, Program
from dagc.ir.sym import Apply, Const, Fn, UnboundName, Var, evaluate
from dagc.stages.program import read

TYPES = {
    "f32": "f4", "f64": "f8", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8",
    "u8": "u1", "u16": "u2", "u32": "u4", "u64": "u8",
}  # fmt: skip
AROUND = 512  # bytes around an array, half of them before it
VECTOR = re.compile(r"(u?(char|short|int|long|longlong)|float|double|half|__half|__nv_bfloat16)[248]")  # a type
Job = dict[str, Any]  # as in the file FOLDER/LABEL.json
DIFFER = """
extern "C" __global__ void differ(const unsigned* a, const unsigned* b, unsigned long long n, unsigned* out) {
  unsigned mine = 0;
  for (unsigned long long i = blockIdx.x * 256ull + threadIdx.x; i < n; i += gridDim.x * 256ull) mine += a[i] != b[i];
  if (mine > 0) atomicAdd(out, mine);
}
"""

# ---- without a GPU ------------------------------------------------------------------------------


def make(args: argparse.Namespace) -> int:
    args.folder.mkdir(parents=True, exist_ok=True)
    sources = {"differ": DIFFER}
    jobs = []
    for word in args.kernels:
        file, size, *given = word.split("@")
        settings = given[0].split(";") if given else searched(Path(file))
        binary = f"{Path(file).parent.name}-{Path(file).stem}-{args.label}"
        first, *others = size.split("/")
        try:
            of_kernel, sources[binary] = jobs_of(Path(file), first, settings, args.sms)
        except (DagcError, ArithmeticError, KeyError, UnboundName) as error:  # a size that the data give, say
            print(f"{file}: left out: {type(error).__name__}: {error}")
            continue
        jobs += [{**job, "label": args.label, "binary": binary, "timed": True} for job in of_kernel]
        for other in others:  # sizes are numbers of the text with `literals`
            again = jobs_of(Path(file), other, settings, args.sms)[0]
            again = [job for job in again if job["blocks"] and LITERALS.tunable not in job["setting"]]
            some = {"label": args.label, "binary": binary, "timed": False}
            jobs += [{**job, **some, "blocks": sample(job["setting"], job["blocks"], 3)} for job in again]
    (args.folder / f"{args.label}.json").write_text(json.dumps(jobs))
    with ThreadPool(2) as pool:
        codes = pool.starmap(
            compiled, [(args.folder / name, text, args.sm, args.flags) for name, text in sources.items()]
        )
    return max(codes)


def compiled(path: Path, text: str, sm: int, flags: str) -> int:
    source, runtime = path.with_suffix(".cu"), ROOT / "templates/runtime"
    source.write_text(text)
    words = ["nvcc", "-cubin", "-O3", "-std=c++17", f"-arch=sm_{sm}", f"-I{runtime}", "-o", f"{path}.cubin", source]
    return subprocess.run([*map(str, words), *flags.split()], check=False).returncode


def searched(file: Path) -> list[str]:
    """The settings of the first op of a program that a search compiles."""
    graph = replace(read(file), forms=True).graph()
    op = next(op.kernel for op in graph.ops if op.kernel is not None)
    open_ = [d for d in open_tunables(graph.program, [op.site]) if not d.axis]
    first = {own_name(d.name): d.values[0] for d in open_}
    each = Functions(graph, Target.CUDA, open_).settled(op)
    return [",".join(f"{n}={v}" for n, v in one.tunables if n in first and v != first[n]) for one in each]


def jobs_of(file: Path, size: str, settings: Sequence[str], sms: int) -> tuple[list[Job], str]:
    """The settings of the first op of a program, and their source."""
    graph = read(file).graph()
    whole = next(op for op in graph.ops if op.kernel is not None)
    values: dict[str, Any] = {n: v for name, v in _pairs(size) for n in (name, name.lower())}
    values |= {"hw.sms": sms, "hw.max_threads_per_block": 1024, "hw.warp_size": 32}
    assert whole.kernel is not None
    program = _bounded(graph.program, whole.kernel)
    op = _called(program, whole.kernel, values)
    given = {s: dict(op.tunables) | dict(_pairs(s)) for s in settings if _allows(program, op, s)}
    ops = {s: replace(op, tunables=tuple(each.items())) for s, each in given.items()}
    open_ = [d for d in open_tunables(program, [op.site]) if d.axis]
    graph = replace(graph, program=program, ops=tuple(replace(whole, op=one) for one in ops.values()))
    functions = Functions(graph, Target.CUDA, open_)
    views = {"kernels": functions.view(), "program": program.name, "path": str(file), "namespace": "", "whole": ""}
    text = number_lines(render("bench/kernels.cu.j2", **views))
    jobs, late = [], not _has_vectors(program, op)
    for setting in settings:
        if setting in ops:
            kernel, impl = kernel_of(program, ops[setting])
            args = [
                [
                    f.type.value,
                    "inout" if f.mode.value != "in" else "in",
                    _product(evaluate(d or Var(f"length of {f.name}"), values) for d in f.dims or ()),
                ]
                if f.mode is not None
                else [f.type.value, "value", values.get(f.name, 0.125)]
                for f in kernel.formals
            ]
            blocks = list(blocks_of(kernel, impl, {**values, **dict(ops[setting].tunables)}, open_))
            job = {
                "kernel": f"{file.parent.name}/{file.stem}",
                "size": size,
                "setting": setting,
                "function": functions.name(ops[setting]),
                "late": late,
            }
            jobs.append({**job, "args": args, "blocks": blocks})
    return jobs, text


def _has_vectors(program: Program, op: KernelOp) -> bool:
    """Whether a kernel as written, or what it leads to, names a type of vectors: its arrays begin at one."""
    code = kernel_as_written(program, op)[1].code
    assert code is not None
    names, definitions = set(words_of(code.text)), definitions_of(surroundings_of(program).texts)
    return any(VECTOR.fullmatch(word) for name in names for word in (name, *definitions.words_reached(name)))


def _bounded(program: Program, op: KernelOp) -> Program:
    """The program, in which the kernel of an op has the condition that no array exceeds 2^32 elements."""
    kernel = program.kernel(op.kernel)
    sizes = [product_of(d for d in f.dims if d is not None) for f in kernel.formals if f.dims and None not in f.dims]
    requires = (*kernel.requires, *(Apply(Fn.LE, (size, Const(2**32))) for size in sizes))
    return replace(program, kernels=tuple(replace(k, requires=requires) if k is kernel else k for k in program.kernels))


def _called(program: Program, op: KernelOp, values: Mapping[str, Any]) -> KernelOp:
    """The op with the given sizes as arguments."""
    pairs = zip(program.kernel(op.kernel).formals, op.args, strict=True)
    return replace(op, args=tuple(Const(values[f.name]) if f.name in values else a for f, a in pairs))


def _allows(program: Program, op: KernelOp, setting: str) -> bool:
    """Whether the kernel has the forms of a setting; otherwise the reason is printed."""
    kernel, impl = kernel_as_written(program, op)
    legal = {form.tunable: values for form, values in forms_of(kernel, impl, surroundings_of(program))}
    for name, value in _pairs(setting):
        found = legal.get(name, (value,))
        if isinstance(found, Refusal) or value not in found:
            print(f"{kernel.name}: {name}={value}: {getattr(found, 'reason', 'it has other values')}")
            return False
    return True


def blocks_of(kernel: Kernel, impl: Impl, values: Mapping[str, Any], open_: Sequence[Decision]) -> Iterator[list[Any]]:
    """The legal values of open tunables, with the grid, the block and the bytes of shared memory."""
    names, launch = [own_name(d.name) for d in open_], impl.launch
    assert launch is not None, "of a GPU"
    for each in itertools.product(*(d.values for d in open_)):
        env = {**values, **dict(zip(names, each, strict=True))}
        for name, value in (*kernel.lets, *impl.lets):
            env[name] = evaluate(value, env)
        if all(evaluate(c, env) for c in (*kernel.requires, *impl.requires)):
            grid, block = ([int(evaluate(e, env)) for e in dims] for dims in (launch.grid, launch.block))
            words = " ".join(f"{name}={env[name]}" for name in names)
            shared = int(evaluate(launch.shared, env)) if launch.shared is not None else 0
            if min(grid) > 0:
                yield [words, [*grid, 1, 1][:3], [*block, 1, 1][:3], shared]


def _pairs(text: str) -> list[tuple[str, int]]:
    return [(name, int(value)) for name, _, value in (word.partition("=") for word in text.split(",") if word)]


def sample(seed: str, of: Sequence[Any], number: int) -> list[Any]:
    """Some of a sequence, in random order."""
    return random.Random(seed).sample(of, min(number, len(of)))


def _product(values: Iterator[Any]) -> int:
    out = 1
    for value in values:
        out *= int(value)
    return out


# ---- on the GPU ---------------------------------------------------------------------------------


def measure(args: argparse.Namespace) -> int:
    import numpy as np
    import pycuda.driver as cu

    cu.init()
    context = cu.Device(0).make_context()
    jobs: list[Job] = [job for file in sorted(args.folder.glob("*.json")) for job in json.loads(file.read_text())]
    jobs = [job for job in jobs if job["timed"] == (args.rows is timed) and re.search(args.only, job["kernel"])]
    end = time.monotonic() + args.seconds
    with args.output.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow("kernel size label setting block us words_that_differ".split())
        for kernel, size in dict.fromkeys((job["kernel"], job["size"]) for job in jobs):
            same = [job for job in jobs if (job["kernel"], job["size"]) == (kernel, size)]
            if time.monotonic() < end:
                writer.writerows(args.rows(cu, np, args, same, end))
            file.flush()
            print(f"{kernel} {size}: {end - time.monotonic():.0f} s left", flush=True)
    context.pop()
    return 0


class Arrays:
    """The arguments of a kernel: device memory with bytes around each array, `shift` elements late."""

    def __init__(self, cu: Any, np: Any, args: Sequence[Any], shift: int, around: int = AROUND) -> None:
        self.cu, self.np = cu, np
        self.given, self.results = list[Any](), list[Any]()
        self.arrays: list[tuple[Any, Any, int, str]] = []
        rng = np.random.default_rng(1)
        for type_, how, value in args:
            type_ = np.dtype(TYPES[type_])
            if how == "value":
                self.given.append(type_.type(value))
                continue
            most = 100 if type_.itemsize == 1 else 1  # of wider integers, which may be indices, all are 0
            values = np.resize(rng.uniform(0.1, most, 1000003).astype(type_), value)
            host = np.full(-(-(values.nbytes + shift * type_.itemsize + around) // 4) * 4, 0xA5, np.uint8)
            at = around // 2 + shift * type_.itemsize
            host[at : at + values.nbytes] = values.view(np.uint8)
            array, first = cu.mem_alloc(host.nbytes), cu.to_device(host)
            self.arrays.append((array, first, host.nbytes, how))
            self.given.append(np.uint64(int(array) + at))

    def fill(self) -> None:
        for array, first, size, _ in self.arrays:
            self.cu.memcpy_dtod(array, first, size)

    def different(self, differ: Any) -> int:
        """How many words of the written arrays differ from the first results, which are kept."""
        written = [(array, size) for array, _, size, how in self.arrays if how == "inout"]
        if not self.results:
            for array, size in written:
                self.results.append(self.cu.mem_alloc(size))
                self.cu.memcpy_dtod(self.results[-1], array, size)
            return 0
        count, found = self.cu.to_device(self.np.zeros(1, self.np.uint32)), self.np.zeros(1, self.np.uint32)
        for (array, size), first in zip(written, self.results, strict=True):
            differ(array, first, self.np.uint64(size // 4), count, grid=(1056, 1, 1), block=(256, 1, 1))
        self.cu.memcpy_dtoh(found, count)
        return int(found[0])

    def free(self) -> None:
        for array in (*self.results, *(a for each in self.arrays for a in each[:2])):
            array.free()


def compared(cu: Any, np: Any, args: argparse.Namespace, jobs: Sequence[Job], end: float) -> Iterator[list[Any]]:
    """Results of a few blocks of each setting, as given and, where they may be, with all arrays an element late."""
    load, differ = _functions(cu, args.folder)
    for shift in (0, 1) if jobs[0]["late"] else (0,):
        arrays = Arrays(cu, np, jobs[0]["args"], shift, args.around)
        for job in jobs:
            wrong = 0
            for block in job["blocks"]:
                arrays.fill()
                if _run(cu, load(job), arrays, block):
                    wrong += arrays.different(differ)
            yield [job["kernel"], f"{job['size']}+{shift}", job["label"], job["setting"], "", "", wrong]
        arrays.free()


def timed(cu: Any, np: Any, args: argparse.Namespace, jobs: Sequence[Job], end: float) -> Iterator[list[Any]]:
    arrays, time_of = Arrays(cu, np, jobs[0]["args"], 0), _timer(cu)
    _, largest, size, _ = max(arrays.arrays, key=lambda one: one[2])
    copy = cu.mem_alloc(size)
    micros = time_of(lambda: cu.memcpy_dtod_async(copy, largest, size))
    yield [jobs[0]["kernel"], jobs[0]["size"], "", f"copy of {size} bytes", "", f"{micros:.2f}", ""]
    copy.free()
    load, differ = _functions(cu, args.folder)
    wanted: list[tuple[Job, Any, list[Any], int]] = []
    for job in jobs:
        able, wrong = list[Any](), 0
        for block in sample(job["kernel"], job["blocks"], args.blocks):
            arrays.fill()
            if _run(cu, load(job), arrays, block):
                wrong = wrong if able else arrays.different(differ)
                able.append(block)
        wanted += [(job, load(job), block, wrong) for block in able]
    random.Random(args.seed).shuffle(wanted)
    for job, function, block, wrong in wanted:
        if time.monotonic() > end:
            break
        micros = time_of(partial(_run, cu, function, arrays, block))
        yield [job["kernel"], job["size"], job["label"], job["setting"], block[0], f"{micros:.2f}", wrong]
    arrays.free()


def _run(cu: Any, function: Any, arrays: Arrays, block: Sequence[Any]) -> bool:
    """Launch it; whether a block has registers enough."""
    _, grid, threads, shared = block
    if math.prod(threads) > function.max_threads_per_block:  # memcheck would report the launch
        return False
    try:
        function(*arrays.given, grid=tuple(grid), block=tuple(threads), shared=shared)
    except cu.LaunchError:
        return False
    return True


def _functions(cu: Any, folder: Path) -> tuple[Callable[[Job], Any], Any]:
    """What gives the function of a job, and the function that compares."""

    @cache
    def module(name: str) -> Any:
        return cu.module_from_file(str(folder / f"{name}.cubin"))

    return lambda job: module(job["binary"]).get_function(job["function"]), module("differ").get_function("differ")


def _timer(cu: Any) -> Callable[[Callable[[], object]], float]:
    """A function that gives the median of five launches in microseconds."""
    flushed, begin, end = cu.mem_alloc(128 << 20), cu.Event(), cu.Event()

    def once(run: Callable[[], object]) -> float:
        cu.memset_d32(flushed, 1, 32 << 20)
        begin.record()
        run()
        end.record()
        end.synchronize()
        return float(end.time_since(begin)) * 1e3

    return lambda run: sorted(once(run) for _ in range(5))[2]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    made = commands.add_parser("make")
    made.add_argument("folder", type=Path)
    made.add_argument("kernels", nargs="+", metavar="FILE@SIZE@SETTINGS")
    made.add_argument("--label", default="dagc")
    made.add_argument("--sm", type=int, default=90)
    made.add_argument("--sms", type=int, default=132)
    made.add_argument("--flags", default="", help="for nvcc: with -fmad=false all settings have equal results")
    made.set_defaults(run=make)
    for name, rows in (("time", timed), ("compare", compared)):
        run = commands.add_parser(name)
        run.add_argument("folder", type=Path)
        run.add_argument("output", type=Path)
        run.add_argument("--seconds", type=float, default=1e6, metavar="S")
        run.add_argument("--blocks", type=int, default=26, metavar="N")
        run.add_argument("--seed", type=int, default=1)
        run.add_argument("--around", type=int, default=AROUND, metavar="BYTES", help="around arrays, in compare")
        run.add_argument("--only", default="", metavar="REGEX", help="kernels")
        run.set_defaults(run=measure, rows=rows)
    args = parser.parse_args(words)
    return int(args.run(args))


if __name__ == "__main__":
    sys.exit(main())

"""An exhaustive oracle of kernels under all their forms and blocks in seconds of GPU time: all is compiled elsewhere.

    python -m benchmarks.gpu.judge make FOLDER --list benchmarks/gpu/lists/judge.txt  # needs nvcc, no GPU
    python -m benchmarks.gpu.judge time FOLDER OUT.csv.xz --seconds 150  # needs pycuda and a GPU, no nvcc
    python -m benchmarks.tune.forms OUT.csv.xz --compiled FOLDER/compiled.json.xz

The list has a program (as in benchmarks/tune/compiled.py) and a size a line, `waves.thomas NL=64 N=200000`. `make`
compiles what `dagc tune` compiles, a function for each combination of forms and other constants of the code, to
`PROGRAM.cubin`; PROGRAM.json has the function of each setting, and compiled.json.xz the resources. `time` runs the
program's set-up in other processes, and times each setting that fits, in random order, the L2 cache flushed before each
launch. It writes the rows of benchmarks/tune/oracle_csv.py, and prints which settings store other words than the
default.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import lzma
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.pool import ThreadPool
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.tune.compiled import programs, write
from benchmarks.tune.oracle_csv import COLUMNS
from dagc import api
from dagc.base.errors import BuildFailed, DagcError
from dagc.base.resources import resource
from dagc.base.statistics import interval
from dagc.build.toolchain import first_error, read_resources
from dagc.choice.legal import bindings, block_of, fits, grid_of, op_of, op_under
from dagc.cuda.ptx import function_of, read_instructions
from dagc.emit import linked
from dagc.emit.kernels import Functions
from dagc.forms import kernel_of
from dagc.ir.choice import Choice
from dagc.ir.sym import evaluate, substitute
from dagc.space import Space
from dagc.stages.artifacts import OpenChoices, proved_plan, write_sources
from dagc.study.task import TuningTask, tuning_task

FLUSHED = 128 << 20  # bytes written before each launch
LAUNCHES = 5
LONGEST = 0.02  # seconds of all launches of a setting
DIFFER = """
extern "C" __global__ void differ(const unsigned* a, const unsigned* b, unsigned long long n, unsigned* out) {
  unsigned mine = 0;
  for (unsigned long long i = blockIdx.x * 256ull + threadIdx.x; i < n; i += gridDim.x * 256ull) mine += a[i] != b[i];
  if (mine > 0) atomicAdd(out, mine);
}
"""


def task_of(program: str, size: str, arch: str) -> TuningTask:
    text = replace(api.read(programs()[program]), forms=True)
    return tuning_task(text, sizes=size, check_at=size, target="cuda", arch=arch)


# ---- without a GPU ------------------------------------------------------------------------------


def make(args: argparse.Namespace) -> int:
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.folder / "differ.cu").write_text(DIFFER)
    _nvcc(["-cubin", f"-arch={args.arch}", "-o", "differ.cubin", "differ.cu"], args.folder)
    (args.folder / "differ.cu").unlink()
    lines = [line.partition(" ")[::2] for line in args.list.read_text().splitlines() if line and line[0] != "#"]
    with ThreadPool(args.jobs) as pool:
        made = pool.starmap(_made, [(program, size, args.folder, args.arch) for program, size in lines])
    write(args.folder / "compiled.json.xz", {program: rows for program, rows in made if rows})
    return 0


def _made(program: str, size: str, folder: Path, arch: str) -> tuple[str, dict[str, Any]]:
    """The binary and the settings of a program; returns the resources of each setting, as benchmarks.tune.compiled."""
    if (folder / f"{program}.json").exists():
        return program, json.loads((folder / f"{program}.json").read_text())["resources"]
    began = time.monotonic()
    try:
        task = task_of(program, size, arch)
        with tempfile.TemporaryDirectory() as temporary:
            found = _compiled(task, Path(temporary), folder / f"{program}.cubin", arch)
    except DagcError as error:
        print(f"{program}: {' '.join(str(error).split())[:300]}", flush=True)
        return program, {}
    settings, resources = [], {}
    functions = Functions(task.graph, task.chosen.target, tuple(d for site in task.sites for d in site.open))
    for site in task.sites:
        names = {
            tuple((n, dict(one.tunables)[n]) for n in _constants(site)): functions.name(one)
            for one in functions.settled(op_of(task.graph, site))
        }
        rows = []
        for choice in task.choices[site.name]:
            name = names[tuple((n, choice.own[n]) for n in _constants(site))]
            symbol = next((s for s in found if function_of(s) == name), "")
            if symbol:
                taken = found[symbol]
                settings.append([site.name, list(choice.own.items()), symbol])
                code = taken.instructions.to_json() if taken.instructions is not None else None
                rows.append([list(choice.own.items()), taken.registers, taken.shared, taken.spills, code])
        resources[site.name] = rows
    job = {"program": program, "size": size, "arch": arch, "settings": settings, "resources": resources}
    (folder / f"{program}.json").write_text(json.dumps(job, separators=(",", ":")))
    print(f"{program}: {len(found)} functions, {len(settings)} settings, {time.monotonic() - began:.0f} s", flush=True)
    return program, resources


def _constants(site: Any) -> list[str]:
    """The tunables that are constants of the code."""
    return [d.name.partition(".")[2] for d in site.open if not d.axis]


def _compiled(task: TuningTask, temporary: Path, cubin: Path, arch: str) -> dict[str, Any]:
    """nvcc's report on the functions of a task, by symbol."""
    opened = OpenChoices(tuple(d for site in task.sites for d in site.open))
    plan = opened.of(proved_plan(task.graph, Space(task.graph).first(), task.chosen))
    write_sources(plan, temporary, force=True)
    include = ["include", *linked(plan).include, resource("templates/runtime")]
    words = ["-std=c++17", "-O3", "--extended-lambda", *(f"-I{path}" for path in include), "-DDAGC_NO_MPI"]
    front = ["-ptx", f"-arch={arch}", *words, "-include", "dagc/check.hpp", "-o", "kernels.ptx", "kernels.cu"]
    _nvcc(front, temporary)
    report = _nvcc(["-cubin", f"-arch={arch}", "-Xptxas", "-v", "-o", "kernels.cubin", "kernels.ptx"], temporary)
    instructions = read_instructions((temporary / "kernels.ptx").read_text())
    cubin.write_bytes((temporary / "kernels.cubin").read_bytes())
    return {name: replace(r, instructions=instructions.get(name)) for name, r in read_resources(report).items()}


def _nvcc(words: Sequence[str], folder: Path) -> str:
    done = subprocess.run(["nvcc", *map(str, words)], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildFailed(f"nvcc {shlex.join(map(str, words))}: {first_error(done.stderr + done.stdout)}")
    return done.stderr + done.stdout


# ---- on the GPU ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """One setting of an op: `grid`, `block` and bytes of dynamic `shared` memory as PyCUDA takes them."""

    op: str
    choice: Choice
    symbol: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int


@dataclass(frozen=True, slots=True)
class Ready:
    """A program with its data. `args`: of each op: a scalar, or the name of an array. `arrays`: by name, NumPy files,
    or (type, elements) of what starts with zeros. `written`: arrays that an op stores."""

    program: str
    case: str
    launches: tuple[Launch, ...]
    args: dict[str, list[Any]]
    arrays: dict[str, Any]
    written: dict[str, list[str]]


def ready(path: Path, folder: Path) -> Ready | str:
    """A program of FOLDER with the data of its set-up, which are files in a folder; or why not."""
    job = json.loads(path.read_text())
    try:
        return _ready(job, folder)
    except Exception as error:  # the set-up is the program's code
        return f"{job['program']}: {type(error).__name__}: {error}"


def _ready(job: dict[str, Any], folder: Path) -> Ready:
    task = task_of(job["program"], job["size"], job["arch"])
    (case,), program = task.cases, task.program
    data = _data(programs()[job["program"]], program.setup, dict(case.params))
    values = {n: v.item() if isinstance(v, np.generic) else v for n, v in data.items() if np.ndim(v) == 0}
    values |= {name.lower(): value for name, value in case.params} | {"rank": 0, "ranks": 1}
    args: dict[str, list[Any]] = {}
    written: dict[str, list[str]] = {}
    arrays: dict[str, Any] = {}
    for site in task.sites:
        op = op_of(task.graph, site)
        kernel, _ = kernel_of(program, op)
        args[site.name], written[site.name] = [], []
        for formal, argument in zip(kernel.formals, op.args, strict=True):
            if formal.mode is None:
                args[site.name].append((formal.type.value, evaluate(argument, values)))
                continue
            name = argument.array
            args[site.name].append(name)
            written[site.name] += [name] if formal.mode.value != "in" else []
            if name in data:
                file = folder / f"{job['program']}.{name}.npy"
                np.save(file, np.ascontiguousarray(data[name]))
                arrays[name] = str(file)
            else:
                dims = next(a for a in program.arrays if a.name == name).dims
                arrays[name] = (formal.type.value, int(np.prod([int(evaluate(d, values)) for d in dims])))
    launches = []
    for site in task.sites:
        op = op_of(task.graph, site)
        for name, own, symbol in job["settings"]:
            if name == site.name and fits(task.graph, site, choice := Choice.at(name, map(tuple, own)), values):
                grid = grid_of(task.graph, site, choice, values)
                formed = op_under(program, op, choice)
                block, asked = block_of(program, formed, choice), kernel_of(program, formed)[1].launch.shared
                shared = int(evaluate(substitute(asked, bindings(program, formed, choice)), values)) if asked else 0
                launches.append(Launch(name, choice, symbol, grid, block, shared))
    return Ready(job["program"], case.text, tuple(launches), args, arrays, written)


def _data(path: Path, setup: Any, params: dict[str, int]) -> dict[str, Any]:
    source = path.parent / setup.file
    spec = importlib.util.spec_from_file_location(f"setup_{source.stem}", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(getattr(module, setup.function)(0, 1, 0, **params))


def measure(args: argparse.Namespace) -> int:
    import pycuda.driver as cu

    end = time.monotonic() + args.seconds
    jobs = sorted(args.folder.glob("*.json"))
    random.Random(args.seed).shuffle(jobs)
    with (
        tempfile.TemporaryDirectory() as temporary, get_context("spawn").Pool(args.jobs) as pool,
        lzma.open(args.output, "wt", newline="") as file,
    ):  # fmt: skip
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        waiting = deque(pool.apply_async(ready, (path, Path(temporary))) for path in jobs[: args.ahead])
        left = deque(jobs[args.ahead :])
        cu.init()
        context = cu.Device(0).make_context()
        while waiting and time.monotonic() < end:
            one = waiting.popleft().get()
            waiting += [pool.apply_async(ready, (left.popleft(), Path(temporary)))] if left else []
            if isinstance(one, str):
                print(one, flush=True)
                continue
            try:
                count = 0
                for row in timed(cu, one, args.folder, end, args.seed):
                    count += 1
                    writer.writerow(row)
                print(f"{one.program}: {count} of {len(one.launches)}; {end - time.monotonic():.0f} s left", flush=True)
            except cu.Error as error:
                print(f"{one.program}: {error}", flush=True)
            for path in (p for p in one.arrays.values() if isinstance(p, str)):
                Path(path).unlink()
        pool.terminate()
        context.pop()
    return 0


TYPES = {"f32": "f4", "f64": "f8", "i8": "i1", "u8": "u1", "bool": "u1"} | {
    f"{kind}{8 * size}": f"{kind}{size}" for kind in "iu" for size in (2, 4, 8)
}


def timed(cu: Any, one: Ready, folder: Path, end: float, seed: int) -> Iterator[list[str]]:
    """The row of each setting that can be launched, in random order."""
    module = cu.module_from_file(str(folder / f"{one.program}.cubin"))
    differ = cu.module_from_file(str(folder / "differ.cubin")).get_function("differ")
    arrays = {name: _Array(cu, given) for name, given in one.arrays.items()}
    micros, first, wrong = _timer(cu), dict[str, list[Any]](), []
    order = list(one.launches)
    random.Random(f"{seed} {one.program}").shuffle(order)
    order.sort(key=lambda launch: launch != next(each for each in one.launches if each.op == launch.op))
    seen = set()
    for launch in order:
        if time.monotonic() > end:
            break
        function = module.get_function(launch.symbol)
        given = [np.dtype(TYPES[a[0]]).type(a[1]) if isinstance(a, tuple) else arrays[a].device
                 for a in one.args[launch.op]]  # fmt: skip
        run = _launcher(function, given, launch)
        words = [one.program, launch.op, one.case, " ".join(f"{n}={v}" for n, v in launch.choice.own.items())]
        try:
            if launch.symbol not in seen:  # results once for each function
                seen.add(launch.symbol)
                for array in arrays.values():
                    array.reset()
                run()
                now = [arrays[name] for name in one.written[launch.op]]
                if launch.op not in first:
                    first[launch.op] = [a.copy() for a in now]
                elif number := sum(_different(cu, differ, a, b) for a, b in zip(now, first[launch.op], strict=True)):
                    wrong.append(f"{one.program} {launch.choice.in_words}: {number} words differ")
            times = micros(run)
        except cu.Error as error:
            cu.Context.synchronize()  # raises again if the context is lost
            yield [*words, "", "", "", "0", str(FLUSHED), str(error)[:80]]
            continue
        low, high = interval(times)
        yield [*words, *(f"{t:.5g}" for t in (median(times), low, high)), str(len(times)), str(FLUSHED), ""]
    print("\n".join(wrong), end="\n" if wrong else "", flush=True)
    for kept in (*arrays.values(), *(a for each in first.values() for a in each)):
        kept.free()


def _launcher(function: Any, given: list[Any], launch: Launch) -> Callable[[], None]:
    return lambda: function(*given, grid=launch.grid, block=launch.block, shared=launch.shared)


class _Array:
    """An array of the GPU, with what it starts with."""

    def __init__(self, cu: Any, given: Any) -> None:
        host = np.load(given) if isinstance(given, str) else np.zeros(given[1], TYPES[given[0]])
        self.cu, self.bytes = cu, host.nbytes
        self.device, self.start = (cu.mem_alloc((host.nbytes + 19) // 4 * 4) for _ in range(2))
        cu.memcpy_htod(self.start, host)
        cu.memset_d8(self.device, 0, (host.nbytes + 19) // 4 * 4)

    def reset(self) -> None:
        self.cu.memcpy_dtod(self.device, self.start, self.bytes)

    def copy(self) -> Any:
        out = self.cu.mem_alloc((self.bytes + 19) // 4 * 4)
        self.cu.memcpy_dtod(out, self.device, (self.bytes + 19) // 4 * 4)
        return out

    def free(self) -> None:
        self.device.free()
        self.start.free()


def _different(cu: Any, differ: Any, a: _Array, b: Any) -> int:
    count, found = cu.to_device(np.zeros(1, np.uint32)), np.zeros(1, np.uint32)
    differ(a.device, b, np.uint64((a.bytes + 3) // 4), count, grid=(1056, 1, 1), block=(256, 1, 1))
    cu.memcpy_dtoh(found, count)
    return int(found[0])


def _timer(cu: Any) -> Callable[[Callable[[], None]], list[float]]:
    """A function that gives the microseconds of some launches after a first one."""
    flushed, begin, end = cu.mem_alloc(FLUSHED), cu.Event(), cu.Event()

    def once(run: Callable[[], None]) -> float:
        cu.memset_d32(flushed, 1, FLUSHED // 4)
        begin.record()
        run()
        end.record()
        end.synchronize()
        return float(end.time_since(begin)) * 1e3

    def micros(run: Callable[[], None]) -> list[float]:
        number = max(1, min(LAUNCHES, int(LONGEST * 1e6 / once(run))))
        return [once(run) for _ in range(number)]

    return micros


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    made = commands.add_parser("make")
    made.add_argument("folder", type=Path)
    made.add_argument("--list", type=Path, required=True)
    made.add_argument("--arch", default="sm_90")
    made.add_argument("--jobs", type=int, default=2)
    made.set_defaults(run=make)
    timing = commands.add_parser("time")
    timing.add_argument("folder", type=Path)
    timing.add_argument("output", type=Path)
    timing.add_argument("--seconds", type=float, default=1e6, metavar="S")
    timing.add_argument("--jobs", type=int, default=12, help="set-ups side by side")
    timing.add_argument("--ahead", type=int, default=24, help="programs whose data are in memory")
    timing.add_argument("--seed", type=int, default=0)
    timing.set_defaults(run=measure)
    args = parser.parse_args(words)
    return int(args.run(args))


if __name__ == "__main__":
    sys.exit(main())

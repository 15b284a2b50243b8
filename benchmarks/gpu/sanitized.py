"""Kernels under their forms, at small sizes, under the tools of compute-sanitizer.

    python benchmarks/gpu/sanitized.py -o DIR [--only stencil2d,rows/rms_norm] [--jobs 8] [--time 200]
    DAGC_CXXFLAGS="-O1 -g1 -fsanitize=thread" python benchmarks/gpu/sanitized.py -o DIR --target host

Each program of the corpus (`benchmarks/corpus`), at the size of its check and at multiples of 8, with each legal form
of its kernels at its largest value and with all of them together; results are verified against NumPy in the same run.
On the host target without a tool: under ThreadSanitizer, or results alone. A line for each program, forms and tool; DIR
has the reports of those that are not clean. Exit code 1 if one is not.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.corpus.index import Entry, entries
from dagc import api
from dagc.forms import forms_of, surroundings_of
from dagc.forms.types import Refusal

DAGC = (sys.executable, "-m", "dagc")


@dataclass(frozen=True, slots=True)
class Case:
    """One program under forms. `defines`: for -D."""

    entry: Entry
    words: str
    defines: tuple[str, ...]

    @property
    def sizes(self) -> tuple[tuple[str, ...], ...]:
        """Of its data: that of the check, and multiples of 8, whose rows begin at vectors."""
        given = [word.partition("=") for word in self.entry.check.split()]
        return tuple("".join(parts) for parts in given), tuple(f"{n}={-int(v) // 8 * -8}" for n, _, v in given)


def cases_of(entry: Entry) -> Iterator[Case]:
    """Each form at its largest value, and all of them, where more than one is legal."""
    program = api.read(entry.path).program()
    around, each = surroundings_of(program), dict[str, list[str]]()
    for op in program.kernel_ops:
        kernel = program.kernel(op.kernel)
        impl = next(i for i in kernel.impls if i.code is not None)
        for form, legal in forms_of(kernel, impl, around):
            if not isinstance(legal, Refusal):
                each.setdefault(form.name, []).append(f"{op.name}.{form.tunable}={max(legal)}")
    for name, defines in each.items():
        yield Case(entry, name, tuple(defines))
    if len(each) > 1:
        yield Case(entry, "+".join(each), tuple(d for defines in each.values() for d in defines))


def ran(case: Case, args: argparse.Namespace, end: float) -> list[str]:
    """Compile it, write its data, and run it under each tool: the outcomes."""
    name = f"{case.entry.family}.{case.entry.name} {case.words}"
    folder = args.output / name.replace(" ", ".")
    build = [*DAGC, "compile", str(case.entry.path), *_given(case.defines), "--target", args.target, "-o", str(folder)]
    if time.monotonic() > end:
        return [f"{name}: left out"]
    done = _run(build)
    if done.returncode:
        return [f"{name}: {' '.join(done.stderr.split())[:300]}"]
    out = []
    for number, sizes in enumerate(case.sizes):
        data = folder / f"data-{number}"
        words = _given((*case.defines, *sizes))
        done = _run([*DAGC, "setup", str(case.entry.path), *words, "-n", "1", "-o", str(data)])
        if done.returncode:
            out.append(f"{name} {' '.join(sizes)}: {' '.join(done.stderr.split())[:300]}")
            continue
        for tool in args.tools.split(",") if args.target == "cuda" else ("results",):
            title = f"{name} {' '.join(sizes)} {tool}"
            if time.monotonic() > end:
                return [*out, f"{title}: left out"]
            under = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "77"] if args.target == "cuda" else []
            done = _run([*under, str(folder / "bench"), "--data", str(data), "--check-only"])
            out.append(f"{title}: {'clean' if done.returncode == 0 else f'exit code {done.returncode}'}")
            if done.returncode:
                report = args.output / f"{folder.name}.{number}.{tool}.txt"
                report.write_text((done.stdout + done.stderr)[-20000:], encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    return out


def _given(defines: Sequence[str]) -> list[str]:
    return [word for d in defines for word in ("-D", d)]


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", dest="output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", default="", metavar="NAMES", help="families or FAMILY/NAME, comma separated")
    parser.add_argument("--tools", default="memcheck,racecheck")
    parser.add_argument("--target", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--time", type=float, default=1e6, metavar="S", help="start nothing after so many seconds")
    args = parser.parse_args()
    if args.target == "cuda" and shutil.which("compute-sanitizer") is None:
        print("compute-sanitizer is not on the PATH")
        return 3
    end = time.monotonic() + args.time
    args.output.mkdir(parents=True, exist_ok=True)
    cases = [case for entry in entries(only=filter(None, args.only.split(","))) for case in cases_of(entry)]
    cases.sort(key=lambda case: -case.words.count("+"))  # where the time ends first, all forms together were tried
    bad = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        for lines in pool.map(lambda case: ran(case, args, end), cases):
            bad += sum(not line.endswith((": clean", ": left out")) for line in lines)
            print("\n".join(lines), flush=True)
    print(f"{len(cases)} programs under forms, {bad} not clean")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

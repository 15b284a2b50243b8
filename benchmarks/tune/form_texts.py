"""How long the texts of forms are, and how long it takes to find all forms of a kernel and to write them.

    python -m benchmarks.tune.form_texts               # the kernels of the corpus and of samples/
    python -m benchmarks.tune.form_texts --files wide  # of programs, the emitted files

For each form: kernels that allow it, characters of its text over those of the kernel as written (geometric mean,
largest). Then seconds of CPU time for all forms of a kernel with all their values: median, largest. With --files:
characters of `kernels.cu` over those of the program without forms and of its kernels in files, which are there under
forms alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import geometric_mean, median

from dagc.base.errors import DagcError
from dagc.emit import emit
from dagc.forms import FORMS, forms_asked, forms_of, surroundings_of
from dagc.forms.functions import read_as_texts
from dagc.forms.types import Refusal
from dagc.ir.plan import Plan, Target
from dagc.ir.program import Device, Impl, Kernel, Program
from dagc.space import Space
from dagc.stages.program import read

MOST = 3  # times the length is the goal
ROOT = Path(__file__).parents[2]


def programs() -> Iterator[tuple[Path, Program]]:
    for path in sorted([*(ROOT / "benchmarks/corpus").rglob("*.dag"), *(ROOT / "samples").rglob("*.dag")]):
        with suppress(DagcError):  # a file that others include
            yield path, read(path).program()


def kernels() -> Iterator[tuple[Program, Kernel, Impl]]:
    """Those that have a text."""
    for _, program in programs():
        for kernel in program.kernels:
            for impl in kernel.impls:
                if impl.device is Device.GPU and impl.code is not None and impl.code.text is not None:
                    yield program, kernel, impl


def files(form: str) -> dict[str, float]:
    """By program, the length of its `kernels.cu` with a form over that without."""
    out = {}
    for path, program in programs():
        try:
            given, _ = forms_asked(program, form, [op for op in program.kernel_ops if op.device is Device.GPU])
            lengths = [len(_emitted(path, defines)) for defines in ({}, given)]
        except DagcError:
            continue  # no kernel allows it
        out[program.name] = lengths[1] / (lengths[0] + _in_files(program))
    return out


def _in_files(program: Program) -> int:
    """Characters of the kernels that are functions of files."""
    impls = zip(*([i for k in p.kernels for i in k.impls] for p in (program, read_as_texts(program))), strict=True)
    return sum(
        len(text.code.text or "")
        for impl, text in impls
        if impl.code is not None and text.code is not None and impl.code.text is None
    )


def _emitted(path: Path, defines: Mapping[str, int]) -> str:
    graph = read(path, defines).graph()
    return emit(Plan(graph, next(iter(Space(graph))), Target.CUDA))["kernels.cu"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", metavar="FORM", help="lengths of emitted files")
    form = parser.parse_args().files
    if form is not None:
        lengths = files(form)
        most = max(lengths, key=lambda name: lengths[name])
        over = sum(length > MOST for length in lengths.values())
        mean = f"{geometric_mean(lengths.values()):.2f}, over {MOST} in {over}"
        print(f"{len(lengths)} programs: {mean}, at most {lengths[most]:.2f} ({most})")
        return
    ratios: dict[str, list[float]] = {form.name: [] for form in FORMS}
    seconds = []
    for program, kernel, impl in kernels():
        assert impl.code is not None
        assert impl.code.text is not None
        around, begin = surroundings_of(program), time.process_time()
        for form, legal in forms_of(kernel, impl, around):
            texts = [] if isinstance(legal, Refusal) else [form.rewrite(kernel, impl, around, v) for v in legal[1:]]
            if texts:
                ratios[form.name].append(len(texts[-1].text or "") / len(impl.code.text))
        seconds.append(time.process_time() - begin)
    print("form      kernels  mean  largest")
    for name, found in ratios.items():
        print(f"{name:9} {len(found):7} {geometric_mean(found):5.2f} {max(found):8.2f}")
    print(f"{len(seconds)} kernels: {1000 * median(seconds):.0f} ms, at most {1000 * max(seconds):.0f}")


if __name__ == "__main__":
    main()

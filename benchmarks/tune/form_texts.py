"""How long the texts of forms are, and how long it takes to find all forms of a kernel and to write them.

    python -m benchmarks.tune.form_texts               # the kernels of the corpus and of samples/

For each form: kernels that allow it, characters of its text over those of the kernel as written (geometric mean,
largest). Then seconds of CPU time for all forms of a kernel with all their values: median, largest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean, median

from dagc.base.errors import DagcError
from dagc.forms import FORMS, forms_of, surroundings_of
from dagc.forms.types import Refusal
from dagc.ir.program import Device, Impl, Kernel, Program
from dagc.stages.program import read

ROOT = Path(__file__).parents[2]


def kernels() -> Iterator[tuple[Program, Kernel, Impl]]:
    """Those that have a text."""
    for path in sorted([*(ROOT / "benchmarks/corpus").rglob("*.dag"), *(ROOT / "samples").rglob("*.dag")]):
        try:
            program = read(path).program()
        except DagcError:
            continue  # a file that others include
        for kernel in program.kernels:
            for impl in kernel.impls:
                if impl.device is Device.GPU and impl.code is not None and impl.code.text is not None:
                    yield program, kernel, impl


def main() -> None:
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

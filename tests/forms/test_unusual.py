"""Kernels that are written in unusual ways: each form that they allow leaves results as they are."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import pytest

from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from dagc.forms import FORMS, forms_of, surroundings_of
from dagc.forms.types import Refusal
from dagc.ir.program import Graph
from tests.emit.build import graph_of
from tests.forms.compared import check_at
from tests.precompiled import by_clang
from tests.tiers import representatives

DATA = Path(__file__).parent / "data"
TEXT = (DATA / "unusual.dag").read_text()
NAMES = re.findall(r"^kernel (\w+)", TEXT, re.MULTILINE)
GROUP = 11
SOME, EVERY = 30, 1000  # settings of forms of the kernels of a group
GROUPS = range(0, len(NAMES), GROUP)
OTHERS = NAMES[GROUP : 5 * GROUP]
ARGUMENTS = "[o .. o + 3 * n], x[o .. o + 5 * n], n"


def text_of(kernels: Sequence[str], checks: int) -> str:
    """The program without ops, of some of the kernels."""
    head, *texts = re.split(r"^(?=kernel )", TEXT, flags=re.MULTILINE)
    own = [text for text in texts if text.split("(")[0].split()[1] in kernels]
    return "\n".join([(DATA / "wide.dag").read_text().replace("KERNELS", str(checks)), head, *own])


def formed(kernels: Sequence[str]) -> Iterator[tuple[str, dict[str, int]]]:
    """Kernels with the values of forms: each alone, and the largest of each pair."""
    calls = [f"{name}_made : gpu {name}({name}_out{ARGUMENTS})" for name in kernels]
    arrays = [f"array {name}_out : f32[3 * n + 16] on pinned" for name in kernels]
    clear = [f"{name}_clear : gpu clear({name}_out, 3 * n + 16)" for name in kernels]
    same = [f"one_same : cpu same(apart, {', '.join([f'{kernels[0]}_out'] * 4)}, 3 * n + 16)"]
    program = graph_of("\n".join([text_of(kernels, 1), *arrays, "dag {", *clear, *calls, *same, "}"])).program
    for name in kernels:
        kernel = program.kernel(name)
        legal = forms_of(kernel, kernel.impls[0], surroundings_of(program))
        values = {form: found for form, found in legal if not isinstance(found, Refusal)}
        yield from ((name, {form.tunable: value}) for form, found in values.items() for value in found[1:])
        for one, other in combinations(values, 2):
            if other.name not in one.excludes and one.name not in other.excludes:
                yield name, {form.tunable: max(values[form]) for form in (one, other)}


def program(kernels: Sequence[str], number: int) -> Graph:
    """Each kernel as written and with its forms, at most `number` of these, and a check that all results are equal."""
    every = list(formed(kernels))
    every = random.Random(1).sample(every, min(number, len(every)))
    outs = [*kernels, *(f"{name}_{number}" for number, (name, _) in enumerate(every))]
    arrays = [f"array {out}_out : f32[3 * n + 16] on pinned" for out in outs]
    ops = [f"{out}_clear : gpu clear({out}_out, 3 * n + 16)" for out in outs]
    ops += [f"{name}_plain : gpu {name}({name}_out{ARGUMENTS})" for name in kernels]
    defines = dict[str, str]()
    for number, (name, values) in enumerate(every):
        op = f"{name}_{number}"
        ops.append(f"{op} : gpu {name}({op}_out{ARGUMENTS})")
        both = ", ".join([f"{name}_out", *[f"{op}_out"] * 3])
        ops.append(f"{op}_same : cpu same(apart[{number} .. {number + 1}], {both}, 3 * n + 16)")
        defines |= {f"{op}.{tunable}": str(value) for tunable, value in values.items()}
    text = "\n".join([text_of(kernels, len(every)), *arrays, "dag {", *ops, "}"])
    return graph_of(text, **defines)


@pytest.mark.mpi
@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
@pytest.mark.parametrize(
    ("first", "number"), representatives([(0, SOME), *((first, EVERY) for first in GROUPS)], (0, SOME))
)
def test_results_are_those_of_the_kernel_as_written(first: int, number: int, tmp_path: Path) -> None:
    sizes = [{"side": n} for n in (*range(10), 31, 132)] + [{"side": 64, "shift": k} for k in (0, 1, 2, 4)]
    check_at(program(NAMES[first : first + GROUP], number), tmp_path, sizes, ("-O0", "-w", "-fwrapv", *by_clang()))


def test_forms_allow_most_of_them() -> None:
    """So that the comparison is of something."""
    assert len(FORMS) > 1
    assert len({name for name, values in formed(OTHERS) if len(values) > 1}) > len(OTHERS) / 3

"""Programs in which kernels have several values of their forms, whose results are compared on the host target."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dagc.ir.plan import Plan, Target
from dagc.ir.program import Graph
from dagc.measure.launch import launch
from dagc.setup import run_setup
from dagc.space import Space
from tests.emit.build import graph_of
from tests.emit.together import build_together

DATA = Path(__file__).parent / "data"
FLAGS = ("-O0", "-Wall", "-Wextra", "-Wno-unused-variable", "-Wno-unused-but-set-variable")


@dataclass(frozen=True, slots=True)
class Compared:
    """A file of kernels `k(y, x, ...)`, `clear(y, l)` and `same(different, a, b, l)`.

    length   of `y`, as an expression of the file
    given    the arguments after `y`
    values   of the forms of each op, the first as written
    """

    name: str
    kernels: Collection[str]
    length: str
    given: str
    values: Sequence[Mapping[str, int]]

    def graph(self) -> Graph:
        arrays, ops, defines, checks = [], [], dict[str, str](), 0
        for kernel in self.kernels:
            names = [f"{kernel}_{k}" for k in range(len(self.values))]
            arrays.append(f"array {', '.join(f'{name}_out' for name in names)} : f32[{self.length}] on pinned")
            for name, chosen in zip(names, self.values, strict=True):
                ops.append(f"{name}_clear : gpu clear({name}_out, {self.length})")
                ops.append(f"{name} : gpu {kernel}({name}_out, {self.given})")
                defines |= {f"{name}.form.{form}": str(value) for form, value in chosen.items()}
            for name in names[1:]:
                at = f"apart[{checks} .. {checks + 1}]"
                ops.append(f"{name}_same : cpu same({at}, {names[0]}_out, {name}_out, {self.length})")
                checks += 1
        text = (DATA / f"{self.name}.dag").read_text().replace("KERNELS", str(checks))
        return graph_of("\n".join([text, *arrays, "dag {", *ops, "}"]), **defines)

    def check(self, folder: Path, sizes: Iterable[Mapping[str, int]]) -> None:
        """Run it at all sizes."""
        check_at(self.graph(), folder, sizes)


def check_at(graph: Graph, folder: Path, sizes: Iterable[Mapping[str, int]], flags: Sequence[str] = FLAGS) -> None:
    """Run a program of the host target, with a set-up of DATA, on one rank at all sizes: arguments of the set-up, on
    which the text that is compiled does not depend."""
    made = Plan(graph, next(iter(Space(graph))), Target.HOST)
    program = build_together({"compared": made}, folder / "bench", flags=flags)["compared"]
    setup = graph.program.setup
    assert setup is not None
    for number, size in enumerate(sizes):
        assert size.keys() <= dict(setup.args).keys()
        given = replace(setup, args=tuple((name, size.get(name, value)) for name, value in setup.args))
        arrays = folder / str(number)
        run_setup(replace(graph.program, setup=given), DATA, 1, 0, arrays)
        done = launch([program, "--data", arrays, "--seconds", "0.001", "--repeats", "1"], 1, timeout=300)
        assert done.returncode == 0, (size, done.stdout, done.stderr)

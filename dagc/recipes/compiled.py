"""The result of `dagc compile`, and how it is run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dagc.ir.plan import Plan, Target, program_hash
from dagc.ir.program import shown
from dagc.recipes.program import write_arrays
from dagc.report.display import Display

if TYPE_CHECKING:
    from dagc.ir.program import Program
    from dagc.measure.bench import BenchResult


@dataclass(frozen=True, slots=True)
class Launcher:
    """Plans of a program that selects one when it starts: their labels, the selection criteria, the plan of a run."""

    plans: tuple[str, ...]
    chooses_by: str
    chosen: str = ""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The written, built and measured program. `binary` is None without a build, `result` without a run.

    `target_reason` explains the target; `number` is the traversal's ID, None if it has none (not in the counted space,
    or the space is too large to count). With a `launcher`, `plan` is the first of its plans.
    """

    directory: Path
    plan: Plan
    number: int | None
    target_reason: str
    files: tuple[str, ...]
    binary: Path | None
    result: BenchResult | None
    left_out: tuple[str, ...] = ()  # implementations and files that are not there, and why: "driver.py: ..."
    launcher: Launcher | None = None
    far: tuple[str, ...] = ()  # warnings about sizes known when compiling
    library: str = ""  # the name of the library that `binary` is, "" for a program
    driver: Path | None = None  # what driver.py calls, where that was built

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about sizes far from the measured ones: those of the run, which reads the data, else of
        compiling."""
        if self.result is not None and self.result.warnings:
            return self.result.warnings
        return self.far or (self.plan.chooser.warnings if self.plan.chooser is not None else ())

    def render(self) -> str:
        """A few lines: the target and why, the implementation, the files, and the table of a run."""
        plan = self.plan
        arch = f" {plan.arch}" if plan.target is Target.CUDA else ""
        out = [
            f"target     {plan.target.value}{arch} ({self.target_reason})",
            *self._what(),
            f"wrote      {self.directory}/: {', '.join(self.files)}",
        ]
        out += [f"left out   {what}" for what in self.left_out]
        if self.binary is not None:
            out.append(f"built      {self.binary}{f', {self.driver}' if self.driver is not None else ''}")
        if self.binary is not None and self.binary.suffix == ".whl":
            out.append(f"use        pip install {self.binary}, then import {self.library}")
        elif self.library:
            out.append(
                f"use        {self.library}.h, {self.library}.hpp, fortran/, python/, CMakeLists.txt, {self.library}.pc"
            )
        if self.result is not None:
            out += [f"chosen     {line}" for line in self.result.chosen]
            out += ["", *self.result.table()]
        return "\n".join(out) + "\n"

    def _what(self) -> list[str]:
        plan, launcher = self.plan, self.launcher
        program = f"program    {plan.program.name} {program_hash(plan.program)}"
        if launcher is None:
            number = "without an ID" if self.number is None else f"{self.number}"
            choices = " ".join(f"{name}={shown(value)}" for name, value in plan.decisions if "." not in name)
            return [f"{program}, {choices}", f"traversal  {number}, proved"]
        chosen = [f"taken      {launcher.chosen}"] if launcher.chosen else []
        plans = f"plans      {', '.join(launcher.plans)}; chosen by {launcher.chooses_by}"
        return [program, plans, *chosen]


@dataclass(frozen=True, slots=True)
class Running:
    """How a compiled program is run: `seconds` of one measurement, number of `repeats`; an iteration longer than
    `watchdog` seconds is a hang. `seed`: of the arrays."""

    ranks: int
    seed: int
    seconds: float
    repeats: int
    mpi_takes_device_pointers: bool
    watchdog: float
    display: Display

    def data(self, compiled: Compiled) -> Path:
        """The folder of its arrays."""
        return compiled.directory / f"data-{self.ranks}"

    def arrays(self, program: Program, directory: Path) -> None:
        """Write the arrays of the set-up and the references of each rank. Runs the user's Python code."""
        folder = Path(program.path).parent
        write_arrays(program, folder, directory / f"data-{self.ranks}", self.ranks, self.seed, self.display)

    def time(self, compiled: Compiled) -> BenchResult:
        """Check the results and time them. Raises as `dagc.measure.bench.run_bench`."""
        from dagc.measure.bench import run_bench  # loads numpy

        assert compiled.binary is not None
        with self.display.phase("checking the results, timing"):
            return run_bench(
                compiled.binary, self.data(compiled), self.ranks, self.seconds, self.repeats,
                self.mpi_takes_device_pointers, self.watchdog,
            )  # fmt: skip

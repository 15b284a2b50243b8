"""What `dagc compile` gives back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dagc.plan import Plan, Target, program_hash
from dagc.run.bench import BenchResult


@dataclass(frozen=True, slots=True)
class Compiled:
    """What was written, built and measured. `binary` is None without a build, `result` without a run.

    `target_reason` says why the target is what it is; `number` is the traversal's ID, None where it has
    none (it is not of the counted space, or the space is too large to count).
    """

    directory: Path
    plan: Plan
    number: int | None
    target_reason: str
    files: tuple[str, ...]
    binary: Path | None
    result: BenchResult | None
    left_out: str = ""  # what was not written, and why: "driver.py: ..."

    def render(self) -> str:
        """A few lines: the target and why, the implementation, the files, and the table of a run."""
        plan = self.plan
        arch = f" {plan.arch}" if plan.target is Target.CUDA else ""
        number = "without an ID" if self.number is None else f"{self.number}"
        choices = " ".join(f"{name}={value}" for name, value in plan.decisions if "." not in name)
        out = [
            f"target     {plan.target.value}{arch} ({self.target_reason})",
            f"program    {plan.program.name} {program_hash(plan.program)}, {choices}",
            f"traversal  {number}, proved",
            f"wrote      {self.directory}/: {', '.join(self.files)}",
        ]
        if self.left_out:
            out.append(f"left out   {self.left_out}")
        if self.binary is not None:
            out.append(f"built      {self.binary}")
        if self.result is not None:
            out += ["", *self.result.table()]
        return "\n".join(out) + "\n"

"""What `dagc compile` prints."""

from __future__ import annotations

from dagc.api import Compiled
from dagc.plan import Target, program_hash


def as_text(done: Compiled) -> str:
    """A few lines: the target and why, the implementation, the files, and the table of a run."""
    plan = done.plan
    arch = f" {plan.arch}" if plan.target is Target.CUDA else ""
    number = "not of the counted space" if done.number is None else f"{done.number}"
    choices = " ".join(f"{name}={value}" for name, value in plan.decisions if "." not in name)
    out = [
        f"target     {plan.target.value}{arch} ({done.target_reason})",
        f"program    {plan.program.name} {program_hash(plan.program)}, {choices}",
        f"traversal  {number}, proved",
        f"wrote      {done.directory}/: {', '.join(done.files)}",
    ]
    if done.binary is not None:
        out.append(f"built      {done.binary}")
    if done.result is not None:
        out += ["", *done.result.table()]
    return "\n".join(out) + "\n"

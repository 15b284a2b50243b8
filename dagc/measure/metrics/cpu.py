"""CPU seconds of all ranks, of all their threads, in user and kernel mode."""

from __future__ import annotations

import os
import platform
import resource
from typing import TYPE_CHECKING

from dagc.measure.metrics import Amount

if TYPE_CHECKING:
    from dagc.ir.program import Program

SUMMARY = "CPU seconds of all ranks"
UNIT = "s"
SECONDS = 0.0  # the counter is exact
AMOUNT = Amount.SUM
combine = sum


def why_not(target: str, program: Program) -> tuple[str, str] | None:
    return None


class Observer:
    def __init__(self) -> None:
        self._name = f"{platform.node()} {os.getpid()}"

    def start(self) -> None:
        self._begin = _seconds()

    def stop(self) -> dict[str, float]:
        return {self._name: _seconds() - self._begin}


def _seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime

"""Peak of the resident memory of all ranks' processes while the program runs, in bytes, as Linux keeps it (`VmHWM`).

It contains what a process holds in any case: Python and the arrays of all programs that it has opened, which are the
same for all that a search compares. What is allocated and freed within a run, by code on the CPU, by the MPI or by the
CUDA runtime, is the difference.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

from dagc.measure.metrics import Amount

if TYPE_CHECKING:
    from dagc.ir.program import Program

SUMMARY = "peak of the resident memory of all ranks"
UNIT = "B"
SECONDS = 0.0
AMOUNT = Amount.PEAK
combine = sum
_RESET, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def why_not(target: str, program: Program) -> tuple[str, str] | None:
    if not os.access(_RESET, os.W_OK):
        return f"{_RESET} cannot be written", "it needs Linux with /proc mounted; use another --objective"
    return None


class Observer:
    def __init__(self) -> None:
        self._name = f"{platform.node()} {os.getpid()}"

    def start(self) -> None:
        _RESET.write_text("5")  # sets the peak to what is resident now

    def stop(self) -> dict[str, float]:
        found = re.search(r"^VmHWM:\s*(\d+) kB", _STATUS.read_text(), re.MULTILINE)
        return {self._name: 1024.0 * int(found[1]) if found else 0.0}

"""A signal that ends the process is not lost, whatever code it meets."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys, time
from pathlib import Path
from dagc.base.signals import unwinding

with unwinding():
    try:
        print("begun", flush=True)
        {block}
        while True:
            time.sleep(0.01)
    finally:
        time.sleep(1.2)  # longer than it takes to remind: cleaning up is not disturbed
        Path(sys.argv[1]).write_text("cleaned up")
"""
LOST = """try:
            while True:
                time.sleep(0.01)
        except:
            pass"""


def _ended(block: str, folder: Path) -> tuple[int, str]:
    done = folder / "done"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(block=block), str(done)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGTERM)
    return process.wait(60), done.read_text() if done.exists() else ""


def test_an_exception_that_is_caught_is_raised_again(tmp_path: Path) -> None:
    assert _ended(LOST, tmp_path) == (-signal.SIGTERM, "cleaned up")


def test_blocks_are_left_undisturbed(tmp_path: Path) -> None:
    assert _ended("pass", tmp_path) == (-signal.SIGTERM, "cleaned up")

"""What is said of ranks that hang, and of ranks that died."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dagc.measure.service import reason
from dagc.measure.watchdog import died, ended, hang_summary, place

NAMES = ("pack", "post_send", "wait_recv", "yl")
# pack@s0 record(e0)@s0 yl@s1 sync(e0) post_send wait(e0)@s1 wait_recv
ROWS = [[0, 0, 0], [1, 0, 0], [0, 3, 1], [3, 0, -1], [0, 1, -1], [2, 0, 1], [0, 2, -1], [4, 2, 0], [5, 0, -1]]


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (0, "`pack` (entry 1 of 9)"),
        (1, "`record(e0)@s0` (entry 2 of 9)"),
        (3, "`sync(e0)`, which waits for `pack` (entry 4 of 9)"),
        (5, "`wait(e0)@s1`, which waits for `pack` (entry 6 of 9)"),
        (6, "`wait_recv` (entry 7 of 9)"),
        (7, "a capture region (entry 8 of 9)"),
        (-1, "no entry: before, between or after the iterations"),
    ],
)
def test_an_entry_is_named(position: int, text: str) -> None:
    assert place(ROWS, position, NAMES.__getitem__) == text


def test_an_event_that_is_recorded_twice_is_the_last_record_before() -> None:
    rows = [[0, 0, 0], [1, 0, 0], [0, 3, 0], [1, 0, 0], [3, 0, -1]]
    assert place(rows, 4, NAMES.__getitem__).startswith("`sync(e0)`, which waits for `yl`")
    assert place([[3, 0, -1]], 0, NAMES.__getitem__) == "`sync(e0)` (entry 1 of 1)"


def test_ranks_are_told_together_and_the_one_behind_first() -> None:
    lines = [
        "[0] other output",
        "dagc: hang: rank 3 in `wait_recv` (entry 7 of 9)",
        "dagc: hang: rank 0 in `wait_recv` (entry 7 of 9)",
        "dagc: hang: rank 2 in `yl` (entry 3 of 9)",
    ]
    assert hang_summary(lines) == "rank 2 in `yl` (entry 3 of 9); ranks 0, 3 in `wait_recv` (entry 7 of 9)"
    assert hang_summary(["nothing of the kind"]) == ""


@pytest.mark.parametrize(
    ("stderr", "stdout", "code", "text"),
    [
        ("dagc: hang: rank 0 in `yl` (entry 1 of 1)\ndagc: rank 1: aborted", "", 5,
         "hang: rank 0 in `yl` (entry 1 of 1)"),
        ("dagc: rank 1: x.cu:3: cudaMalloc(...) failed: out of memory\n", "", 5,
         "out of memory: rank 1: x.cu:3: cudaMalloc(...) failed: out of memory"),
        ("noise\ndagc: rank 0: data: cannot open\n", "", 2, "run failed: rank 0: data: cannot open"),
        ("", "=   KILLED BY: SIGNAL 9 (Killed)", 9,
         "run failed: a rank was terminated by SIGKILL (Killed; the system sends it when memory runs out)"),
        ("Python ended\n====\n", "", 1, "run failed: the ranks ended with exit code 1: Python ended"),
        ("", "", None, "run failed: the ranks ended"),
    ],
)  # fmt: skip
def test_why_ranks_died(stderr: str, stdout: str, code: int | None, text: str) -> None:
    assert reason(stderr.splitlines(), stdout.splitlines(), code) == text


def test_what_a_rank_died_of_is_surer_than_what_the_starter_says() -> None:
    faults = {0: "", 1: "Fatal Python error: Aborted\n\nCurrent thread", 3: "Fatal Python error: Aborted", 2: "odd"}
    assert died(faults) == "ranks 1, 3: Aborted (SIGABRT)"
    assert died({0: ""}) == ""
    starter = ["YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Terminated (signal 15)"]
    assert reason([], starter, 15, died(faults)) == "run failed: ranks 1, 3: Aborted (SIGABRT)"
    assert reason([], starter, 15) == "run failed: a rank was terminated by SIGTERM (Terminated)"


HANGS = """
import ctypes, sys, time
from dagc.measure.watchdog import Watchdog
dog = Watchdog(3)
for _ in range(3):
    with dog.watch(60.0, lambda: "never"):
        time.sleep(0.01)
with dog.watch(0.2, lambda: "`yl` (entry 1 of 1)"):
    ctypes.CDLL(None).sleep(60)
"""


def test_a_process_that_hangs_in_c_is_ended() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (5, "dagc: hang: rank 3 in `yl` (entry 1 of 1)\n")


def test_ranks_that_end_alike_are_named_together_and_before_what_follows() -> None:
    lines = [
        "dagc: rank 2: a.hpp:3: MPI_Wait(...) failed: a peer is gone",
        "dagc: rank 1: terminated by SIGSEGV (a bad address) in op `y` (kernel `add`)",
        "dagc: rank 0: terminated by SIGSEGV (a bad address) in op `y` (kernel `add`)",
        "dagc: rank 3: terminated by SIGFPE (a division by zero of integers)",
    ]
    assert reason(lines, [], 139) == (
        "run failed: ranks 0, 1: terminated by SIGSEGV (a bad address) in op `y` (kernel `add`);"
        " rank 3: terminated by SIGFPE (a division by zero of integers)"
    )


def test_reports_of_one_rank_keep_their_order() -> None:
    lines = [
        "dagc: rank 1: terminated by SIGSEGV in op `y`",
        "dagc: rank 0: terminated by SIGTERM",
        "dagc: rank 0: terminated by SIGSEGV in op `y`",
    ]
    assert ended(lines) == "rank 0: terminated by SIGTERM; ranks 0, 1: terminated by SIGSEGV in op `y`"

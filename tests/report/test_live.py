"""The display of a search under way: on a real terminal, in a log, and silent."""

from __future__ import annotations

import math
import os
import pty
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dagc.ir.traversal import Traversal
from dagc.lab.candidate import Candidate
from dagc.lab.engine import Progress
from dagc.report.display import BINS, LOG_EVERY, Display, Phase, duration, histogram, one_line, panel

PROGRESS = Progress(
    phase="search", measured=120, budget=200, space=2036, implementations=118, failures=2, elapsed=12.0, time=None,
    best_value=40.12e-6, best=Candidate(0, Traversal(())), values=[40.12e-6, 41e-6, 41e-6, 50e-6],
)  # fmt: skip


def test_one_line_says_where_the_search_is() -> None:
    assert one_line(PROGRESS) == (
        "search: 120 of 200 measurements, 12 s, 8 s left, best 40.12 us, 118 implementations of 2036 (5.8 %), 2 failed"
    )


def test_how_often_the_best_was_measured_is_shown() -> None:
    assert "best 40.12 us (1 measurement), " in one_line(replace(PROGRESS, measurements_of_best=1))
    noisy = one_line(replace(PROGRESS, measurements_of_best=1), noise=0.01)
    assert "best 40.12 us (noise: 39.32 us to 40.92 us, 1 measurement), " in noisy
    above_half = one_line(replace(PROGRESS, measurements_of_best=1), noise=0.6)
    assert "(noise: 0.00 us to 88.26 us, 1 measurement)" in above_half, "no time is negative"
    eight = replace(PROGRESS, measurements_of_best=8, low=39.9e-6, high=41e-6)
    assert "(95%: 39.90 us to 41.00 us, 8 measurements)" in " ".join("".join(_shown(eight)).split())
    assert "(range: 39.90 us to 41.00 us, 2 measurements)" in one_line(replace(eight, measurements_of_best=2))


def test_the_sooner_of_budget_and_time_is_what_is_left() -> None:
    assert ", 3 s left" in one_line(replace(PROGRESS, time=15.0))
    assert "left" not in one_line(replace(PROGRESS, budget=None))


def _shown(progress: Progress, noise: float = 0.027, width: int = 80) -> list[str]:
    console = Console(width=width, record=True, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    with console.file:
        console.print(panel(progress, noise, lambda _: "transport=nccl [red]\n" + "pack@s0 " * 40))
        return console.export_text().splitlines()


def test_a_terminal_sees_all_of_it() -> None:
    lines = _shown(PROGRESS)
    text = "\n".join(lines)
    for words in ("120 of 200 measurements", "10.0 a second", "8 s left", "118 implementations of 2036", "40.12 us",
                  "noise floor 2.7 %", "transport=nccl [red]", "failed"):  # fmt: skip
        assert words in text
    assert all(len(line.rstrip()) <= 80 for line in lines)
    assert sum("pack@s0" in line for line in lines) == 1


def test_a_terminal_before_the_first_time() -> None:
    nothing = replace(PROGRESS, measured=0, elapsed=0.0, best_value=math.nan, best=None, values=[], budget=None)
    text = "\n".join(_shown(nothing, math.nan))
    assert "best" not in text
    assert "0 measurements" in text


@given(st.lists(st.floats(1e-7, 1e-2), max_size=200))
def test_a_histogram_is_as_wide_as_it_should_be(seconds: list[float]) -> None:
    low, high, bars = histogram(seconds)
    assert len(bars) == (BINS if seconds else 0)
    if seconds:
        assert low == min(seconds)
        assert low <= high <= max(seconds)
        assert "█" in bars


@pytest.mark.parametrize(("width", "bars"), [(120, BINS), (60, 35), (40, 15), (30, 0)])
def test_the_times_stay_in_their_line_however_narrow_the_terminal(width: int, bars: int) -> None:
    lines = _shown(replace(PROGRESS, values=[3e-5 + 1e-7 * i for i in range(100)]), width=width)
    (times,) = [line.rstrip() for line in lines if line.startswith("times")]
    assert len(times) <= width
    assert times.endswith("us")
    assert sum(c in "▁▂▃▄▅▆▇█" for c in times) == bars
    assert ("us to" in times) == (bars == 0)


def test_a_histogram_of_very_many_times_still_has_its_shape() -> None:
    low, high, bars = histogram([1e-6] * 90_000 + [2e-6] * 10_000)
    assert (low, high) == (1e-6, 2e-6)
    assert bars[0] == "█"
    assert bars[-1] in "▁▂"


def test_a_log_has_a_line_after_a_second_and_then_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    with Display(clock=lambda: now).search(0.02) as show:
        for step, lines in ((0.5, 0), (0.6, 1), (0.8 * LOG_EVERY, 0), (0.4 * LOG_EVERY, 1)):
            now += step
            show(PROGRESS)
            assert capsys.readouterr().err == lines * f"{one_line(PROGRESS)}\n"


def test_quiet_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(quiet=True).search(0.02) as show:
        show(PROGRESS)
    assert capsys.readouterr() == ("", "")


_SEARCH = """
import sys, time
from dataclasses import replace
from dagc.report.display import Display
from tests.report.test_live import PROGRESS
try:
    with Display().search(0.02) as show:
        for i in range(100_000):
            show(replace(PROGRESS, measured=i))
            time.sleep(0.001)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_leaves_a_clean_terminal() -> None:
    """On a pseudo-terminal: the cursor that was hidden is shown again, and what was drawn is gone."""
    try:
        ours, theirs = pty.openpty()
    except OSError:  # a container or chroot without /dev/pts
        pytest.skip("needs pseudo-terminals (/dev/pts)")
    env = os.environ | {"TERM": "xterm", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(
        [sys.executable, "-c", _SEARCH], stdin=theirs, stdout=theirs, stderr=theirs, env=env
    ) as child:
        os.close(theirs)
        said = b""
        until = time.monotonic() + 300
        while b"a second" not in said and time.monotonic() < until:
            said += os.read(ours, 4096)
        child.send_signal(signal.SIGINT)
        while True:
            try:
                more = os.read(ours, 4096)
            except OSError:  # the other end was closed
                break
            if not more:
                break
            said += more
        assert child.wait() == 0
    os.close(ours)
    hide, show = b"\x1b[?25l", b"\x1b[?25h"
    assert hide in said
    assert said.rindex(show) > said.rindex(hide)
    assert said.rstrip().endswith(b"interrupted")
    assert b"\x1b[2K" in said[said.rindex(b"a second") :]  # lines are erased


# ---- phases ---------------------------------------------------------------------------------


def test_a_phase_says_how_far_it_is_and_how_long_it_will_take() -> None:
    now = 100.0
    phase = Phase("compiling", 4, "program", lambda: now)
    assert phase.line() == "compiling: 0 of 4 programs, 0 s"
    now = 120.0
    phase.advance("transport=nccl")
    assert phase.line() == "compiling: 1 of 4 programs, 20 s, about 60 s left (transport=nccl)"
    now = 150.0  # one long step does not make the rest longer
    assert phase.line() == "compiling: 1 of 4 programs, 50 s, about 30 s left (transport=nccl)"
    now = 190.0
    assert phase.line() == "compiling: 1 of 4 programs, 90 s (transport=nccl)"
    phase.at(4)
    assert phase.line() == "compiling: 4 of 4 programs, 90 s"
    unknown = Phase("counting", unit="state", clock=lambda: now)
    unknown.at(12000)
    assert unknown.line() == "counting: 12000 states, 0 s"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (119, "119 s"), (200, "3 min 20 s"), (660, "11 min"), (7500, "2 h 5 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_phase_speaks_only_where_it_takes_long(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display()
    with display.phase("reading"):
        pass
    said = ""
    with display.phase("compiling", 2) as phase, display.phase("within it"):
        phase.advance()
        until = time.monotonic() + 300
        while not said and time.monotonic() < until:
            time.sleep(0.05)
            said += capsys.readouterr().err
    with Display(quiet=True).phase("silent"):
        time.sleep(0.05)
    assert said.startswith("compiling: ")
    assert said.count("\n") == 1
    assert capsys.readouterr() == ("", "")

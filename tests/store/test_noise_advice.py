"""What a noisy machine is told: that it is busy, with what, and what to do."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dagc.measure.machine import machine_facts
from dagc.report.html import as_html
from dagc.store.results import noise_advice, noise_advice_of
from tests.data.h200 import MACHINE, h200_graph, h200_results

BUSY = {
    "load": [9.34, 5.0, 2.0], "gpu_processes": ["4711 python (20000 MiB)"],
    "clocks": [{"clocks.sm": "345 MHz", "clocks.max.sm": "1980 MHz"}] * 4,
}  # fmt: skip


def test_a_quiet_machine_is_told_nothing() -> None:
    assert noise_advice(0.03, replace(MACHINE, facts=BUSY), 4) == ()
    assert noise_advice(math.nan, replace(MACHINE, facts=BUSY), 4) == ()


def test_what_was_busy_and_what_to_do() -> None:
    text = "\n".join(noise_advice(0.31, replace(MACHINE, facts=BUSY, cores=2), 4))
    for words in ("noise floor of one measurement is 31 %", "The machine is busy", "load average 9.3 on 2 cores",
                  "4711 python (20000 MiB)", "SM clock 345 MHz of at most 1980 MHz", "fewer ranks than the 2 cores",
                  "--seconds 0.1", "--passes 5", "nvidia-smi -lgc"):  # fmt: skip
        assert words in text
    assert text.count("SM clock") == 1


@pytest.mark.parametrize("facts", [{}, {"load": "?", "clocks": "?", "gpu_processes": 3}, {"load": [], "clocks": [1]}])
def test_what_is_not_known_is_left_out(facts: dict[str, object]) -> None:
    lines = noise_advice(0.31, replace(MACHINE, facts=facts, gpus=()), 4)
    assert len(lines) == 2
    assert "nvidia-smi" not in lines[-1]


def test_the_page_says_it() -> None:
    results = replace(h200_results(), noise=0.31, implementations=h200_results().implementations[:50])
    configuration = results.implementations[0].configuration
    page = as_html(results, {configuration: h200_graph()}, None, file="r.db")
    assert all(line.split("(")[0] in page for line in noise_advice_of(results))
    assert len(noise_advice_of(results)) == 2


def test_processes_on_the_gpus_are_others_than_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a program of the name nvidia-smi: there is no GPU here that another process could use."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    smi = tmp_path / "nvidia-smi"
    apps = f"{os.getpid()}, ours, 10 MiB\\n{child.pid}, ours too, 10 MiB\\n1, other, 200 MiB\\n"
    clocks = "345 MHz, 1 MHz, 1980 MHz, 2 MHz, Enabled, 700 W"
    smi.write_text(f"#!/bin/sh\ncase $1 in *compute-apps*) printf '{apps}';; *) echo '{clocks}';; esac\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    facts = machine_facts("cuda", "sm_90").facts
    child.communicate(b"\n")
    assert facts["gpu_processes"] == ["1 other (200 MiB)"]
    assert facts["clocks"][0]["clocks.max.sm"] == "1980 MHz"

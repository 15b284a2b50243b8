"""Commands that read or write much say on standard error what they do, and nothing with --quiet."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.cli import main as cli
from dagc.report import display as live

ROOT = Path(__file__).parents[2]
RESULTS = str(ROOT / "benchmarks/results/2026-11-21-4xh200-explore/spmv-150000-peer.db")
HEAT = str(ROOT / "benchmarks/results/2026-11-22-2xh200-launch/heat-auto.db")
SETUP = ["setup", str(ROOT / "samples/spmv/spmv.dag"), "-D", "rows=2000", "-n", "2", "-o"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["rules", RESULTS], "learning rules"),
        (["best", RESULTS, "--plan"], "reading"),
        (["report", RESULTS, "-o", "OUT/page.html"], "drawing"),
        (["export", RESULTS, "--csv", "-o", "OUT/all.csv"], "writing its measurements"),
        (["merge", HEAT, HEAT.replace("auto", "fixed"), "-o", "OUT/merged.db"], "merging"),
        ([*SETUP, "OUT/data"], "setting up the arrays"),
    ],
)
@pytest.mark.parametrize("quiet", [False, True])
def test_long_work_is_reported_unless_quiet(command, said, quiet, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(live, "FIRST_LINE", 0.0)  # at once, instead of after a second
    words = [word.replace("OUT", str(tmp_path)) for word in command]
    assert cli.main([*words, *["--quiet"] * quiet]) == 0
    assert (said in capsys.readouterr().err) == (not quiet)

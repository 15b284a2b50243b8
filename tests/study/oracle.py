"""The oracle of an H200, in memory: program -> op -> size -> setting -> seconds (flushed cells only)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from benchmarks.tune.oracle_csv import read_oracle
from dagc.choice.types import Case
from dagc.ir.choice import Choice

ROOT = Path(__file__).parents[2]
PATH = ROOT / "benchmarks" / "results" / "2026-11-21-h200-tune" / "oracle.csv.xz"

Times = dict[Choice, float]


@lru_cache(maxsize=1)
def oracle() -> dict[tuple[str, str], dict[Case, Times]]:
    """(program, op) -> size -> setting -> median in seconds."""
    out: dict[tuple[str, str], dict[Case, Times]] = {}
    for cell in read_oracle(PATH):
        if cell.flush and not cell.failure:
            out.setdefault((cell.program, cell.op), {}).setdefault(cell.case, {})[cell.choice] = cell.seconds
    return out


def scalars(case: Case) -> dict[str, int]:
    """PolyBench's samples name their scalars as their parameters, in small letters."""
    return {name.lower(): value for name, value in case.params}

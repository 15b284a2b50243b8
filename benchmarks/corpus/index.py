"""The kernels of the corpus: families, their split, and a small odd size of each kernel at which results are checked.

    from benchmarks.corpus.index import entries
    for entry in entries("fit"): ...

`corpus.toml` is the list. `fit`: constants and learned models may be fitted to these families. `validate`: they choose
between models. `unseen`, `unseen2` to `unseen7`: measured, and looked at once, at the end; README.md says what has been
opened.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent
SPLITS = ("fit", "validate", "unseen", "unseen2", "unseen3", "unseen4", "unseen5", "unseen6", "unseen7")


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel: a program of its own. `check`: as `dagc tune --check-at` takes it."""

    family: str
    name: str
    split: str
    check: str
    root: Path = ROOT

    @property
    def path(self) -> Path:
        return self.root / self.family / f"{self.name}.dag"

    @property
    def key(self) -> str:
        return f"{self.family}/{self.name}"


def entries(*splits: str, only: Iterable[str] = ()) -> tuple[Entry, ...]:
    """Those of the splits (all without), in the order of the list. `only`: FAMILY or FAMILY/NAME.

    Raises KeyError for a word of `only` that names nothing.
    """
    listed = tomllib.loads((ROOT / "corpus.toml").read_text(encoding="utf-8"))
    every = [
        Entry(family, name, about["split"], check)
        for family, about in listed.items()
        for name, check in about["kernels"].items()
    ]
    wanted = set(only)
    unknown = wanted - {e.family for e in every} - {e.key for e in every}
    if unknown:
        raise KeyError(f"no family and no kernel of the corpus: {', '.join(sorted(unknown))}")
    return tuple(e for e in every if (not splits or e.split in splits) and (not wanted or {e.family, e.key} & wanted))

"""Choosers of tuned files at sizes that they have not seen, beside everything measured there and the volume model.

    python -m benchmarks.tune.unseen benchmarks/results/DATE-GPU-tune/live/learned

The folder holds PROGRAM.db.xz, a tuned file, and new-PROGRAM.db.xz, with every legal setting at other sizes. t_chosen /
t_best of what the tuned file's chooser takes, of what the model takes with nothing measured, and of the default.
"""

from __future__ import annotations

import argparse
import lzma
import tempfile
from pathlib import Path

from benchmarks.tune.table import LIMITS, scalars
from dagc import api
from dagc.choice.legal import legal_settings, open_sites
from dagc.choice.models import site_chooser
from dagc.choice.types import Case
from dagc.ir.choice import Choice
from dagc.perf.hardware import load_hardware
from dagc.store.tuned import load_tuned
from dagc.study.tuned import choosers_of

ROOT = Path(__file__).parents[2]


def unpacked(packed: Path, folder: Path) -> Path:
    path = folder / packed.stem
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    return path


def lines(tuned: Path, new: Path) -> list[str]:
    """One for each size of `new`."""
    graph = api.load_graph(ROOT / "samples" / "polybench" / f"{tuned.stem}.dag")
    (chooser,) = choosers_of(graph, load_tuned(tuned), "sm_90")
    (site,) = open_sites(graph, [chooser.op])
    model = site_chooser(graph, site, legal_settings(graph, site, LIMITS), load_hardware("h200"))
    times: dict[Case, dict[Choice, float]] = {}
    for cell, _ in load_tuned(new).samples:
        times.setdefault(cell.case, {})[cell.choice] = cell.seconds
    method = load_tuned(tuned).kernel_choosers[chooser.op].method
    out = []
    for case, here in sorted(times.items()):
        sizes, best = scalars(case), min(here.values())
        taken = [c.choices[c.choose(sizes)] for c in (chooser, model)]
        words = [f"{s.in_words}, {here[s] / best:.3f}" for s in (*taken, site.default)]
        out.append(f"| {tuned.stem} | {case.text} | {method} | {' | '.join(words)} |")
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    print("| program | size | method | its choice | the model's | default |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for packed in sorted(args.folder.glob("new-*.db.xz")):
            new = unpacked(packed, Path(folder))
            tuned = unpacked(packed.with_name(packed.name.removeprefix("new-")), Path(folder))
            print("\n".join(lines(tuned, new)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Rules across inputs, each left out in turn: the loss of what follows them, and what was said of it before.

    python benchmarks/transfer.py [--transports mpi_cuda mpi_host] [--json F] [--markdown F]

The five inputs of the SpMV recorded on four H200s (benchmarks/results/2026-11-21-4xh200-explore): what
`dagc rules A.db B.db ...` learns from four of them is judged on the fifth. The goal is a loss of at most 1 % (median)
and 3 % (95th percentile) with CUDA-aware MPI, and nothing said to hold that does not.

What rules of the others could reach at most stands beside it: of the implementations that are within 1 % of the best
hundredth on each of the others, the least loss on the input (none are: -).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dagc.recipes.rules import rules_across
from dagc.store.records import load

RECORDS = ROOT / "benchmarks/results/2026-11-21-4xh200-explore"
INPUTS = ("150000", "1500000", "15000000", "bcsstk32", "cnr2000")


WITHIN, BEST = 0.01, 0.01


def measure(transport: str) -> dict[str, Any]:
    files = [f"{name}={RECORDS}/spmv-{name}-{transport}.db" for name in INPUTS]
    found: dict[str, Any] = json.loads(rules_across(files, "json"))
    return found | {"reachable": reachable(transport)}


def reachable(transport: str) -> dict[str, float | None]:
    """By input, the least loss on it of what is fast on all others; None: nothing is."""
    losses: dict[str, dict[str, float]] = {}
    for name in INPUTS:
        results = load(f"{RECORDS}/spmv-{name}-{transport}.db")
        times = {f"{i.configuration.text} {i.traversal}": i.value(results.reference) for i in results.measured()}
        best = sorted(times.values())[int(BEST * len(times))]
        losses[name] = {key: time / best - 1 for key, time in times.items()}
    common = set.intersection(*(set(of) for of in losses.values()))
    out: dict[str, float | None] = {}
    for name in INPUTS:
        fast = [key for key in common if all(losses[o][key] <= WITHIN for o in INPUTS if o != name)]
        out[name] = min((losses[name][key] for key in fast), default=None)
    return out


def markdown(found: dict[str, dict[str, Any]]) -> str:
    out = [
        "Loss of the implementations that follow rules learned without the input: median (95th percentile), in %.\n",
        "| transport | input | noise | followers | loss | loss of all | reachable | holds | said before |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for transport, one in found.items():
        noise = {given["name"]: given["noise"] for given in one["inputs"]}
        for row in one["left_out"]:
            said = "would hold" if row["said_to_hold"] else f"not known: {row['reason']}"
            least = one["reachable"][row["input"]]
            reach = "-" if least is None else f"{100 * least:.1f}"
            holds = "yes" if row["holds"] else "no"
            out.append(
                f"| {transport} | {row['input']} | {100 * noise[row['input']]:.1f} | {row['loss']['followers']} | "
                f"{_loss(row['loss'])} | {_loss(row['loss_of_all'])} | {reach} | {holds} | {said} |"
            )
    return "\n".join(out) + "\n"


def _loss(loss: dict[str, Any]) -> str:
    return f"{100 * loss['median']:.1f} ({100 * loss['percentile_95']:.1f})" if loss["followers"] else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--transports", nargs="+", default=["mpi_cuda", "mpi_host"])
    parser.add_argument("--json", metavar="F")
    parser.add_argument("--markdown", metavar="F")
    args = parser.parse_args()
    found = {transport: measure(transport) for transport in args.transports}
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n")
    text = markdown(found)
    if args.markdown:
        Path(args.markdown).write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()

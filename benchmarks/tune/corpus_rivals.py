"""Kernel Tuner's strategies on an oracle of the corpus, with as many evaluations as `dagc tune` has.

    python -m venv KT && KT/bin/pip install kernel-tuner==1.5.0
    python -m benchmarks.tune.corpus_rivals ORACLE-validate.csv.xz --write SPACES.json     # with dagc's Python
    KT/bin/python -P benchmarks/tune/corpus_rivals.py SPACES.json     # Kernel Tuner's; -P: not the file beside it

Simulation mode: an evaluation looks the median up. The default is the first evaluation of every strategy, as for dagc;
the budget is for each size (5), or for all (20: evenly, since Kernel Tuner tunes one size at a time).
Strategies that raise an exception on a space are left out of it and counted.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import random
import statistics
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

STRATEGIES = "random_sample greedy_ils mls genetic_algorithm simulated_annealing bayes_opt pso diff_evo".split()


def spaces(oracle: Path) -> list[dict[str, Any]]:
    """Each kernel and size: names of tunables, settings with their times in seconds, the default first."""
    from benchmarks.tune.compiled import programs
    from benchmarks.tune.oracle_csv import read_oracle
    from dagc import api
    from dagc.choice.legal import open_sites

    found: dict[tuple[str, str], dict[Any, dict[Any, float]]] = {}
    for cell in read_oracle(oracle):
        if cell.flush and not cell.failure:
            found.setdefault((cell.program, cell.op), {}).setdefault(cell.case, {})[cell.choice] = cell.seconds
    out, paths = [], programs()
    for (program, op), sizes in found.items():
        (site,) = open_sites(api.load_graph(paths[program]), [op])
        for point, times in sizes.items():
            order = sorted(times, key=lambda s: s != site.default)
            out.append(
                {
                    "kernel": f"{program} {op}", "size": point.text, "sizes": len(sizes),
                    "wide": sum(bool(d.axis) for d in site.open) >= 2, "code": any(not d.axis for d in site.open),
                    "names": list(order[0].own), "settings": [list(s.values()) for s in order],
                    "times": [times[s] for s in order],
                }
            )  # fmt: skip
    return out


def evaluated(space: Mapping[str, Any], strategy: str, budget: int, seed: int, folder: Path) -> list[int]:
    """Places of the settings that a strategy evaluates."""
    import kernel_tuner

    names = list(space["names"])
    legal = {tuple(s): i for i, s in enumerate(space["settings"])}
    params = {n: sorted({s[k] for s in legal}) for k, n in enumerate(names)}
    zero = dict.fromkeys("compile_time verification_time benchmark_time strategy_time framework_time".split(), 0)
    cache = folder / "cache.json"
    cells = {
        ",".join(map(str, s)): {
            **dict(zip(names, s, strict=True)), "time": space["times"][i] * 1e3, "times": [space["times"][i] * 1e3],
            **zero, "timestamp": "2026-11-22 00:00:00",
        }
        for s, i in legal.items()
    }  # fmt: skip
    cache.write_text(
        json.dumps(
            {
                "device_name": "GPU", "kernel_name": "k", "problem_size": [1, 1, 1], "tune_params_keys": names,
                "tune_params": params, "objective": "time", "cache": cells,
            }
        )
    )  # fmt: skip
    random.seed(seed)
    np.random.seed(seed)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results, _ = kernel_tuner.tune_kernel(
            "k", "__global__ void k() {}", (1, 1, 1), [], params, lang="CUDA", block_size_names=names[:1], quiet=True,
            restrictions=[f"({', '.join(names)},) in {tuple(legal)!r}"], strategy=strategy,
            strategy_options={"max_fevals": budget}, cache=str(cache), simulation_mode=True,
        )  # fmt: skip
    tried = dict.fromkeys(tuple(int(r[n]) for n in names) for r in results if r)
    return [legal[s] for s in tried if s in legal][:budget]


def losses(found: Sequence[Mapping[str, Any]], strategy: str, in_all: int, seeds: int) -> tuple[list[float], int]:
    """Logarithms of t_chosen / t_best, and how often the strategy failed. `in_all`: 0: five at each size."""
    out, failed = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for number, space in enumerate(found):
            budget = min(5 if not in_all else max(1, in_all // space["sizes"]), len(space["times"]))
            for seed in range(seeds):
                try:
                    own = (
                        evaluated(space, strategy, budget - 1, seed * len(found) + number, Path(folder))
                        if budget > 1
                        else []
                    )
                except Exception:  # whatever goes wrong inside a strategy is a result of the comparison
                    failed += 1
                    continue
                times = space["times"]
                out.append(math.log(min(times[i] for i in (0, *own)) / min(times)))
    return out, failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="an oracle with --write, else what that wrote")
    parser.add_argument("--write", type=Path, metavar="JSON")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES, metavar="NAME")
    args = parser.parse_args()
    if args.write is not None:
        args.write.write_text(json.dumps(spaces(args.file)))
        return 0
    import kernel_tuner

    if not hasattr(kernel_tuner, "tune_kernel"):
        parser.error(f"{kernel_tuner.__file__} is not Kernel Tuner: start Python with -P")
    found = json.loads(args.file.read_text())
    parts = {
        "2-D blocks": [s for s in found if s["wide"]], "1-D blocks": [s for s in found if not s["wide"]],
        "tunables beside block dimensions": [s for s in found if s["code"]],
    }  # fmt: skip
    print(f"| Kernel Tuner, the default first | {' | '.join(parts)} |\n|---|---|---|---|")
    for in_all, what in ((0, "5 at each size"), (20, "20 in all, evenly")):
        for strategy in args.strategies:
            cells = []
            for of in parts.values():
                out, failed = losses(of, strategy, in_all, args.seeds)
                geometric = f"{math.exp(statistics.fmean(out)):.4f} ({math.exp(max(out)):.2f})" if out else "-"
                cells.append(geometric + (f", {failed} failed" if failed else ""))
            print(f"| {strategy}, {what} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

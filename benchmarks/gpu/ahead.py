"""Features before the first run, one after the other or in parallel, compared with features during its first ops.

    python -m benchmarks.gpu.ahead --out FOLDER [--target host] [--systems grid:300,wide:300] [--steps 100,10000]
        [--times 7]

Tunes benchmarks/gpu/ahead.dag, whose first op needs no feature and takes as long as `steps` says, and compiles it with
`--features now`, `parallel` and `async`. Prints milliseconds from the end of the loading of arrays to the end of the
first run (features, choice, run), medians of processes that take turns, and those of a later run. Writes
FOLDER/ahead.json.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from pathlib import Path
from statistics import median

from dagc import api
from dagc.build.builder import Build, build
from dagc.build.mpi import require_mpi
from dagc.recipes import tune as recipes
from dagc.stages.options import TuneOptions

HERE = Path(__file__).parent
PROGRAM = HERE / "ahead.dag"
MODES = ("now", "parallel", "async")


def built(out: Path, tuned: Path, target: str | None) -> dict[str, Path]:
    """The program of each mode."""
    programs = {}
    for mode in MODES:
        folder = api.compile(PROGRAM, out / mode, target=target, launch=str(tuned), features=mode, force=True).directory
        source = "ahead.cpp" if target == "host" else "ahead.cu"  # with launches
        shutil.copyfile(HERE / "ahead.cpp", folder / source)
        programs[mode] = build(
            Build([source], target=target or "cuda", directory=folder, mpi=require_mpi()), folder / "ahead"
        )
    return programs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", choices=("cuda", "host"))
    parser.add_argument("--systems", default="grid:1000,wide:300", help="KIND:SIDE of beside_setup.py")
    parser.add_argument("--steps", default="1000,10000,100000")
    parser.add_argument("--times", type=int, default=7)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    tuned, rows = args.out / "ahead.db", []
    systems = [word.split(":") for word in args.systems.split(",")]
    if not tuned.exists():
        inputs = tuple(f"{kind}(side = {s}, steps = 1)" for kind, side in systems for s in (int(side), int(side) // 3))
        recipes.tune(PROGRAM, tuned, TuneOptions(target=args.target, inputs=inputs))
    programs = built(args.out, tuned, args.target)
    for kind, side in systems:
        for steps in map(int, args.steps.split(",")):
            data = args.out / f"data-{kind}-{side}-{steps}"
            if data.exists():
                shutil.rmtree(data)
            api.run_setup(PROGRAM, 1, data, defines={"system": f"{kind}(side = {side}, steps = {steps})"})
            found: dict[str, list[list[float]]] = {mode: [] for mode in MODES}
            for _ in range(args.times):
                for mode, program in programs.items():
                    words = [str(program.absolute()), str(data)]
                    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
                    found[mode].append([float(word) for word in said.split()])
            first = {mode: 1e3 * median(one[0] for one in of) for mode, of in found.items()}
            later = 1e3 * median(one[1] for of in found.values() for one in of)
            rows.append({"kind": kind, "side": int(side), "steps": steps, "runs": found})
            times = "  ".join(f"{mode} {ms:9.3f}" for mode, ms in first.items())
            print(f"{kind} {side:>5} {steps:7}  ms of the first run: {times}  later {later:9.3f}"
                  f"  answers {sorted({int(one[2]) for of in found.values() for one in of})}", flush=True)  # fmt: skip
            (args.out / "ahead.json").write_text(json.dumps(rows, indent=1) + "\n")
            shutil.rmtree(data)


if __name__ == "__main__":
    main()

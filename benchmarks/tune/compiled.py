"""Resources of the kernels of the corpus and of PolyBench under each setting, from nvcc: registers, shared memory,
spills and instructions, as `dagc tune` reads them. Compiling takes a while, and a GPU is not needed: the file is kept.

    python -m benchmarks.tune.compiled -o benchmarks/results/DATE-GPU-corpus/compiled.json.xz [--only dense,gemm]

Entries of an existing file are not compiled again.
"""

from __future__ import annotations

import argparse
import json
import lzma
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.corpus.index import entries
from benchmarks.gpu.oracle import POLYBENCH, SAMPLES
from dagc import api
from dagc.cuda.ptx import Instructions, Resources
from dagc.ir.choice import Choice
from dagc.study.build import compiled_resources, of_settings
from dagc.study.task import tuning_task

ARCH = "sm_90"


def programs() -> dict[str, Path]:
    """Name, as in an oracle -> path."""
    corpus = {f"{e.family}.{e.name}": e.path for e in entries()}
    return corpus | {name: SAMPLES / f"{name}.dag" for name in POLYBENCH}


def read_compiled(path: Path) -> dict[tuple[str, str], dict[Choice, Resources]]:
    """(program, op) -> setting -> what its code takes; empty where there is no such file."""
    out: dict[tuple[str, str], dict[Choice, Resources]] = {}
    for program, ops in _read(path).items():
        for op, rows in ops.items():
            out[program, op] = {
                Choice.at(op, choice): Resources(
                    registers,
                    shared,
                    None if code is None else Instructions(code["once"], tuple(code["loops"])),
                    spills,
                )
                for choice, registers, shared, spills, code in rows
            }
    return out


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(lzma.decompress(path.read_bytes()))) if path.exists() else {}


def compiled(path: Path) -> dict[str, Any]:
    """Of one program."""
    task = tuning_task(api.read(path), target="cuda", arch=ARCH)
    with tempfile.TemporaryDirectory() as folder:
        each = of_settings(task, compiled_resources(task, Path(folder)))
    return {op: [_row(s, r) for s, r in zip(task.choices[op], rows, strict=True)] for op, rows in each.items()}


def _row(choice: Choice, taken: Resources) -> list[Any]:
    code = taken.instructions.to_json() if taken.instructions is not None else None
    return [list(choice.own.items()), taken.registers, taken.shared, taken.spills, code]


def write(path: Path, found: Mapping[str, Any]) -> None:
    path.write_bytes(lzma.compress(json.dumps(found, separators=(",", ":")).encode(), preset=6))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", dest="output", type=Path, required=True)
    parser.add_argument("--only", default="", metavar="NAMES", help="programs, or families, comma separated")
    args = parser.parse_args()
    only, found = {w for w in args.only.split(",") if w}, _read(args.output)
    for name, path in programs().items():
        if name not in found and (not only or {name, name.split(".")[0]} & only):
            found[name] = compiled(path)
            write(args.output, found)
            print(f"{name}: {len(found[name])} ops", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

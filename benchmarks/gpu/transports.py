"""What a message costs under each transport: a ring of ranks, from 4 bytes to 64 MiB, results checked.

    python benchmarks/gpu/transports.py --transports nccl,peer,mpi_host --out DIR
    python benchmarks/gpu/transports.py --transports mpi_cuda --mpi-takes-device-pointers --out DIR

Prints microseconds per iteration (one exchange, one synchronisation of the CPU), and at large sizes GB/s a direction.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import dagc
from dagc.base.errors import DagcError
from dagc.measure.bench import run_bench

RING = Path(__file__).parent / "ring.dag"
SIZES = [4, 1 << 10, 1 << 14, 1 << 17, 1 << 20, 10_000_001, 1 << 26]


def measure(transport: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    directory = args.work / transport
    dagc.compile(RING, directory, target=args.target, defines={"transport": transport}, force=True)
    out = []
    for size in args.sizes:
        data = args.work / f"data-{size}"
        try:
            result = run_bench(
                directory / "bench", data, args.ranks, args.seconds, args.repeats, args.mpi_takes_device_pointers
            )
        except DagcError as error:
            print(f"{transport:14} {size:>10} FAILED: {error}", flush=True)
            out.append({"transport": transport, "bytes": size, "failed": str(error)})
            continue
        rate = f"{size / result.median / 1e9:8.2f} GB/s" if size >= 1 << 17 else ""
        print(f"{transport:14} {size:>10} {result.median * 1e6:10.2f} us {rate}", flush=True)
        out.append({"transport": transport, "bytes": size, "record": result.record})
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="DIR", help="where the record goes")
    add("--work", type=Path, default=Path("build/transports"), metavar="DIR", help="scratch (build/transports)")
    add("--transports", default="nccl,peer,mpi_host")
    add("--sizes", type=lambda text: [int(s) for s in text.split(",")], default=SIZES, help="bytes")
    add("--target", choices=("cuda", "host"), default="cuda")
    add("--ranks", type=int, default=4)
    add("--seconds", type=float, default=0.02)
    add("--repeats", type=int, default=20)
    add("--mpi-takes-device-pointers", action="store_true")
    args = parser.parse_args()
    args.work, args.out = args.work.absolute(), args.out.absolute()
    args.out.mkdir(parents=True, exist_ok=True)
    for size in args.sizes:
        dagc.run_setup(RING, args.ranks, args.work / f"data-{size}", 0, {"bytes": size})
    runs = [run for transport in args.transports.split(",") for run in measure(transport, args)]
    (args.out / "transports.json").write_text(json.dumps(runs, indent=1) + "\n")
    return int(any("failed" in run for run in runs))


if __name__ == "__main__":
    raise SystemExit(main())

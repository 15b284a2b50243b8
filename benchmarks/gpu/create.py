"""The cost of `create` of a library under each transport, compared with ncclCommInitRank alone.

    python -m benchmarks.gpu.create OUT [--ranks 1] [--transports mpi_host,peer,nccl] [--target host]

The library is that of ring.dag, whose arrays are small: what is left is the connection of the ranks. Each process
creates, rebinds and destroys it several times; the first time loads kernels and starts what the transport needs. With
`nccl` it is created twice in each turn: with a communicator of its own, and on one that the application has made, whose
ncclCommInitRank is timed alone. In every second process the application's is first. Writes OUT/create.csv; prints
milliseconds, the slowest rank's: of the first time in a process, and the median of all later ones.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dagc import api
from dagc.build.mpi import require_mpi
from dagc.build.toolchain import require_cxx, require_nccl, require_nvcc
from dagc.measure.launch import launch

HERE = Path(__file__).parent
FIELDS = ("transport", "process", "first", "what", "turn", "ms")


def built(transport: str, target: str, folder: Path) -> Path:
    """The application with the library of a transport."""
    library, out = folder / f"ring-{transport}", folder / f"create-{transport}"
    api.compile(HERE / "ring.dag", library, target=target, form="library", defines={"transport": transport}, force=True)
    mpi = require_mpi()
    words = [str(require_cxx().path), "-std=c++17", "-O1", "-Wall", "-Wextra", *mpi.compile_flags()]
    words += [
        f"-I{HERE.parents[1] / 'samples/apps'}",
        f"-I{library / 'include'}",
        str(HERE / "create.cpp"),
        "-o",
        str(out),
    ]
    words += [f"-L{library / 'lib'}", f"-Wl,-rpath,{library / 'lib'}", "-lring", *mpi.link_flags()]
    if target == "cuda":
        cuda = require_nvcc().path.resolve().parents[1]
        words += ["-DAPP_CUDA", "-isystem", str(cuda / "include")]
        words += [f"-L{cuda / 'lib64'}", f"-Wl,-rpath,{cuda / 'lib64'}", "-lcudart"]
        if transport == "nccl":
            nccl = require_nccl()
            words += ["-DAPP_NCCL", "-isystem", str(nccl.include), str(nccl.library)]
            words += [f"-Wl,-rpath,{nccl.library.parent}"]
    subprocess.run(words, check=True)
    return out


def rows(transport: str, app: Path, args: argparse.Namespace) -> list[dict[str, str]]:
    out = []
    for process in range(args.processes):
        first = "alone" if process % 2 == 0 else "create"
        said = launch([str(app), str(args.turns), first], args.ranks, timeout=120).check().stdout
        for what, turn, ms in csv.reader(said.splitlines()):
            row = {"transport": transport, "process": str(process), "first": first, "what": what}
            out.append({**row, "turn": turn, "ms": ms})
    return out


def table(measured: list[dict[str, str]]) -> str:
    kinds = list(dict.fromkeys((row["transport"], row["what"]) for row in measured))
    lines = [f"{'transport':10} {'what':22} {'first':>9} {'later':>9} {'largest later':>14}"]
    for transport, what in kinds:
        mine = [row for row in measured if (row["transport"], row["what"]) == (transport, what)]
        first = [float(row["ms"]) for row in mine if row["turn"] == "0"]
        later = [float(row["ms"]) for row in mine if row["turn"] != "0"]
        words = [f"{statistics.median(first):9.2f}"]
        if later:
            words += [f"{statistics.median(later):9.2f}", f"{max(later):14.2f}"]
        lines.append(f"{transport:10} {what:22} {' '.join(words)}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, default=1, help="with nccl, a GPU for each")
    parser.add_argument("--transports", default="mpi_host,peer,nccl")
    parser.add_argument("--target", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    transports = args.transports.split(",")
    with ThreadPoolExecutor(len(transports)) as pool:
        apps = list(pool.map(lambda transport: built(transport, args.target, args.out.resolve()), transports))
    measured = [row for transport, app in zip(transports, apps, strict=True) for row in rows(transport, app, args)]
    with open(args.out / "create.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(measured)
    print(table(measured))


if __name__ == "__main__":
    main()

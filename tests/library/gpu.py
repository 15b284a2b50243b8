"""Libraries for GPUs, and applications with them. `python -m tests.library.gpu` builds all at once, into the cache."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dagc import api
from dagc.build.mpi import require_mpi
from dagc.build.toolchain import require_cxx, require_nccl, require_nvcc

HERE = Path(__file__).parent
SAMPLES = HERE.parents[1] / "samples"
PROGRAMS = {"ring": HERE / "data/ring.dag", "spmv": SAMPLES / "spmv/spmv.dag", "heat": SAMPLES / "heat/heat.dag"}
TRANSPORTS = ("mpi_host", "nccl", "peer")
# Two streams, some ops beside the others.
RING = (
    "own@s1 pack@s0 move@s0 record(e0)@s1 wait(e0)@s0 add@s0 record(e1)@s0 wait(e1)@s1 came@s1 last@s1 back@s1 "
    "record(e2)@s0 record(e3)@s1 sync(e2) sync(e3) end"
)


def library(name: str, transport: str, folder: Path) -> Path:
    """The library of one of PROGRAMS in a folder of its own below `folder`."""
    out, order = folder / f"{name}-{transport}", folder / f"{name}-{transport}.txt"
    order.write_text(RING, encoding="utf-8")
    first = name != "ring" or transport == "mpi_host"
    api.compile(
        PROGRAMS[name], out, target="cuda", form="library", defines={"transport": transport},
        traversal="first" if first else str(order), force=True,
    )  # fmt: skip
    return out


def application(source: Path, libraries: Iterable[Path], out: Path, *flags: str, nccl: bool = False) -> Path:
    """A C++ program on the GPU with libraries; with `nccl`, on a communicator of its own."""
    mpi, cuda = require_mpi(), require_nvcc().path.resolve().parents[1]
    words = [str(require_cxx().path), "-std=c++17", "-O1", "-g1", "-Wall", "-Wextra", "-DAPP_CUDA", *flags]
    words += [
        *mpi.compile_flags(),
        f"-I{SAMPLES / 'apps'}",
        "-isystem",
        str(cuda / "include"),
        str(source),
        "-o",
        str(out),
    ]
    for folder in libraries:
        name = folder.name.partition("-")[0]
        words += [f"-I{folder / 'include'}", f"-L{folder / 'lib'}", f"-Wl,-rpath,{folder / 'lib'}", f"-l{name}"]
    if nccl:
        found = require_nccl()
        words += [
            "-DAPP_NCCL",
            "-isystem",
            str(found.include),
            str(found.library),
            f"-Wl,-rpath,{found.library.parent}",
        ]
    lib = cuda / "lib64"
    subprocess.run([*words, *mpi.link_flags(), f"-L{lib}", f"-Wl,-rpath,{lib}", "-lcudart"], check=True)
    return out


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(max_workers=9) as pool:
        jobs = [pool.submit(library, name, transport, Path(folder)) for name in PROGRAMS for transport in TRANSPORTS]
        for job in jobs:
            job.result()


if __name__ == "__main__":
    main()

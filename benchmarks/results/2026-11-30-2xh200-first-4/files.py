"""The files of the compilers, of Python's packages and of MPI: `files.py drop` drops them from memory, `read` reads
the compilers."""

import os
import shutil
import sys
import time
from pathlib import Path


def compilers():
    """Programs that nvcc and g++ run, the largest last."""
    nvcc = Path(os.path.realpath(shutil.which("nvcc")))
    root = nvcc.parent
    found = [nvcc, *(root / n for n in ("cudafe++", "ptxas", "fatbinary", "nvlink")), root.parent / "nvvm/bin/cicc"]
    found += root.parent.glob("nvvm/libdevice/*.bc")
    found += root.parent.glob("targets/*/lib/libcudart_static.a")
    for path in ("/usr/lib/gcc", "/usr/libexec/gcc"):
        found += [f for n in ("cc1plus", "collect2") for f in Path(path).rglob(n)]
    return [f for f in (*found, Path("/usr/bin/ld"), Path("/usr/bin/as")) if f.is_file()]


def read():
    for path in sorted(compilers(), key=lambda p: p.stat().st_size):
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def drop():
    import numpy as np

    packages = Path(np.__file__).parent.parent
    nvcc = Path(os.path.realpath(shutil.which("nvcc"))).parent.parent
    folders = [
        packages,
        Path(os.__file__).parent,
        nvcc / "include",
        *nvcc.glob("targets/*/include"),
        Path("/usr/include"),
        Path.cwd() / "dagc",
    ]
    folders += [Path(p) for p in (os.environ.get("PYTHONPYCACHEPREFIX"),) if p]
    total, begin = 0, time.time()
    for folder in folders:
        for base, _, names in os.walk(folder):
            for name in names:
                total += one(os.path.join(base, name))
    for path in compilers():
        total += one(path)
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "/" in line and Path(line.split()[-1]).is_file():
            total += one(line.split()[-1])
    print(f"dropped {total >> 20} MiB in {time.time() - begin:.1f} s")


def one(path):
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return 0
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    size = os.fstat(fd).st_size
    os.close(fd)
    return size


def timed():
    largest = max(compilers(), key=lambda p: p.stat().st_size)
    for what in ("after the drop", "again"):
        begin = time.time()
        size = len(largest.read_bytes())
        print(f"{largest.name} of {size >> 20} MiB read {what} in {1e3 * (time.time() - begin):.0f} ms")
    one(largest)


if __name__ == "__main__":
    if sys.argv[1] == "drop":
        drop()
        timed()
    else:
        read()

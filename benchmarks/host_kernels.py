"""Which of a sample of public CUDA files compile for the host target, and what the others need.

    python -m benchmarks.host_kernels HECBENCH --seed 2026112904 [--count 62] [--without SEED ...] [--nvcc]

The population is all `.cu` files with `__global__` below `src/*-cuda` of a checkout of HeCBench, in the order of their
paths; `--without` leaves out the samples of these seeds, drawn in turn. Each file is compiled by itself with the -D and
-I of its Makefile, as `dagc record --host` compiles it, up to the code generator (`-fsyntax-only`). `--nvcc` asks, of
those that fail, which nvcc refuses by themselves too. Prints one line for each file that fails.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dagc.base.resources import resource
from dagc.base.source import encoded
from dagc.build.builder import HOST_FLAGS
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import toolkit_include
from dagc.cuda.lexer import includes
from dagc.cuda.text import rewrite_for_host, with_own_constants
from dagc.emit.common import host_headers

_FLAG = re.compile(r"(?<![\w-])-(?:D[\w]+(?:=[\w.\"'\\]+)?|I *[\w./-]+|std=[\w+]+)")


def population(top: Path) -> list[str]:
    files = sorted(top.glob("src/*-cuda/**/*.cu"))
    return [str(f.relative_to(top)) for f in files if "__global__" in f.read_text(errors="replace")]


def sample(files: list[str], seed: int, count: int, without: list[int]) -> list[str]:
    for other in without:
        left_out = set(random.Random(other).sample(files, count))
        files = [f for f in files if f not in left_out]
    return sorted(random.Random(seed).sample(files, count))


def flags_of(file: Path, top: Path) -> list[str]:
    """-D and -I of the Makefile beside the file, or of the directory of its program."""
    for folder in file.parents:
        if (make := folder / "Makefile").is_file():
            found = [f.replace(" ", "") for f in _FLAG.findall(make.read_text(errors="replace"))]
            found = [f"-I{(folder / f[2:]).resolve()}" if f.startswith("-I") else f for f in found]
            return [f for f in dict.fromkeys(found) if not f.startswith("-std")]
        if folder == top:
            break
    return []


def texts_of(file: Path, directories: list[Path]) -> dict[Path, str]:
    out: dict[Path, str] = {}
    todo = [file]
    while todo:
        path = todo.pop().resolve()
        if path in out:
            continue
        out[path] = path.read_text(encoding="utf-8", errors="replace")
        for name, _ in includes(out[path]):
            todo += [d / name for d in (path.parent, *directories) if (d / name).is_file()][:1]
    return out


def compiled(name: str, top: Path, runtime: Path, headers: Path) -> str:
    """The first error; "" if it compiles."""
    file, flags = (top / name).resolve(), flags_of(top / name, top)
    directories = [Path(f[2:]) for f in flags if f.startswith("-I")]
    with tempfile.TemporaryDirectory(prefix="dagc-host-kernels-") as folder:
        copies = {p: Path(folder) / p.relative_to("/") for p in texts_of(file, directories)}
        for path, text in with_own_constants(texts_of(file, directories)).items():
            copies[path].parent.mkdir(parents=True, exist_ok=True)
            copies[path].write_bytes(encoded(f'#line 1 "{path}"\n{rewrite_for_host(text)}'))
        mpi, toolkit = find_mpi(), toolkit_include()
        mirrored = [Path(folder) / d.relative_to("/") for d in directories]
        words = ["g++", "-fsyntax-only", *[f for f in HOST_FLAGS if not f.startswith("-W")], "-w", "-x", "c++",
                 f"-I{runtime}", f"-I{headers}", *(f"-I{d}" for d in mirrored), *flags, f"-I{file.parent}",
                 *(mpi.compile_flags() if mpi is not None else ()),
                 *(word for d in toolkit for word in ("-idirafter", str(d))),
                 "-include", "dagc/target.hpp", str(copies[file])]  # fmt: skip
        return _first_error(words, folder)


def refused_by_nvcc(name: str, top: Path) -> str:
    mpi = find_mpi()
    include = mpi.compile_flags() if mpi is not None else ()
    words = ["nvcc", "-arch=sm_90", "-std=c++17", "-w", "-c", "-o", "/dev/null", *flags_of(top / name, top), *include]
    return _first_error([*words, name], str(top))


def _first_error(words: list[str], folder: str) -> str:
    done = subprocess.run(words, check=False, capture_output=True, text=True, errors="replace", cwd=folder)
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if re.search(r"\berror\b", line)]
    return (lines or done.stderr.splitlines() or ["?"])[0].replace(folder, "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("top", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=62)
    parser.add_argument("--without", type=int, nargs="*", default=[])
    parser.add_argument("--nvcc", action="store_true")
    options = parser.parse_args()
    top = options.top.resolve()
    files = population(top)
    names = sample(files, options.seed, options.count, options.without)
    with tempfile.TemporaryDirectory(prefix="dagc-host-headers-") as folder:
        headers = Path(folder)
        for name, text in host_headers().items():
            (headers / name).parent.mkdir(parents=True, exist_ok=True)
            (headers / name).write_text(text)
        runtime = resource("templates") / "runtime"
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            errors = dict(zip(names, pool.map(lambda n: compiled(n, top, runtime, headers), names), strict=True))
    failed = {name: error for name, error in errors.items() if error}
    other = [n for n in failed if refused_by_nvcc(n, top)] if options.nvcc else []
    for name, error in failed.items():
        print(f"{name}{' (nvcc refuses it, too)' if name in other else ''}: {error}")
    good = len(names) - len(failed)
    print(f"{good} of {len(names)} of {len(files)} files compile, {good / len(names):.0%}", end="")
    print(f"; of those that nvcc takes, {good / (len(names) - len(other)):.0%}" if options.nvcc else "")


if __name__ == "__main__":
    main()

"""The headers of the runtime, compiled once for all tests of a run that build programs with -O0.

g++ spends a quarter of such a build on them. With -O3 it is a tenth, less than the compilation of the headers costs
unless a user builds many programs, so `dagc.build` does without.
"""

from __future__ import annotations

import fcntl
import subprocess
from hashlib import sha256
from pathlib import Path

from dagc.build.builder import Build, cache_directory, command_line
from dagc.build.toolchain import find_cxx, find_mpi
from dagc.emit import runtime_headers

# Headers of one transport each, one that needs NCCL, and one of libraries, whose failures are exceptions: their other
# headers differ too, so they are built without this.
NOT_IN_ALL = ("group_host.hpp", "group_nccl.hpp", "group_peer.hpp", "library.hpp")


def precompiled_flags() -> tuple[str, ...]:
    """Flags of g++ for builds with an MPI and -O0; () for other compilers, and where nothing can be cached.

    A header that does not suit the flags of a program is ignored by g++, and then nothing is included.
    """
    compiler, mpi, cache = find_cxx(), find_mpi(), cache_directory()
    if compiler is None or mpi is None or cache is None or "g++" not in compiler.version.split()[0]:
        return ()
    headers = runtime_headers()
    text = "".join(f'#include "{name}"\n' for name in headers if not name.endswith(NOT_IN_ALL))
    parts = [compiler.version, *map(str, mpi.compile_flags()), text, *(p.read_text() for p in headers.values())]
    folder = cache.parent / f"headers-{sha256(chr(0).join(parts).encode()).hexdigest()[:16]}"
    variants = folder / "dagc.hpp.gch"  # g++ takes the first that suits
    variants.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "dagc.hpp").exists():
            (folder / "all.hpp").write_text(text)
            root = next(iter(headers.values())).parents[len(Path(next(iter(headers))).parts) - 1]
            for shared in (False, True):
                order = Build(folder, ("all.hpp",), include=(str(root),), mpi=mpi, shared=shared, flags=("-O0",))
                words = [word for word in command_line(order, compiler) if not word.startswith(("-l", "-L", "-Wl,"))]
                out = str(variants / ("shared" if shared else "program"))
                subprocess.run([w for w in words if w != "-shared"] + ["-o", out], cwd=folder, check=True)
            (folder / "dagc.hpp").write_text("// Empty: compiled programs include their own headers.\n")
    return ("-include", str(folder / "dagc.hpp"))

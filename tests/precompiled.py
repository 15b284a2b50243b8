"""The headers of the runtime, compiled once for all tests of a run that build programs with -O0, and once for those of
them that are under ThreadSanitizer.

Such a program is a few functions of its own and 3000 of headers, which g++ compiles again for each program, in 2 s of
2.5 s. clang++ compiles them once, with the precompiled header (-fpch-codegen). Where there is one, it stands in for g++
in these builds and in no others: tests/compilers/g++.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from dagc.build.builder import cache_directory
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from dagc.emit import runtime_headers
from dagc.ir.plan import Plan, Target

COMPILERS = Path(__file__).parent / "compilers"
# Headers of one transport each, those that are others with -fopenmp or with a CUDA toolkit, and those of libraries,
# whose failures are exceptions: their other headers differ too.
OF_TRANSPORTS = ("connecting.hpp", "group_host.hpp", "group_nccl.hpp", "group_peer.hpp")
OF_PEERS = ("peer_exchange.hpp", "peer_reduce.hpp")
NOT_IN_ALL = (*OF_TRANSPORTS, *OF_PEERS, "host_thrust.hpp", "openmp.hpp", "sockets.hpp", "worker_calls.hpp")
OF_LIBRARIES = "library.hpp"
FLAGS = ("-std=c++17", "-ffp-contract=off", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Werror")
# What is compiled once for which builds: further flags of these, and the headers that are not in it.
KINDS = {
    "dagc": (("-O0",), (*NOT_IN_ALL, OF_LIBRARIES)),
    "dagc-thread": (("-g1", "-O0", "-fsanitize=thread"), (*NOT_IN_ALL, OF_LIBRARIES)),
    "dagc-library": (("-O0", "-fvisibility=hidden", "-DDAGC_LIBRARY"), NOT_IN_ALL),
}
# Templates that nearly every program has, of the usual types of elements: half of what is left to compile of one.
INSTANCES = """
namespace dagc {
template <class T>
inline void instances(Store& store, Array<T>& a) {
  store.load(a, "", "", {1}, Place::device, Role::in);
  store.make(a, "", {1}, Place::device, Role::in);
  store.compare(a, "", "", 0, 1, {0.0, false});
  store.scalar<T>("");
}
inline void instances(Store& store, Array<float> f, Array<double> d, Array<std::int32_t> i, Array<std::int64_t> l) {
  instances(store, f);
  instances(store, d);
  instances(store, i);
  instances(store, l);
}
inline void instances(std::vector<cudaEvent_t>& events, std::vector<cudaStream_t>& streams) {
  events.emplace_back();
  streams.emplace_back();
}
inline void instances(std::map<std::pair<int, std::string>, std::vector<bool>>& known, std::vector<Row>& rows) {
  known[{0, ""}].push_back(std::vector<Row>(rows.data(), rows.data() + rows.size()).empty());
}
}  // namespace dagc
"""
# And programs, whose instances of templates are those of most others: half of what is then left. Their headers are none
# of NOT_IN_ALL.
RUN = {"spmv": {"transport": "mpi_cuda", "capture": "true"}, "cg": {"transport": "mpi_host"}}  # bench and runner
LOADED = {"spmv": {"transport": "mpi_host"}}  # runner as a library


def replace_compiler() -> None:
    """For this process and those that it starts: `g++` is tests/compilers/g++, where it would be of use."""
    if shutil.which("g++") and shutil.which("clang++") and not os.environ.get("DAGC_CXX"):
        os.environ["PATH"] = f"{COMPILERS}{os.pathsep}{os.environ['PATH']}"


def precompiled_flags() -> tuple[str, ...]:
    """Flags for builds with an MPI; () where `g++` was not replaced, and where nothing can be cached.

    -O0, and -fsanitize=thread, are for the caller. The headers of each kind are compiled at the first build of it
    (tests/compilers/g++).
    """
    compiler, clang, mpi, cache = find_cxx(), shutil.which("clang++"), find_mpi(), cache_directory()
    if compiler is None or clang is None or mpi is None or cache is None or compiler.path.parent != COMPILERS:
        return ()
    headers = runtime_headers()
    names, texts = zip(*((name, path.read_text()) for name, path in headers.items()), strict=True)
    parts = [
        clang,
        str(Path(clang).stat().st_mtime_ns),
        *mpi.compile_flags(),
        repr((KINDS, RUN, LOADED)),
        INSTANCES,
        *names,
        *texts,
    ]
    folder = cache.parent / f"dagc-headers-{sha256(chr(0).join(parts).encode()).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "dagc.hpp").exists():
            # A program reads these files, not its copies: `#pragma once` goes by the file.
            (folder / "include").symlink_to(headers[names[0]].parents[len(Path(names[0]).parts) - 1])
            programs = _write_programs(folder)
            for kind, (flags, without) in KINDS.items():
                of_kind = [name for name in names if not name.endswith(without)]
                text = "".join(f'#include "{name}"\n' for name in of_kind) + INSTANCES + programs
                (folder / f"{kind}.all").write_text(text)
                _write_script(folder, kind, (*mpi.compile_flags(), *flags))
            (folder / "dagc.hpp").write_text("// Empty: programs include their own headers.\n")
    return ("-include", str(folder / "dagc.hpp"))


def by_clang() -> tuple[str, ...]:
    """Flags for builds with -O0 whose headers differ from those that are compiled once, or that are under another
    sanitizer: clang++, in two thirds of the time of g++. () where `g++` was not replaced.
    """
    compiler = find_cxx()
    return ("--driver-mode=g++",) if compiler is not None and compiler.path.parent == COMPILERS else ()


def compile_by_clang(patch: pytest.MonkeyPatch) -> None:
    """What dagc builds for the host is not optimised; for programs without MPI, and with headers of their own."""
    patch.setenv("DAGC_CXXFLAGS", shlex.join(("-O0", *by_clang())))


def _write_programs(folder: Path) -> str:
    """The files of the programs, and a text that includes them. Those of an earlier dagc would do as well."""
    from tests.emit.build import plan  # they import this module
    from tests.emit.together import write_in_namespaces
    from tests.samples.load import SAMPLES

    def plans(of: str, samples: dict[str, dict[str, str]]) -> dict[str, Plan]:
        made = {n: plan(SAMPLES / f"{n}/{n}.dag", Target.HOST, **choices) for n, choices in samples.items()}
        return {f"{of} {name}": made[name] for name in samples}

    runners = plans("runner", RUN)
    run = write_in_namespaces(plans("bench", RUN) | runners, folder, runners)
    loaded = write_in_namespaces(plans("loaded", LOADED), folder, plans("loaded", LOADED))
    return f"#include <cstring>\n#define DAGC_RUNNER_MAIN\n{run}#undef DAGC_RUNNER_MAIN\n{loaded}"


def _write_script(folder: Path, name: str, flags: tuple[str, ...]) -> None:
    """NAME.sh, which makes NAME.pch, and NAME.o with its functions. Without the first, builds are those of g++."""
    header = ("-fpch-codegen", "-fpch-instantiate-templates", "-Iinclude", "-x", "c++-header", f"{name}.all")
    command = ["clang++", *FLAGS, *flags]
    lines = [
        f"cd {shlex.quote(str(folder))}",
        f"[ ! -e {name}.tried ] || exit 0",
        f"touch {name}.tried",
        shlex.join([*command, *header, "-o", f"{name}.pch"]),
        shlex.join([*command, "-Qunused-arguments", "-c", f"{name}.pch", "-o", f"{name}.o"]),
    ]
    (folder / f"{name}.sh").write_text("\n".join(lines) + "\n")


def do_not_optimise(patch: pytest.MonkeyPatch, *flags: str) -> None:
    """What dagc builds for the host is not optimised, and has further flags."""
    patch.setenv("DAGC_CXXFLAGS", " ".join([*flags, "-O0", *map(shlex.quote, precompiled_flags())]))

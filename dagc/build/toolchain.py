"""What programs are compiled with here: C++ compilers, nvcc, CMake, NCCL, OpenBLAS; the target and its GPU; and what
compilers say, of errors and of a kernel's resources."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from dagc.base import children
from dagc.base.errors import BuildFailed, MissingTool, UsageError
from dagc.base.flags import user_flags
from dagc.base.resources import resource
from dagc.cuda.ptx import Resources, read_instructions
from dagc.ir.plan import Target

# ---- compilers ----

NO_CXX_HELP = "install one (apt-get install g++), or name it in DAGC_CXX"
NO_NVCC_HELP = "install the CUDA toolkit, or name its nvcc in DAGC_NVCC; `--target host` needs none"

Tool = TypeVar("Tool")


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler that was found. `version` is the first line of its description."""

    path: Path
    version: str


def override(variable: str) -> Path | None:
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


def file_of(command: Sequence[str | Path]) -> str | None:
    """What a command writes to the file that is its last argument, which this function appends. None as `answer_of`.

    For programs whose libraries may print, such as an MPI.
    """
    with tempfile.TemporaryDirectory(prefix="dagc-ask-") as folder:
        file = Path(folder) / "answer"
        if answer_of([*command, file]) is None or not file.is_file():
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
    chosen = override("DAGC_CXX")
    if chosen is not None:
        return _compiler(chosen)
    for name in ("g++", "clang++", "c++"):
        path = shutil.which(name)
        if path is not None:
            return _compiler(Path(path))
    return None


def find_nvcc() -> Compiler | None:
    """DAGC_NVCC, else nvcc on the PATH, under CUDA_HOME or CUDA_PATH, or in /usr/local/cuda."""
    chosen = override("DAGC_NVCC")
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


def required(tool: Tool | None, missing: str, help: str) -> Tool:
    """The tool. Raises MissingTool if there is none."""
    if tool is None:
        raise MissingTool(missing, help)
    return tool


def require_cxx() -> Compiler:
    """Raises MissingTool."""
    return required(find_cxx(), "no C++ compiler was found (looked for g++, clang++, c++)", NO_CXX_HELP)


def require_nvcc() -> Compiler:
    """Raises MissingTool."""
    message = "no nvcc was found (on the PATH, under CUDA_HOME, in /usr/local/cuda)"
    return required(find_nvcc(), message, NO_NVCC_HELP)


def toolkit_include() -> tuple[Path, ...]:
    """The directories of the headers of the CUDA toolkit that the host target has as well: Thrust's, and cuRAND's for
    kernels; none without a toolkit."""
    nvcc = find_nvcc()
    folders = () if nvcc is None else (nvcc.path.resolve().parents[1] / name for name in ("include/cccl", "include"))
    return tuple(f for f in folders if (f / "thrust").is_dir() or (f / "curand_kernel.h").is_file())


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
    return required(find_nccl(), message, NO_NCCL_HELP)


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


# ---- GPUs ----


@dataclass(frozen=True, slots=True)
class GPU:
    """One device. `capability` is its compute capability ("9.0"), `memory` in bytes, `driver` the driver's version."""

    name: str
    capability: str
    memory: int
    driver: str

    @property
    def arch(self) -> str:
        """The architecture, as for nvcc's `-arch`."""
        return "sm_" + self.capability.replace(".", "")


VISIBLE = "CUDA_VISIBLE_DEVICES"
_FIELDS = "name,compute_cap,memory.total,driver_version"

# For machines (mostly containers) with the driver's library but without its tools. The numbers are from the driver
# API: attributes 75 and 76 are the major and minor compute capability.
_ASK_DRIVER = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
number, major, minor, version = (ctypes.c_int() for _ in range(4))
if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(number)) == 0:
    cuda.cuDriverGetVersion(ctypes.byref(version))
    for device in range(number.value):
        name, memory = ctypes.create_string_buffer(100), ctypes.c_size_t()
        cuda.cuDeviceGetName(name, 100, device)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
        cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
        supports = f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
        print(name.value.decode(), f"{major.value}.{minor.value}", memory.value >> 20, supports, sep=", ")
"""


@lru_cache(maxsize=1)
def gpus() -> tuple[GPU, ...]:
    """All usable devices; empty if there is none, or no working driver.

    nvidia-smi lists all of a machine: where CUDA_VISIBLE_DEVICES selects some, or another order, the driver is asked.
    """
    smi = shutil.which("nvidia-smi")
    every = _ask([smi, f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"]) if smi is not None else ()
    if every and VISIBLE not in os.environ:
        return every
    seen = _ask([sys.executable, "-c", _ASK_DRIVER])
    return tuple(replace(gpu, driver=every[0].driver) for gpu in seen) if every else seen


def _ask(command: list[str]) -> tuple[GPU, ...]:
    return parse_gpus(answer_of(command) or "")


def parse_gpus(text: str) -> tuple[GPU, ...]:
    """Parse lines of `name, capability, memory in MiB, driver`; other lines are skipped."""
    devices = []
    for line in text.splitlines():
        words = [word.strip() for word in line.rsplit(",", 3)]
        if len(words) == 4 and words[2].isdigit() and words[1].replace(".", "", 1).isdigit():
            devices.append(GPU(words[0], words[1], int(words[2]) << 20, words[3]))
    return tuple(devices)


# ---- targets ----

DEFAULT_ARCH = "sm_90"
_ARCH = re.compile(r"(sm|compute)_\d+[af]?|native|all(-major)?")  # nvcc checks which exist


@dataclass(frozen=True, slots=True)
class TargetChoice:
    """`reason` is a sentence for the user. `here`: whether programs run on this machine, or are only compiled here."""

    target: Target
    arch: str
    reason: str
    here: bool = True

    @property
    def gpu_arch(self) -> str | None:
        """The architecture of the GPU to compile for; None on the host target."""
        return self.arch if self.target is Target.CUDA else None


def _gpu_here() -> str | None:
    """The architecture of the first GPU, as nvcc names it; None without a GPU."""
    devices = gpus()
    return devices[0].arch if devices else None


def choose_target(target: str | None, arch: str | None, why: str = "as requested") -> TargetChoice:
    """The target: as requested (`why`: by whom), else `cuda` if a GPU and nvcc are found, else `host`.

    Raises UsageError for an unknown target, or an invalid `arch`.
    """
    if arch is not None and not _ARCH.fullmatch(arch):
        raise UsageError(f"unknown architecture {arch!r}", f"write for example {DEFAULT_ARCH}")
    if target is not None:
        if target not in ("cuda", "host"):
            raise UsageError(f"unknown target {target}", "use cuda or host")
        if target == "host":
            return TargetChoice(Target.HOST, arch or DEFAULT_ARCH, why)
        return TargetChoice(Target.CUDA, arch or _gpu_here() or DEFAULT_ARCH, why)
    gpu = _gpu_here()
    if gpu is None:
        return TargetChoice(Target.HOST, arch or DEFAULT_ARCH, "no GPU was found")
    if find_nvcc() is None:
        return TargetChoice(Target.HOST, arch or DEFAULT_ARCH, "there is a GPU, but no nvcc")
    return TargetChoice(Target.CUDA, arch or gpu, f"a GPU ({gpu}) and nvcc were found")


def target_asked(target: str | None, arch: str | None) -> TargetChoice:
    """As `choose_target`, by `--target` and `--arch`: an architecture that would not count is refused."""
    chosen = choose_target(target, arch)
    if arch is not None and target is None and chosen.target is Target.HOST:
        why = f"--arch {arch} has no effect with target host ({chosen.reason})"
        raise UsageError(why, "give --target cuda, or drop --arch")
    return chosen


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

        def run(*options: str) -> subprocess.CompletedProcess[str]:
            command = [str(nvcc.path), f"-arch={arch}", *options]
            return children.run(command, cwd=source.parent, seconds=PATIENCE, env={"TMPDIR": folder})

        words = ["-std=c++17", "-O3", "--extended-lambda", *(f"-I{path}" for path in ("include", *include))]
        words = ["-ptx", *words, f"-I{resource('templates/runtime')}", "-DDAGC_NO_MPI"]
        try:
            done = run(*words, *user_flags(True), "-o", str(ptx), source.name)
            if done.returncode != 0:  # code may need what programs include before it, in twice the time
                done = run(*words, "-include", "dagc/check.hpp", *user_flags(True), "-o", str(ptx), source.name)
            if done.returncode == 0:
                done = run("-cubin", "-Xptxas", "-v", "-o", str(cubin), str(ptx))
        except (OSError, subprocess.TimeoutExpired):
            return {}
        output = done.stdout + done.stderr
        if done.returncode != 0:
            output = done.stderr + done.stdout
            if _UNSUPPORTED in output:  # by this nvcc, whatever the kernels are
                return {}
            shown = "\n".join(output.splitlines()[:_MOST_LINES])
            raise BuildFailed(f"nvcc refused {source.name} for {arch}:\n{shown}", "", first_error(output))
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

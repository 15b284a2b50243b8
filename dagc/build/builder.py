"""Emitted source files -> a program, a shared library or a wheel. The only caller of compilers.

Results are cached by content: the same text, headers, flags and compiler give the same file. The cache is
`$DAGC_CACHE`, else `$XDG_CACHE_HOME/dagc`, else `~/.cache/dagc`; it may be deleted at any time, and several processes
may use it. If it cannot be written, or another user could write to it, everything is compiled again. Each entry is
stored with its SHA-256, and compiled again if it was truncated or changed.

Flags. Both targets are optimised (-O3; with -Og the host code of runners that only issue work for a GPU), and every
warning is an error. `host` is compiled for any processor of its architecture (no -march=native) and without contraction
(-ffp-contract=off): results must not depend on the node that built the program, and nodes may share the cache.
DAGC_CXXFLAGS and DAGC_NVCCFLAGS add flags at the end.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from dagc.base import children, signals
from dagc.base.errors import BuildFailed, DagcError, MissingTool, NotWritten, counted, is_full, not_written
from dagc.base.files import claim, entry_directory, load_entry, store_entry
from dagc.base.flags import user_flags
from dagc.base.resources import __version__
from dagc.build.mpi import MPI
from dagc.build.toolchain import (
    Compiler,
    error_lines,
    find_cxx,
    first_error,
    library_flags,
    require_cxx,
    require_nvcc,
    toolkit_include,
)

# ---- files of a build that failed ----


KEPT = 8
TEMPORARY = "dagc-"  # prefix of dagc's temporary directories


def place_of_failure(directory: Path, files: Iterable[Path], name: str, cache: Path | None) -> tuple[Path, str]:
    """The directory in which the compiler's command can be repeated, and a remark on it ("" if it is `directory`).

    `files`: those that the compiler reads; `name`: the same for the same failure; `cache`: None if there is none.
    """
    if not _is_temporary(directory):
        return directory, ""
    if cache is None:
        return directory, "dagc deletes this directory at its end; it is kept if the cache can be written (DAGC_CACHE)"
    folder = cache.parent / "failed" / name
    try:
        for file in files:
            if file.is_relative_to(directory):
                copy = folder / file.relative_to(directory)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
        os.utime(folder)
        _drop_oldest(folder.parent)
    except OSError as error:
        return directory, f"dagc deletes this directory at its end; it could not be kept: {error.strerror or error}"
    return folder, f"the last {KEPT} failed builds are kept there"


def _is_temporary(directory: Path) -> bool:
    top = Path(tempfile.gettempdir()).absolute()
    below = directory.relative_to(top).parts if directory.is_relative_to(top) else ()
    return bool(below) and below[0].startswith(TEMPORARY)


def _drop_oldest(folder: Path) -> None:
    entries = sorted(folder.iterdir(), key=lambda entry: entry.stat().st_mtime_ns)
    for entry in entries[:-KEPT]:
        shutil.rmtree(entry, ignore_errors=True)


# ---- builds and their cache ----


WARNINGS = ("-Wall", "-Wextra", "-Werror")
HOST_FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-pthread", *WARNINGS)
# -g1: files, lines and functions, as reports show; -g takes the compiler a third longer.
THREAD_SANITIZER_FLAGS = ("-std=c++17", "-O1", "-g1", "-ffp-contract=off", "-fsanitize=thread", "-pthread", *WARNINGS)
CUDA_FLAGS = (
    "-std=c++17", "-O3", "--extended-lambda", "--Werror", "all-warnings", "-Xcompiler=-Wall,-Wextra,-Werror,-pthread"
)  # fmt: skip
LOADED_FLAGS = {"c": ("-std=c99", "-O0", "-ffp-contract=off"), "c++": ("-std=c++17", "-O1", "-ffp-contract=off")}
HEADER_SUFFIXES = frozenset({".h", ".hpp", ".hh", ".cuh", ".inc", ".inl", ".cu"})  # programs include their kernels.cu
CACHE_LIMIT_BYTES = 2 << 30
_ERROR_LINES = 30
_INCLUDED = re.compile(r"In file included from |\s+from ")
_POLL_SECONDS = 0.05
_LOCK = ".lock"
# Messages of g++, clang++ and nvcc for a `double*` passed as a `double4*`.
_POINTERS = re.compile(
    r"(?:cannot convert|invalid conversion from) .[\w ]+\*. .*to .*\*.|no known conversion from .[\w ]+\*. to .*\*.|"
    r'argument of type "[\w ]+\*" is incompatible with parameter of type ".*\*"|another size than the rows of the array'
)


@dataclass(frozen=True, slots=True)
class Build:
    """What to compile, and how.

    `directory`  the compiler runs here (default: in the directory of the first source); equal files in two directories
                 share one entry of the cache, since their names are relative to it where they are below
    `target`     "host" (g++) or "cuda" (nvcc, for `arch`); a `.cu` source is compiled as C++ on `host`
    `include`    directories of headers; those that do not exist are left out
    `shared`     a shared library, not a program
    `sanitize`   "" or "thread" (host only): ThreadSanitizer, -O1 -g1
    `flags`      further compiler flags, before the libraries
    `warnings_as_errors`  is for dagc's own texts: kernels of a user are not refused for a warning
    `openmp`     compile and link for OpenMP
    `reads`      directories of files that the sources include by their places
    `issues`     CUDA whose host code only issues work: compiled with -Og, which takes nvcc's host compiler 22 % less
                 time than -O1, and that a quarter less than -O3; an op takes three calls of functions more, and
                 comparing results a tenth longer; the code of the GPU is as always
    `loaded`     "c" or "c++": the language of a text of dagc's own that Python loads (a chooser), compiled quickly and
                 without the user's flags; "" for a program of the user
    """

    sources: Sequence[str | Path]
    directory: Path | None = None
    target: str = "host"
    arch: str = "sm_90"
    include: Sequence[str | Path] = ("include",)
    mpi: MPI | None = None
    shared: bool = False
    sanitize: str = ""
    defines: Sequence[str] = ()
    libraries: Sequence[str] = ()
    flags: Sequence[str] = ()
    warnings_as_errors: bool = True
    openmp: bool = False
    reads: Sequence[str] = ()
    issues: bool = False
    loaded: str = ""

    @property
    def where(self) -> Path:
        """The absolute path of the directory."""
        return (Path(self.sources[0]).parent if self.directory is None else self.directory).absolute()

    @property
    def files(self) -> tuple[str, ...]:
        """The sources, as they stand in the compiler's command."""
        return tuple(_relative(Path(source), self.where) for source in self.sources)

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories of headers, as they stand in the compiler's command."""
        return tuple(_relative(Path(path), self.where) for path in self.include if (self.where / path).is_dir())


def build(order: Build, out: Path) -> Path:
    """Compile and link into `out`, and return its absolute path. `out` is written atomically.

    Raises MissingTool, and BuildFailed with the compiler's first errors and the command to repeat.
    """
    out = out.absolute()
    compiler = compiler_of(order)
    command = command_line(order, compiler)
    cache = cache_directory()
    if cache is None:
        _compile_to(order, command, out, wanted=out)
    else:
        name = key(order, compiler, command)
        _from_cache(order, command, out, cache / name[:2] / name)
    # In a directory that dagc wrote, the program is replaced with its sources: an old one never stays beside new ones.
    claim(out)
    return out


def _from_cache(order: Build, command: tuple[str, ...], out: Path, entry: Path) -> None:
    with _locked(entry.with_suffix(_LOCK)):
        content = load_entry(entry, CACHE_LIMIT_BYTES)
        if content is None:
            _compile_to(order, command, out, wanted=out)
            store_entry(entry, out.read_bytes())
            _prune(entry.parent.parent, keep=entry)
        else:
            os.utime(entry)
            _write(out, content)


def compiler_of(order: Build) -> Compiler:
    if order.target == "cuda":
        return require_nvcc()
    if order.target == "host":
        return require_cxx()
    raise ValueError(f"no such target: {order.target}")


def command_line(order: Build, compiler: Compiler) -> tuple[str, ...]:
    """The compiler's command without `-o FILE`, to be run in `order.where`."""
    cuda = order.target == "cuda"
    words = [str(compiler.path)]
    if cuda:
        words += [f"-arch={order.arch}", *("-Xcompiler=-Og" if order.issues and w == "-O3" else w for w in CUDA_FLAGS)]
        if os.environ.get("DAGC_CXX"):
            host = find_cxx()
            words += ["-ccbin", str(host.path)] if host is not None else []
    else:
        words += THREAD_SANITIZER_FLAGS if order.sanitize == "thread" else LOADED_FLAGS.get(order.loaded, HOST_FLAGS)
    if not order.warnings_as_errors:
        words = [w.replace(",-Werror", "") for w in words if w not in ("-Werror", "--Werror", "all-warnings")]
    if order.shared:
        # -Bsymbolic: a kernel may have the name of a function of the C library (`advance`), and must take precedence.
        words += ["-shared", *(("-Xcompiler=-fPIC", "-Xlinker=-Bsymbolic") if cuda else ("-fPIC", "-Wl,-Bsymbolic"))]
    if order.openmp:
        words.append("-Xcompiler=-fopenmp" if cuda else "-fopenmp")
    words += [f"-D{define}" for define in order.defines]
    words += [f"-I{path}" for path in order.directories]
    for folder in () if cuda or order.loaded else toolkit_include():
        words += ["-idirafter", str(folder)]
    if order.mpi is not None:
        words += order.mpi.compile_flags()
    words += order.flags
    for source in order.files:
        # Emitted CUDA text is valid C++ for the host target; g++ does not know `.cu`.
        language = order.loaded or ("c++" if source.endswith(".cu") and not cuda else "")
        words += ["-x", language, source, "-x", "none"] if language else [source]
    words += [word for library in order.libraries for word in library_flags(library, nvcc=cuda)]
    if order.mpi is not None:
        words += order.mpi.link_flags(nvcc=cuda)
    return tuple(words) if order.loaded else (*words, *user_flags(cuda))


def key(order: Build, compiler: Compiler, command: Iterable[str]) -> str:
    """SHA-256 over everything the result depends on: command, versions, sources, and possible headers."""
    digest = hashlib.sha256()

    def add(text: bytes) -> None:
        digest.update(len(text).to_bytes(8, "little"))
        digest.update(text)

    add(compiler.version.encode())
    if order.mpi is not None:
        add(f"{order.mpi.kind.value} {order.mpi.version}".encode())
    for word in command:
        add(os.fsencode(word))
    for path in inputs(order):
        add(os.fsencode(_relative(path, order.where)))
        add(path.read_bytes())
    return digest.hexdigest()


def inputs(order: Build) -> list[Path]:
    """The sources, every header next to a source, and every file under the directories that are read.

    This is a superset of the included files, found without running the preprocessor.
    """
    sources = [order.where / source for source in order.files]
    for source in sources:
        if not source.is_file():
            raise DagcError(f"the source {source} does not exist")
    siblings = {header for source in sources for header in source.parent.iterdir()}
    below = {header for path in (*order.directories, *order.reads) for header in (order.where / path).rglob("*")}
    headers = {h for h in siblings if h.suffix in HEADER_SUFFIXES} | below
    return [*sources, *sorted(h for h in headers if h.is_file())]


def cache_directory() -> Path | None:
    """The directory of the cache, created if needed. None if it cannot be written."""
    return entry_directory("build")


# --- internals --------------------------------------------------------------------------------------------------------


def _relative(path: Path, directory: Path) -> str:
    if not path.is_absolute() and (directory / path).exists():
        return str(path)
    path = path.absolute()
    return str(path.relative_to(directory)) if path.is_relative_to(directory) else str(path)


def _compile_to(order: Build, command: tuple[str, ...], out: Path, wanted: Path) -> None:
    """Run the compiler; `out` is replaced only by a complete file. `wanted` is the file that the user requested."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".dagc-build-", dir=out.parent) as scratch:
            output = Path(scratch, "out")
            words = [*command, "-o", str(output)]
            # A compiler that is killed leaves its temporary files. Parts of nvcc split a path at a comma.
            temporary = os.path.relpath(scratch, order.where) if "," in scratch else scratch
            done = children.run(words, cwd=order.where, env={"TMPDIR": temporary})
            if done.returncode != 0 or not output.is_file():
                number = signals.of_code(done.returncode)
                did = f"was terminated by {signals.named(number)} at" if number else "refused"
                said = done.stderr + done.stdout
                failure = _failure(order, words, wanted, did, said)
                if os.strerror(errno.ENOSPC) in said:
                    raise NotWritten(failure, _help(said))
                raise BuildFailed(failure, _help(said), first_error(said))
            output.replace(out)
    except OSError as error:
        kind = NotWritten if is_full(error) else BuildFailed
        raise kind(f"{wanted} could not be built: {error.strerror or error}") from error


def _failure(order: Build, words: list[str], wanted: Path, did: str, output: str) -> str:
    """The exception for a failed compilation: how the compiler ended, its first errors, and the command to repeat
    it."""
    lines, first = error_lines(output)
    # The lines before the first error name the function that it is in, after the files that include it.
    before = [line for line in lines[max(0, first - 2) : first] if not _INCLUDED.match(line)]
    shown = [*before, *lines[first : first + _ERROR_LINES]]
    left = len(lines) - first - _ERROR_LINES
    more = [f"... and {counted(left, 'more line')}"] if left > 0 else []
    name = key(order, compiler_of(order), words[:-1])[:16]
    place, remark = place_of_failure(order.where, inputs(order), name, cache_directory())
    repeat = shlex.join([*words[:-1], wanted.name if remark else str(wanted)])
    head = f"{Path(words[0]).name} {did} {', '.join(order.files)}:"
    cd = f"  cd {shlex.quote(str(place))} && {repeat}"
    return "\n".join([head, *shown, *more, f"to repeat ({remark}):" if remark else "to repeat:", cd])


def _help(said: str) -> str:
    if not _POINTERS.search(said):
        return ""
    return (
        "give the array the element type of the function's parameter, or, if that is a struct, last dimensions with its"
        " elements: `f64[n, 4]` for `double4`"
    )


def _write(out: Path, content: bytes) -> None:
    """Write an executable file, atomically."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".dagc-build-", dir=out.parent) as scratch:
            output = Path(scratch, "out")
            with open(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o777), "wb") as file:
                file.write(content)
            output.replace(out)
    except OSError as error:
        raise not_written(out, error) from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time creates an entry; others wait for it. The file of the lock is removed after use."""
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = path.open("a")
        except OSError as error:
            raise not_written(f"the build cache {path.parent}", error) from error
        with lock:
            if _taken(lock, path):
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return
        children.check()
        time.sleep(_POLL_SECONDS)


def _taken(lock: IO[str], path: Path) -> bool:
    """Whether this process has the lock, and no earlier holder has removed its file meanwhile."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(lock.fileno()), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False


def _prune(cache: Path, keep: Path) -> None:
    """Remove the least recently used entries until the cache is within its limit."""
    entries: list[tuple[float, int, Path]] = []
    for path in cache.glob("??/*"):
        try:
            status = path.stat()
        except OSError:
            continue
        if path != keep and path.suffix != _LOCK and path.is_file():
            entries.append((status.st_mtime, status.st_size, path))
    size = sum(entry[1] for entry in entries)
    for _, bytes_freed, path in sorted(entries):
        if size <= CACHE_LIMIT_BYTES:
            break
        path.unlink(missing_ok=True)
        size -= bytes_freed


# ---- wheels ----------------------------------------------------------------------------------------


def require_wheel() -> None:
    """Raises MissingTool without the package `wheel`. Called before anything is compiled."""
    if importlib.util.find_spec("wheel") is None:
        raise MissingTool("the package `wheel` is missing, which --as wheel needs", "pip install wheel")


def write_wheel(directory: Path, name: str, library: Path) -> Path:
    """Write `dist/NAME-VERSION-py3-none-PLATFORM.whl` in `directory`, from `python/NAME` and `library`.

    Its version is that of dagc. After `require_wheel`.
    """
    from wheel.wheelfile import WheelFile  # optional

    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    tag = f"py3-none-{platform}"
    version = __version__.replace("-", "_")
    out = directory / "dist" / f"{name}-{version}-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    with WheelFile(str(out), "w") as wheel:
        for source in sorted((directory / "python" / name).glob("*.py")):
            wheel.write(str(source), f"{name}/{source.name}")
        for built in sorted(library.parent.glob("*.so")):  # with those of its plans
            wheel.write(str(built), f"{name}/{built.name}")
        wheel.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: Written by dagc.\n"
            "Requires-Python: >=3.9\n",
        )
        wheel.writestr(
            f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: dagc {version}\nRoot-Is-Purelib: false\nTag: {tag}\n"
        )
    return out

"""The application: built for the host target with what records its calls, and run.

Its files are compiled as copies, in which launches are C++ (`rewrite_for_host`). The copies keep their lines, so that
the log, and the compiler's messages, name the files of the user.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dagc.base.errors import BuildFailed, RunFailed, UsageError
from dagc.base.resources import resource
from dagc.base.source import Source, encoded, include_directories, refuse_outside
from dagc.build.builder import Build, build
from dagc.build.mpi import MPI, cores, find_mpi, rank_environment
from dagc.cuda.lexer import directives, includes, names_in
from dagc.cuda.text import rewrite_for_host, with_own_constants
from dagc.emit.common import ABSENT_LIBRARIES, host_headers
from dagc.emit.render import cxx_string
from dagc.measure.launch import run_command
from dagc.record.functions import Builder
from dagc.record.libraries import ROUTINES, lacks

# Calls at each access, of functions of touched.cpp in place of the library of ThreadSanitizer.
_WATCHED = (
    "-fsanitize=thread", "-U__SANITIZE_THREAD__", "-nodefaultlibs", "-rdynamic",
    *(f"-Wl,--wrap={name}" for name in ("memcpy", "memmove", "memset")), "-Wl,--no-as-needed",
)  # fmt: skip
_C_AS_CXX = ("-fpermissive",)  # pointers that malloc returns
_OWN = ("log", "touched", "mpi")  # compiled by themselves, so once for all applications; the last for those with MPI
_LANGUAGES = re.compile(r"\.(c|cc|cp|cpp|cxx|c\+\+|cu|cuh|h|hh|hpp|hxx|h\+\+|inl)", re.IGNORECASE)
_FORTRAN = re.compile(r"\.(f|for|ftn|f90|f95|f03|f08|cuf)", re.IGNORECASE)
_ABSENT = {
    **dict.fromkeys(("cudaTextureObject_t", "cudaCreateTextureObject", "tex1Dfetch", "tex2D", "tex3D"), "a texture"),
    **dict.fromkeys(("cudaSurfaceObject_t", "cudaCreateSurfaceObject", "surf2Dread", "surf2Dwrite"), "a surface"),
    "cudaArray_t": "memory of cudaMallocArray",
}
_ALONE = (
    ": a call that the host target lacks returns an error there, and a kernel's access outside of an array ends it,"
    " where a GPU may go on (compute-sanitizer names it)"
)
_TWO_MAINS = re.compile(r"(?:multiple definition of|duplicate symbol:) [`'‘]?main\b")  # GNU ld, gold, lld
_STARTERS = ("mpiexec", "mpirun", "mpiexec.hydra", "srun")


@dataclass(frozen=True, slots=True)
class Application:
    """`texts`: the files of the application by their paths, relative to the directory of the `.dag`; `named`: the paths
    of those that are compiled, not included; `loaded`: the library that records it as it is, else `program` is the
    application, built for the host."""

    program: Path
    texts: Mapping[str, str]
    named: tuple[str, ...]
    mpi: MPI | None
    loaded: Path | None = None


def build_for_host(sources: Sequence[str], program: Path, folder: Path) -> Application:
    """Compile the sources of an application in `folder`. `program`: the directory of the `.dag`, which must have the
    sources below it (or below a directory of `-I`).

    Raises UsageError for files that cannot be read, BuildFailed.
    """
    top = program.resolve()
    texts = read_texts(sources, top)
    copies = {path: folder / "code" / path.relative_to(path.anchor) for path in texts}
    _write_copies(texts, copies, top)
    headers = folder / "headers"
    for name, text in host_headers().items():
        (headers / name).parent.mkdir(parents=True, exist_ok=True)
        (headers / name).write_text(text)
    templates, mpi = resource("templates"), find_mpi()
    own = templates / "record"
    with_mpi = (own / "include",) if mpi is not None else ()
    of_c = any(source.endswith(".c") for source in sources)
    named = [_cxx_name(copies[Path(source).resolve()]) for source in sources]
    mirrored = [folder / "code" / directory.resolve().relative_to("/") for directory in include_directories()]
    order = Build(
        sources=[*named, *(folder / f"{name}.o" for name in _OWN[: None if mpi is not None else -1])],
        directory=folder,
        include=[
            *with_mpi, own, templates / "runtime", headers, *mirrored,
            *dict.fromkeys(path.parent for path in (*map(Path, sources), *include_directories())),
        ],
        mpi=mpi,
        flags=("-include", str(own / "cuda_host.hpp"), "-w", *(_C_AS_CXX if of_c else ()), *_WATCHED),
        libraries=("stdc++", "m", "pthread", "c", "gcc_s", "gcc"),
        warnings_as_errors=False,
    )  # fmt: skip
    for name in order.files[len(named) :]:
        source = own / f"{Path(name).stem}.cpp"
        part = Build([source], include=(*with_mpi, own), mpi=mpi, flags=("-c", "-w"), warnings_as_errors=False)
        build(part, folder / name)
    try:
        paths = tuple(shown(Path(source).resolve(), top) for source in sources)
        built = _built(order, folder / "application", partial(_write_copies, texts, copies, top) if of_c else None)
        return Application(built, {shown(p, top): t for p, t in texts.items()}, paths, mpi)
    except BuildFailed as error:
        for path, text in texts.items():  # only now: a condition may leave it out
            _refuse_absent(shown(path, top), text)
        _refuse_programs(error.message, texts, top)
        help = "name all its files with --host, and directories of headers with -I; flags: DAGC_CXXFLAGS"
        if of_c:
            help += ". Files of C are compiled as C++: rename variables such as `new`, declare functions as defined"
        raise BuildFailed(error.message, help, error.first) from None


def _refuse_programs(message: str, texts: Mapping[Path, str], top: Path) -> None:
    """Raises UsageError if the linker says that the files are those of several programs."""
    if _TWO_MAINS.search(message):
        found = ", ".join(sorted(shown(path, top) for path, text in texts.items() if re.search(r"\bmain\s*\(", text)))
        help = "name the files of one program with --host, or its compile_commands.json"
        raise UsageError(f"{found}: several programs, each with its `main`", help)


def _built(order: Build, out: Path, write: Callable[..., None] | None) -> Path:
    """`write`: writes the sources again if files of C are among them, whose functions others may declare as those of C.
    Raises BuildFailed."""
    try:
        return build(order, out)
    except BuildFailed as error:
        if write is None or "undefined reference" not in error.message:
            raise
    write(linkage=True)
    return build(order, out)


def _write_copies(texts: Mapping[Path, str], copies: Mapping[Path, Path], top: Path, *, linkage: bool = False) -> None:
    """`linkage`: the names of files of C are those of C, for files in C++ and CUDA that have `extern "C"`. Headers of
    the system come before, since theirs may be templates."""
    of_c = [text for path, text in texts.items() if path.suffix in (".c", ".h")] if linkage else []
    own = include_directories()  # which an application may name in angle brackets, too
    system = dict.fromkeys(name for t in of_c for name, quoted in includes(t) if not (quoted or _found(name, own)))
    before = "".join(f"#if __has_include(<{name}>)\n#include <{name}>\n#endif\n" for name in system)
    for path, text in with_own_constants(texts).items():
        copies[path].parent.mkdir(parents=True, exist_ok=True)
        line, text = f"#line 1 {cxx_string(shown(path, top))}\n", rewrite_for_host(text)
        for copy in {copies[path], _cxx_name(copies[path])}:  # a file of C may be included, too
            wrapped = linkage and copy != copies[path]
            copy.write_bytes(encoded(f'{before}extern "C" {{\n{line}{text}\n}}\n' if wrapped else line + text))


def builder_of_calls(sources: Sequence[str], program: Path, folder: Path) -> Builder:
    """What builds a program that includes a file of an application that `build_for_host` built in `folder`, without
    what records."""
    top = program.resolve()
    directory = folder / "code" / top.relative_to(top.anchor)

    def built(text: str, file: str) -> Path:
        source = directory / f"functions_of_{Path(file).stem}.cpp"
        source.write_text(text)
        folders = dict.fromkeys(Path(source).resolve().parent for source in sources)
        order = Build(
            [source],
            include=[resource("templates") / "runtime", folder / "headers", *folders, *include_directories()],
            mpi=find_mpi(), flags=("-include", "dagc/target.hpp", "-w"), warnings_as_errors=False,
        )  # fmt: skip
        return build(order, folder / f"functions-{Path(file).stem}")

    return built


def _cxx_name(path: Path) -> Path:
    """The name of a copy, which is compiled as C++."""
    return path.with_name(f"{path.name}.cu") if path.suffix == ".c" else path


def read_texts(sources: Sequence[str], top: Path) -> dict[Path, str]:
    """The files that are named and those that they include in quotes, by their resolved paths. Raises UsageError for
    files that cannot be read, or of another language."""
    for name in (name for name in sources if not _LANGUAGES.fullmatch(Path(name).suffix)):
        help = "call its kernels from a program in C, C++ or CUDA, and record this"
        language = "Fortran" if _FORTRAN.fullmatch(Path(name).suffix) else "not C, C++ or CUDA"
        raise UsageError(f"{name}: {language}, of which record compiles nothing", help)
    out: dict[Path, str] = {}
    todo = [(Path(source), source) for source in sources]
    while todo:
        path, named = todo.pop()
        real = path.resolve()
        if real in out:
            continue
        try:
            refuse_outside(real, top)
            out[real] = Source.read(real, regular=True, any_encoding=True).text
        except PermissionError:
            help = f"write the .dag above the sources with -o, or give -I {real.parent}"
            raise UsageError(f"{named}: it is not below {top}, the directory of the .dag", help) from None
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"{named}: {why}", "name a file of the application that can be read") from None
        if '"' in (name := shown(real, top)) or not name.isprintable():
            help = "rename it: a program names its files between double quotes"
            raise UsageError(f"{name!r}: a quote or a control character in the name of a file", help)
        todo += [(found, str(found)) for found in _included(out[real], real.parent)]
    return out


def _refuse_absent(file: str, text: str) -> None:
    """Raises UsageError for what the host target lacks and a recording does not express."""
    libraries = ((d.line + 1, _library(d.rest)) for d in directives(text) if d.name == "include")
    words = (
        (text.count("\n", 0, n.start) + 1, _ABSENT.get(n.text, n.text))
        for n in names_in(text)
        if n.text in _ABSENT or lacks(n.text)
    )
    for line, what in (*libraries, *words):
        if what:
            known = f"of cuBLAS, {', '.join(ROUTINES)} are recorded; " if lacks(what) else ""
            help = "choose a program without it, or write what the loop needs of it as kernels on arrays of cudaMalloc"
            help = known + help
            raise UsageError(f"{file}:{line}: {what} is not recorded", help)


def _library(included: str) -> str:
    name = included.strip()[1:].partition(">")[0].partition('"')[0]
    return "Thrust" if name.startswith("thrust/") else ABSENT_LIBRARIES.get(name, "")


def _included(text: str, folder: Path) -> Iterator[Path]:
    found = (_found(name, (folder, *include_directories())) for name, _ in includes(text))
    return (path for path in found if path is not None)


def _found(name: str, folders: Iterable[Path]) -> Path | None:
    return next((f / name for f in folders if os.path.isfile(f / name)), None)  # False for a name that is too long


def shown(path: Path, top: Path) -> str:
    for directory in (top, *include_directories()):
        if path.is_relative_to(directory.resolve()):
            return path.relative_to(directory.resolve()).as_posix()
    return str(path)


def path_of(name: str, top: Path) -> Path:
    """The file that is shown so."""
    return (_found(name, (top, *include_directories())) or top / name).resolve()


def command_of(application: Application, sources: Sequence[str], command: Sequence[str]) -> tuple[str, ...]:
    """The command with the starter of the MPI that records, and with the program that was built in place of the
    application's. Raises UsageError."""
    words = list(command)
    if words[0] in _STARTERS[:2] and application.mpi is not None and application.mpi.mpiexec is not None:
        words[0] = str(application.mpi.mpiexec)  # the starter of the MPI that it was linked with
    if application.loaded is not None:
        return tuple(words)
    stems = {Path(source).stem for source in sources}
    candidates = [i for i, word in enumerate(words) if Path(word).name in stems and not word.startswith("-")]
    candidates += [i for i, word in enumerate(words) if "/" in word and Path(word).name not in _STARTERS]
    if not candidates:
        name = Path(sources[0]).stem
        raise UsageError(f"{shlex.join(words)}: names no program of the application", f"write ./{name} in the command")
    words[candidates[0]] = str(application.program)
    return tuple(words)


def _preloaded(library: Path) -> str:
    return ":".join([str(library), *os.environ.get("LD_PRELOAD", "").split()])


def run(command: Sequence[str], log: Path, application: Application, seconds: float, span: str, limit: int) -> str:
    """Run the application once, with its log and its contents in the new directory `log`. Returns its output.

    Raises RunFailed if it fails, or does not end within `seconds`.
    """
    log.mkdir()
    env = {"DAGC_RECORD_TO": str(log), "DAGC_RECORD_SPAN": span, "DAGC_RECORD_BYTES": str(limit)}
    env |= rank_environment(application.mpi, cores())
    if application.loaded is not None:
        env |= {"CUDA_INJECTION64_PATH": str(application.loaded), "LD_PRELOAD": _preloaded(application.loaded)}
    if shutil.which(command[0]) is None:
        raise UsageError(f"{command[0]}: no such command", "write the command that starts it")
    done = run_command(command, env=env, timeout=seconds)
    if done.timed_out:
        help = "record a shorter run, or give it longer with --watchdog"
        raise RunFailed(f"the application did not end within {seconds:g} s", help)
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        how = ", on a GPU" if application.loaded else _ALONE
        help = f"it must run by itself{how}"
        raise RunFailed(f"the application {done.why()}\n{said}".rstrip(), help)
    return done.stdout

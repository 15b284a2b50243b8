"""The application as it is, on a GPU: a library that its processes load records their calls, by CUPTI and by MPI's
profiling interface, and debug information says where these stand.

The library is loaded by the driver (`CUDA_INJECTION64_PATH`), so it does not matter how the application is linked to
CUDA's runtime.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dagc.base.errors import MissingTool, RunFailed, UsageError
from dagc.base.resources import resource
from dagc.build.builder import Build, build
from dagc.build.mpi import MPI, find_mpi
from dagc.build.toolchain import require_nvcc
from dagc.cuda.lexer import includes
from dagc.record.application import Application, path_of, read_texts, shown
from dagc.record.sources import ELEMENTS

_NAMES_MEMORY = re.compile(r"\bcuda(?:Malloc\w*|HostAlloc|HostRegister|MemcpyToSymbol(?:Async)?)\s*\(")
_STUB = re.compile(r"__device_stub__|__wrapper__device_stub_")
Place = tuple[str, str]  # function, FILE:LINE
_SYMBOLS = "record with --host, which sets them by an op"
# Whose effect on the rounds is not seen, wherever they stand.
_HIDDEN = {
    "cudaMemcpyToSymbol of a part": ("variables that are set in part, or from the GPU's memory", _SYMBOLS),
    "cudaCreateTextureObject": ("textures", "let the kernels read arrays, by __ldg or const __restrict__"),
    "cudaCreateSurfaceObject": ("surfaces", "let the kernels write arrays"),
}


def prepare(sources: Sequence[str], program: Path, folder: Path) -> Application:
    """Compile the library in `folder`. `sources`: the files of the application with its kernels and calls, as for
    `build_for_host`. Raises UsageError, MissingTool without CUPTI, BuildFailed."""
    top = program.resolve()
    texts = read_texts(sources, top)
    cuda = require_nvcc().path.resolve().parent.parent
    include = _first(cuda, "cupti.h", ("include", "extras/CUPTI/include"))
    library = _first(cuda, "libcupti.so", ("lib64", "lib", "extras/CUPTI/lib64"))
    own, mpi = resource("templates") / "record", find_mpi()
    parts = {"log": True, "cupti": True, "cublas": (cuda / "include/cublas_v2.h").exists(), "mpi": mpi is not None}
    order = Build(
        [own / f"{name}.cpp" for name, its in parts.items() if its],
        directory=folder,
        include=(own, cuda / "include", include),
        mpi=mpi,
        shared=True,
        flags=("-w", f"-L{library}", f"-Wl,-rpath,{library}"),
        libraries=("cupti", "dl"),
        warnings_as_errors=False,
    )
    built = build(order, folder / "librecord.so")
    paths = tuple(shown(Path(source).resolve(), top) for source in sources)
    return Application(built, {shown(path, top): text for path, text in texts.items()}, paths, mpi, built)


def _first(cuda: Path, name: str, folders: Iterable[str]) -> Path:
    for folder in folders:
        if (cuda / folder / name).exists():
            return cuda / folder
    raise MissingTool(f"{cuda}: no {name}", "install CUPTI, a part of the CUDA toolkit, or record with --host")


def check_mpi(command: Sequence[str], mpi: MPI | None) -> None:
    """Raises UsageError for a program that is linked with another MPI than the one whose calls are recorded."""
    program = next((word for word in command[1:] if os.path.isfile(word)), command[0])
    tool = shutil.which("ldd")
    if mpi is None or tool is None:
        return
    done = subprocess.run([tool, program], capture_output=True, text=True, errors="replace", check=False)
    found = re.search(r"^\s*libmpi\.so\S* => (/\S+)", done.stdout, re.MULTILINE)
    ours = {path.resolve() for path in mpi.library_dir.glob("libmpi.so*")}
    if found is not None and ours and Path(found[1]).resolve() not in ours:
        help = "name its mpicxx in DAGC_MPICXX, and its mpiexec in DAGC_MPIEXEC"
        raise UsageError(f"{program} is linked with {found[1]}, and dagc found {mpi.describe()}", help)


# ---- where the calls stand ----


def place_calls(folder: Path, application: Application, top: Path) -> None:
    """Give each event of the logs in `folder` its place in the source, and allocations the text of their arguments.

    Raises UsageError for a program without debug information of the files, or older than one of them, RunFailed where
    CUPTI refused to record.
    """
    paths = {str(path_of(name, top)): name for name in application.texts}
    for program, log, events in _processes(folder):
        known = places(program, {frame for event in events for frame in event.get("frames", ())})
        lines = (line for chain in known.values() for _, line in _lines(chain, paths))
        _check_age(program, {line.rpartition(":")[0] for line in lines}, application.texts, top)
        placed = [_placed(event, known, paths, application.texts) for event in events]
        for event in placed:
            if event["e"] == "unsupported" and event["call"].removesuffix("Async") in _HIDDEN:
                what, help = _HIDDEN[event["call"].removesuffix("Async")]
                at = event.get("at", str(program))
                raise UsageError(f"{at}: {event['call']}: {what} are not recorded on a GPU", help)
        launches = [event for event in placed if event["e"] == "launch"]
        if launches and not any("at" in event for event in launches):
            raise UsageError(
                f"{program}: its calls stand in no line of {', '.join(application.named)}",
                "compile it with -g (the GPU's code stays as it is), and name its files with --source",
            )
        log.write_text("".join(f"{json.dumps(event)}\n" for event in placed))


def _check_age(program: Path, files: Iterable[str], texts: Mapping[str, str], top: Path) -> None:
    """Raises UsageError if a file in which calls stand, or one that it includes, is newer than the program."""
    known, todo = set[str](), list(files)
    while todo:
        name = todo.pop()
        if name in known or name not in texts:
            continue
        known.add(name)
        if path_of(name, top).stat().st_mtime > program.stat().st_mtime:
            raise UsageError(f"{name} is newer than {program}, which was recorded", "compile the program again")
        folder = posixpath.dirname(name)
        todo += [posixpath.normpath(posixpath.join(folder, one)) for one, _ in includes(texts[name])]
        todo += [one for one, _ in includes(texts[name])]  # of a directory of -I


def _processes(folder: Path) -> Iterator[tuple[Path, Path, list[dict[str, Any]]]]:
    """The program, the log and the events of each process of the application: those that make calls, since the starter
    of MPI may load CUDA, and the library with it.

    Raises RunFailed without one, or where CUPTI refused.
    """
    found = []
    for note in sorted(folder.glob("program-*")):
        process = note.name.partition("-")[2]
        log = folder / f"events-{process}.jsonl"
        events = [json.loads(line) for line in log.read_text().splitlines()]
        found.append((process, (Path(note.read_text()), log, events)))
    if not found:
        help = "the driver of a GPU loads it when a program calls CUDA first; without a GPU, record with --host"
        raise RunFailed("no process loaded the library that records the calls of CUDA", help)
    calling = [one for one in found if any("frames" in event for event in one[1][2])]
    for process, one in calling or found:
        if (why := folder / f"refused-{process}").exists():
            raise RunFailed(f"CUPTI does not record here: {why.read_text()}", "record with --host, which needs no GPU")
        yield one


def places(program: Path, addresses: Iterable[int]) -> dict[int, tuple[Place, ...]]:
    """The functions and lines of addresses in a program, from inlined ones outwards."""
    tool = shutil.which("addr2line")
    if tool is None:
        raise MissingTool("addr2line, which reads debug information, was not found", "install binutils")
    asked = "".join(f"{address:#x}\n" for address in sorted(addresses))
    words = [tool, "-a", "-f", "-i", "-e", str(program)]
    done = subprocess.run(words, input=asked, capture_output=True, text=True, errors="replace", check=False)
    out: dict[int, tuple[Place, ...]] = {}
    at, lines = 0, iter(done.stdout.splitlines())
    for line in lines:
        if line.startswith("0x"):
            at = int(line, 16)
            out[at] = ()
        else:
            out[at] = (*out[at], (line, next(lines, "").partition(" (")[0]))
    return out


def _placed(
    event: dict[str, Any], known: Mapping[int, tuple[Place, ...]], paths: Mapping[str, str], texts: Mapping[str, str]
) -> dict[str, Any]:
    frames, symbol = event.pop("frames", ()), event.pop("symbol", None)
    chain = [place for frame in frames for place in known.get(frame, ())]
    for name, line in _lines(chain, paths):
        if name == symbol or _STUB.search(name):  # what nvcc makes of a kernel: it stands at the kernel's definition
            continue
        event["at"] = line
        break
    if event["e"] == "alloc" and "at" in event:
        event["text"] = allocated(texts, event["at"])
    if event.get("kind") == "symbol":
        event["of"] = constant(event, texts)
    if event["e"] == "launch":
        _check_arguments(event)
    return event


def constant(event: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    """The element type of a variable of constant memory that is set. Raises UsageError for another variable, which
    kernels may have written since."""
    name, at = event["text"].partition(",")[0].strip(), event.get("at", "cudaMemcpyToSymbol")
    if not name:
        raise UsageError(
            f"{at}: it stands in no file that is named", "name the file that sets the variable with --source"
        )
    declares = rf"__constant__[\s\w]*?\b((?:unsigned\s+)?\w+)\s+(?:[\w\[\]+*/-]+\s*,\s*)*{re.escape(name)}\b"
    found = next((match for text in texts.values() if (match := re.search(declares, text)) is not None), None)
    if found is None:
        raise UsageError(f"{at}: {name} is not __constant__: what the GPU has in it is not recorded", _SYMBOLS)
    return ELEMENTS.get(" ".join(found[1].split()), "u8")


def _lines(chain: Iterable[Place], paths: Mapping[str, str]) -> Iterator[Place]:
    for function, place in chain:
        file, _, line = place.rpartition(":")
        name = paths.get(file) or paths.get(str(Path(file).resolve()))
        if name is not None and line.isdigit():
            yield function, f"{name}:{line}"


def allocated(texts: Mapping[str, str], at: str) -> str:
    """The arguments of the call that allocates memory at this place, or that ends there; "" if none does."""
    file, _, line = at.rpartition(":")
    lines = texts[file].splitlines()
    for number in range(int(line) - 1, max(int(line) - 4, -1), -1):
        text = "\n".join(lines[number : number + 4])
        found = _NAMES_MEMORY.search(text)
        if found is not None and found.start() <= len(lines[number]):
            return _in_brackets(text[found.end() :])
    return ""


def _in_brackets(text: str) -> str:
    depth = 1
    for index, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return " ".join(text[:index].split())
    return ""


def _check_arguments(event: dict[str, Any]) -> None:
    """An event with arguments that the run does not tell becomes one that is not expressed."""
    args, count = event["args"], event.pop("parameters", None)
    why = ""
    if count is not None and count != len(args):
        why = f"{event['kernel']}, the sizes of whose arguments CUDA tells from version 12.4 on,"
    elif one := next((a for a in args if "p" in a and a["of"] == "struct" and a["bytes"] == 0), None):
        why = f"{event['kernel']} with a pointer to {one['type']}, whose size the run does not tell,"
    if why:
        for name in set(event) - {"e", "n", "at", "thread"}:
            del event[name]
        event |= {"e": "unsupported", "call": why}

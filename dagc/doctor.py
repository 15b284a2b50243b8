"""`dagc doctor`: what is installed, what each absence costs, and how to fix it."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

from dagc.base.errors import MissingTool, UsageError, counted
from dagc.base.resources import __version__
from dagc.build.builder import cache_directory
from dagc.build.mpi import NO_MPI_HELP, cores, find_mpi, takes_device_pointers
from dagc.build.toolchain import (
    NO_CXX_HELP,
    NO_NCCL_HELP,
    NO_NVCC_HELP,
    Compiler,
    choose_target,
    find_cmake,
    find_cxx,
    find_nccl,
    find_nvcc,
    gpus,
)
from dagc.measure.machine import NO_NCU_HELP, find_ncu


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that was checked.

    `detail` describes what was found. If nothing was, `cost` says what does not work without it, `help` how to get it.
    `needed` marks what the host target requires.
    """

    name: str
    found: bool
    detail: str
    cost: str = ""
    help: str = ""
    needed: bool = False


_PACKAGES = (
    # distribution, needed, what it costs, how to get it
    ("lark", True, "no .dag file can be read", "pip install lark"),
    ("jinja2", True, "no code can be emitted", "pip install jinja2"),
    ("numpy", True, "no set-up can run, and no result can be checked", "pip install numpy"),
    ("mpi4py", False, "Python drivers do not run (C++ programs do)", "pip install mpi4py"),
    (
        "pycuda",
        False,
        "Python drivers do not run on a GPU (C++ programs do)",
        "pip install pycuda (needs the CUDA toolkit)",
    ),
    ("scikit-learn", False, "no rules and no selectors are learned", "pip install scikit-learn"),
    ("sympy", False, "no rational programs", "pip install sympy"),
    ("pygls", False, "no dagc lsp for editors", "pip install 'dagc[lsp]'"),
    ("nvidia-ml-py", False, "no --objective energy", "pip install 'dagc[energy]'"),
)


def examine() -> tuple[Fact, ...]:
    """Check everything. A tool that cannot be queried is reported, never raised as an exception."""
    return (*_system(), *_compilers(), *_mpi(), *_devices(), *_packages(), _cache(), _target())


def host_can_run(facts: Iterable[Fact]) -> bool:
    """Whether programs can be built and run on the host target."""
    return all(fact.found for fact in facts if fact.needed)


def exit_code(facts: Iterable[Fact]) -> int:
    """0 if the host target can run, else that of a missing tool."""
    return 0 if host_can_run(facts) else MissingTool.exit_code


def render_text(facts: tuple[Fact, ...]) -> str:
    """An aligned line for each fact; under each absence its cost and its help; at the end a summary."""
    width = max(len(fact.name) for fact in facts)
    lines = []
    for fact in facts:
        mark = "ok" if fact.found else "MISSING" if fact.needed else "none"
        lines.append(f"{fact.name:<{width}}  {mark:<7}  {fact.detail}".rstrip())
        if not fact.found:
            pad = " " * (width + 11)
            lines += [f"{pad}{label}: {text}" for label, text in (("cost", fact.cost), ("help", fact.help)) if text]
    able = host_can_run(facts)
    lines += ["", "The host target can run here." if able else "The host target cannot run here: see what is MISSING."]
    return "\n".join(lines)


def render_json(facts: tuple[Fact, ...]) -> str:
    """{"dagc": version, "host_can_run": bool, "facts": [...]}."""
    content = {"dagc": __version__, "host_can_run": host_can_run(facts), "facts": [asdict(fact) for fact in facts]}
    return json.dumps(content, indent=2)


# --- checks -----------------------------------------------------------------------------------------------


def _system() -> list[Fact]:
    python = (
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {counted(cores(), 'core')}"
    )
    return [Fact("dagc", True, f"{__version__}, {python}")]


def _tool(name: str, find: Callable[[], object], cost: str, help: str, needed: bool = False) -> Fact:
    """A tool that is looked for; what is in a DAGC_... variable may name no program."""
    try:
        found = find()
    except UsageError as error:
        return Fact(name, False, error.message, cost, error.help, needed)
    detail = f"{found.version} ({found.path})" if isinstance(found, Compiler) else str(found or "")
    return Fact(name, found is not None, detail, cost, help, needed)


def _compilers() -> list[Fact]:
    return [
        _tool("C++ compiler", find_cxx, "nothing can be built for the host target", NO_CXX_HELP, needed=True),
        _tool("nvcc", find_nvcc, "nothing can be built for GPUs", NO_NVCC_HELP),
        _tool("CMake", find_cmake, "emitted directories cannot be built without dagc", "apt-get install cmake"),
        _tool("NCCL", lambda: nccl.library if (nccl := find_nccl()) else None, "on GPUs transport nccl cannot be built",
              NO_NCCL_HELP),
    ]  # fmt: skip


def _mpi() -> list[Fact]:
    cost = "no program can be built or run, since each is an MPI program"
    fact = _tool("MPI", lambda: mpi.describe() if (mpi := find_mpi()) else None, cost, NO_MPI_HELP, needed=True)
    mpi = find_mpi() if fact.found else None
    if mpi is None:
        return [fact]
    starter = "" if mpi.mpiexec is None else str(mpi.mpiexec)
    takes = takes_device_pointers(mpi)
    answers = {True: "MPIX_Query_cuda_support says yes", False: "MPIX_Query_cuda_support says no"}
    return [
        Fact("MPI", True, mpi.describe(), needed=True),
        Fact("mpiexec", bool(starter), starter, "ranks cannot be started", "name one in DAGC_MPIEXEC", needed=True),
        Fact(
            "MPI takes device pointers",
            takes is True,
            "it could not be queried" if takes is None else answers[takes],
            "on GPUs --transport mpi_cuda is refused; mpi_host works",
            "use an MPI built with CUDA, or give --mpi-takes-device-pointers if you know that your MPI accepts device"
            " pointers",
        ),
    ]


def _devices() -> list[Fact]:
    devices = gpus()
    cost = "programs run on the host target only"
    if not devices:
        return [Fact("GPU", False, "", cost, "a CUDA device and its driver; --target cuda --no-build needs neither")]
    lines = [
        Fact(f"GPU {i}", True, f"{gpu.name}, {gpu.arch}, {gpu.memory >> 30} GiB, driver {gpu.driver}")
        for i, gpu in enumerate(devices)
    ]
    without = "dagc tune --method rational reads its counts from the kernel's text, not from hardware counters"
    return [*lines, _tool("ncu", find_ncu, without, NO_NCU_HELP)]


def _packages() -> list[Fact]:
    facts = []
    for name, needed, cost, help in _PACKAGES:
        try:
            facts.append(Fact(name, True, version(name), needed=needed))
        except PackageNotFoundError:
            facts.append(Fact(name, False, "", cost, help, needed))
    return facts


def _cache() -> Fact:
    path = cache_directory()
    cost = "the same text is compiled again each time"
    detail = "" if path is None else str(path)
    return Fact("build cache", path is not None, detail, cost, "name a directory that can be written in DAGC_CACHE")


def _target() -> Fact:
    try:
        choice = choose_target(None, None)
        detail = f"{choice.target.value}: {choice.reason}"
    except UsageError as error:
        detail = f"host: {error.message}"
    overrides = [name for name in ("DAGC_CXX", "DAGC_NVCC", "DAGC_MPICXX", "DAGC_MPIEXEC") if os.environ.get(name)]
    also = f"; set here: {', '.join(overrides)}" if overrides else ""
    return Fact("default target", True, detail + also)

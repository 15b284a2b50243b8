"""What a search runs: configurations, their graphs and spaces, compiled runners, and what is written of the run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc import __version__, api
from dagc.errors import MissingTool, RunFailed, UsageError

if TYPE_CHECKING:
    from dagc.api_explore import ExploreOptions
    from dagc.configurations import Configured
    from dagc.ir import Program, Value
    from dagc.results import Configuration, Machine, Run
    from dagc.run.live import LiveMachine, Loadable
    from dagc.run.target import Choice
    from dagc.search.domain import Domain


# ---- what is searched -----------------------------------------------------------------------


def _opened(options: ExploreOptions, gpus: bool) -> list[str]:
    """The decisions to open, as `open_decisions` takes them."""
    opened = list(options.opened)
    named = {text.partition("=")[0] for text in opened}
    if "transport" not in named:
        opened.append("transport" if options.transport == "all" else f"transport={options.transport}")
    if "capture" not in named:
        capture = options.capture or ("both" if gpus else "off")
        opened.append({"off": "capture=false", "on": "capture=true", "both": "capture"}[capture])
    return opened


def configured(
    path: str | Path, options: ExploreOptions, defines: Mapping[str, Any], gpus: bool
) -> tuple[Program, list[Configured], list[str]]:
    """The program, its configurations, and a note on each combination that the program forbids."""
    from dagc.configurations import configurations, open_decisions
    from dagc.graph import Graph
    from dagc.lang.lower import lower
    from dagc.passes import build_graph

    source, module = api.read(path)
    given = dict(defines)

    def build(choices: dict[str, Value]) -> Graph:
        return build_graph(lower(module, source, {**given, **choices}))

    program = lower(module, source, given)
    fixed = {name for name in given if name not in {p.name for p in program.params}}
    opened = [text for text in _opened(options, gpus) if text.partition("=")[0] not in fixed or text in options.opened]
    values = open_decisions(program, opened, fixed)
    found, refused = configurations(values, build, options.most_configurations)
    notes = [f"without {_shown(left.defines)}: {left.reason}" for left in refused]
    return program, list(found), notes


def _shown(choices: Mapping[str, Value]) -> str:
    from dagc.results import shown

    return " ".join(f"{name}={shown(value)}" for name, value in choices.items())


def domain_of(found: Sequence[Configured], options: ExploreOptions) -> Domain:
    """Raises UsageError where the strategy needs the whole space and it is larger than asked for."""
    from dagc.search.domain import COUNTABLE_STATES, Arm, Domain
    from dagc.space import Space

    domain = Domain([Arm(c.configuration, Space(c.graph, limit=COUNTABLE_STATES)) for c in found])
    size = domain.size()
    if options.strategy == "exhaustive" and (size is None or size > options.most):
        known = "too many to count" if size is None else f"{size}"
        raise UsageError(
            f"the space has {known} implementations, more than {options.most}",
            "use --strategy mcts-min, random or model with --budget, or raise --max",
        )
    return domain


# ---- what runs ------------------------------------------------------------------------------


def program_record(program: Program) -> Any:
    """The program as a results file keeps it."""
    from dagc.ir import ElementType
    from dagc.plan import program_hash
    from dagc.results import Program as Kept

    return Kept(
        name=program.name,
        path=program.path,
        hash=program_hash(program),
        sources=tuple((path, source.text) for path, source in sorted(program.sources.items())),
        params=tuple((p.name, p.value.value if isinstance(p.value, ElementType) else p.value) for p in program.params),
    )


def build_runners(found: Sequence[Configured], chosen: Choice, folder: Path) -> dict[Configuration, Path]:
    """One runner library per configuration, compiled side by side. Capture needs none of its own."""
    from dagc.plan import Plan
    from dagc.results import Configuration
    from dagc.space import Space

    def key(configuration: Configuration) -> Configuration:
        return Configuration(tuple((n, v) for n, v in configuration.decisions if n != "capture"))

    distinct: dict[Configuration, Configured] = {}
    for configured in found:
        distinct.setdefault(key(configured.configuration), configured)

    def make(item: tuple[int, Configured]) -> Path:
        number, configured = item
        plan = Plan(configured.graph, Space(configured.graph).first(), chosen.target, chosen.arch)
        directory = folder / f"{number:03d}"
        api._write_sources(plan, directory, force=False)
        return api._build(directory, plan, "runner")

    with ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 2) // 2)) as pool:
        built = dict(zip(distinct, pool.map(make, enumerate(distinct.values())), strict=True))
    return {c.configuration: built[key(c.configuration)] for c in found}


def revision(folder: Path) -> str:
    """The git revision of the folder, with + where it has changes; "" where there is none."""
    import subprocess

    def said(*words: str) -> str:
        try:
            done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    found = said("rev-parse", "HEAD")
    return f"{found}+" if found and said("status", "--porcelain", "--untracked-files=no") else found


# ---- on the machine -------------------------------------------------------------------------


def run_record(machine: Machine, options: ExploreOptions, path: Path) -> Run:
    from dagc.results import Run

    return Run(
        started=datetime.now(UTC).isoformat(timespec="seconds"), machine=machine, ranks=options.ranks,
        seed=options.seed, strategy=options.strategy, seconds=options.seconds, revision=revision(path.parent),
        version=__version__, options=asdict(options),
    )  # fmt: skip


def that_can_run(
    found: Sequence[Configured], chosen: Choice, options: ExploreOptions, notes: list[str]
) -> list[Configured]:
    """Without the transports that this machine lacks. Raises MissingTool where none is left."""
    from dagc.plan import Target
    from dagc.run.mpi_query import takes_device_pointers
    from dagc.toolchain import require_mpi

    out = []
    for configured in found:
        device = chosen.target is Target.CUDA and configured.configuration.get("transport") == "mpi_cuda"
        if device and not options.mpi_takes_device_pointers and not takes_device_pointers(require_mpi()):
            note = "without transport=mpi_cuda: this MPI does not say that it takes device pointers"
            if note not in notes:
                notes.append(note)
        else:
            out.append(configured)
    if not out:
        raise MissingTool(
            "this MPI does not say that it takes device pointers, which transport mpi_cuda needs",
            "choose another --transport, or give --mpi-takes-device-pointers if you know that it does",
        )
    return out


def loadables_of(
    path: str | Path,
    program: Program,
    found: Sequence[Configured],
    chosen: Choice,
    folder: Path,
    options: ExploreOptions,
    defines: dict[str, Any],
) -> list[Loadable]:
    """The runner library and the arrays of each configuration."""
    from dagc.emit import rows
    from dagc.run.live import Loadable

    libraries = build_runners(found, chosen, folder)
    data = Path(options.data) if options.data is not None else folder / f"data-{options.ranks}"
    if options.data is None:
        api.run_setup(path, options.ranks, data, options.seed, defines)
    return [
        Loadable(
            libraries[c.configuration], data, rows, capture=c.configuration.get("capture") is True,
            device_pointers=options.mpi_takes_device_pointers,
        )
        for c in found
    ]  # fmt: skip


def working(machine: LiveMachine, domain: Domain, notes: list[str]) -> Domain:
    """Without the configurations that do not even run once. Raises RunFailed where none is left."""
    wrong = [machine.probe(arm) for arm in range(len(domain.arms))]
    for arm, failure in zip(domain.arms, wrong, strict=True):
        if failure:
            notes.append(f"without {arm.configuration.text}: {failure}")
    kept = [i for i, failure in enumerate(wrong) if not failure]
    if not kept:
        raise RunFailed(f"no configuration runs here: {wrong[0]}")
    return domain if len(kept) == len(domain.arms) else machine.narrow(kept)

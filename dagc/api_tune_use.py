"""What tuning found, in use: choosers for `dagc compile --launch`, and `dagc tune --show`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc import api
from dagc.api_tune_choosers import chooser_of
from dagc.api_tune_fixed import check_compiled
from dagc.errors import UsageError
from dagc.kernel_resources import Instructions, Resources
from dagc.tune.types import settings_text

if TYPE_CHECKING:
    from dagc.graph import Graph
    from dagc.ir import Program
    from dagc.tune.records import Tuned
    from dagc.tune.types import Unit


def choosers_of(graph: Graph, tuned_path: str | Path, arch: str | None = None) -> tuple[Any, ...]:
    """The choosers of a tuned file, for a program's graph. `arch`: what is compiled for (None: do not compare).

    Raises UsageError where the file was tuned for another text of the program or another GPU.
    """
    from dagc.tune.legal import units
    from dagc.tune.plans import PROGRAM
    from dagc.tune.records import load_tuned

    tuned = load_tuned(tuned_path)
    check_tuned(tuned, tuned_path, graph.program, arch)
    check_compiled(tuned_path, tuned, graph.program)
    ops = tuple(op for op in tuned.choosers if op != PROGRAM)
    _check_open(graph, ops, tuned_path)
    return tuple(_chooser_of(graph, unit, tuned.choosers[unit.op], tuned_path) for unit in units(graph, ops))


def _check_open(graph: Graph, ops: tuple[str, ...], path: str | Path) -> None:
    from dagc.ir import KernelOp
    from dagc.launching import is_open

    found = {o.op.base for o in graph.ops if isinstance(o.op, KernelOp) and is_open(graph.program, o.op)}
    for op in ops:
        if op not in found:
            raise UsageError(
                f"{path}: chooses for op `{op}`, of which nothing is open", f"drop -D {op}.NAME=..., or tune again"
            )


def _chooser_of(graph: Graph, unit: Unit, kept: dict[str, Any], path: str | Path) -> Any:
    """Raises UsageError where what was kept is damaged, of a newer dagc, or no longer among the program's choices."""
    from dagc.api_tune import METHODS
    from dagc.select.methods import from_json

    try:
        settings = [tuple((str(n), int(v)) for n, v in s.items()) for s in kept["settings"]]
        anchors = [(dict(zip(kept["data"], a["data"], strict=True)), settings[a["chosen"]]) for a in kept["anchors"]]
        selector = from_json(kept["selector"]) if kept.get("selector") else None
        method, counted = str(kept["method"]), kept.get("instructions")
        taken = Resources(
            int(kept["registers"]), int(kept.get("shared", 0)), Instructions.from_json(counted) if counted else None
        )
        hardware = _hardware_of(kept, path)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise UsageError(
            f"{path}: the chooser of `{unit.op}` is damaged ({type(error).__name__}: {error})",
            "tune again into another file",
        ) from None
    if method not in METHODS:
        raise UsageError(f"{path}: made by a newer dagc (method {method})", "update dagc, or tune again")
    values = {t.name: t.values for t in unit.tunables}
    for setting in settings:
        if [n for n, _ in setting] != list(values) or any(v not in values[n] for n, v in setting):
            raise UsageError(
                f"{path}: `{unit.op}` was tuned with {settings_text(setting)}, which is not among its choices",
                f"drop -D {unit.op}.NAME=..., or tune again into another file",
            )
    return chooser_of(
        graph, unit, settings, hardware, taken=taken, anchors=anchors, method=method,
        fits=_fits_of(kept, path), selector=selector,
    )  # fmt: skip


def _hardware_of(kept: dict[str, Any], path: str | Path) -> Any:
    from dagc.rational.hardware import hardware_of, load_hardware

    return hardware_of(kept["hardware"], f"{path}: GPU") if "hardware" in kept else load_hardware(kept["gpu"])


def _fits_of(kept: dict[str, Any], path: str | Path) -> dict[str, Any]:
    from dagc.rational.fit import Fitted

    try:
        return {name: Fitted.from_json(found) for name, found in (kept.get("fits") or {}).items()}
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: a fitted count is damaged ({error})", "tune again into another file") from None


def check_tuned(tuned: Tuned, path: str | Path, program: Program, arch: str | None) -> None:
    """Raises UsageError where a tuned file is of another text or GPU, or has no chooser. `arch`: of the GPU that is
    compiled for; None: for none, or do not compare."""
    from dagc.api_runs import program_record

    now = program_record(program)
    if sorted(text for _, text in tuned.program.sources) != sorted(text for _, text in now.sources):
        raise UsageError(f"{path}: tuned for another text of {tuned.program.name}", "tune the program again")
    if arch is not None and tuned.facts.get("target") == "host" and any(cell.times for cell in tuned.cells):
        raise UsageError(
            f"{path}: measured on the host target, which says nothing about a GPU",
            "tune with --target cuda, or compile with --launch fixed",
        )
    if arch is not None and tuned.facts.get("target") == "cuda" and tuned.facts.get("arch") != arch:
        raise UsageError(
            f"{path}: tuned for {tuned.facts.get('arch')}, this is compiled for {arch}",
            "tune on this GPU, or compile with --arch " + str(tuned.facts.get("arch")),
        )
    _check_gpu(tuned, path, arch)
    if not tuned.choosers:
        raise UsageError(f"{path}: no chooser in it: tuning did not end", "tune again with --resume")


def _check_gpu(tuned: Tuned, path: str | Path, arch: str | None) -> None:
    """Another GPU of the same architecture has other limits and another speed. Where no GPU is, nothing is said."""
    from dagc.devices import gpus

    wanted = tuned.facts.get("gpu")
    here = (
        [g.name for g in gpus() if g.arch == arch] if arch is not None and tuned.facts.get("target") == "cuda" else []
    )
    if here and wanted and wanted not in here:
        raise UsageError(
            f"{path}: tuned for {wanted}, this machine has {here[0]}",
            "tune on this GPU, or compile with --launch fixed",
        )


def launch_of(graph: Graph, launch: str, arch: str | None) -> tuple[Any, Any]:
    """(open tunables, chooser) of `--launch`: nothing for `fixed`, else those of a tuned file."""
    from dagc.launching import open_tunables
    from dagc.tune.choose import compiled_chooser
    from dagc.tune.extent import far_parameters
    from dagc.tune.records import load_tuned

    if launch == "fixed":
        return (), None
    choosers = choosers_of(graph, launch, arch)
    # Only what a chooser may answer is compiled: a value that did not compile when it was tuned is none of it.
    answers = {(c.op, name): {dict(s)[name] for s in c.settings} for c in choosers for name, _ in c.settings[0]}
    opened = tuple(
        replace(t, values=tuple(v for v in t.values if v in answers[t.op, t.name]))
        for t in open_tunables(graph.program, [c.op for c in choosers])
    )
    cells = [cell for cell in load_tuned(launch).cells if any(cell.op == c.op for c in choosers)]
    return opened, replace(compiled_chooser(choosers), warnings=far_parameters(graph.program, cells))


def show(
    path: str | Path,
    kernel: str,
    format: str = "text",
    gpu: str = "h200",
    defines: Any = None,
    tuned: str | Path | None = None,
    method: str = "",
) -> str:
    """The rational program of a kernel's launch time, or of the occupancy (`kernel` is "occupancy").

    As `text`, `latex` or `c`; as a flow chart in `dot` or `svg`. `c` is the chooser: that of the `tuned` file where one
    is given, with what was measured and learned. `method`: `volume` or `rational` (MWP-CWP).
    Raises UsageError, NotUnderstood.
    """
    from dagc.rational.cprint import HELPERS, to_c
    from dagc.rational.flow import to_flow, to_flow_svg
    from dagc.rational.occupancy import occupancy_program
    from dagc.rational.text import to_latex, to_text
    from dagc.tune.legal import units
    from dagc.tune.models import MODELS, whole_model

    printers: dict[str, Callable[[Any], str]] = {
        "text": to_text, "latex": to_latex, "dot": to_flow, "svg": to_flow_svg,
        "c": lambda program: HELPERS + to_c(program, "dagc_occupancy"),
    }  # fmt: skip
    if format not in printers:
        raise UsageError(f"there is no format {format}", f"one of: {', '.join(printers)}")
    if kernel == "occupancy":
        return printers[format](occupancy_program(plain=True))
    if method and method not in MODELS:
        raise UsageError(f"method {method} has no rational program", f"one of: {', '.join(MODELS)}")
    graph = api.load_graph(path, defines)
    unit = units(graph, (kernel,))[0]
    if format == "c":
        from dagc.rational.hardware import load_hardware
        from dagc.tune.choose import compiled_chooser
        from dagc.tune.legal import legal_settings

        if tuned is not None:
            found = [c for c in choosers_of(graph, tuned) if c.op == unit.op]
            if not found:
                raise UsageError(f"{tuned}: {unit.op} was not tuned", "tune it, or leave out -o")
            return compiled_chooser(found).source
        settings = legal_settings(graph, unit, {"max_threads_per_block": 1024})
        made = chooser_of(graph, unit, settings, load_hardware(gpu), method=method or "volume")
        return compiled_chooser([made]).source
    try:
        return printers[format](whole_model(graph, unit, method or "volume"))
    except RecursionError:
        raise UsageError(
            f"{unit.op}: the kernel's text is nested too deeply to be read", "tune it with --method exhaustive"
        ) from None

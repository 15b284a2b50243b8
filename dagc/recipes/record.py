"""`dagc record`: a run of an application -> a `.dag`, with the recorded data as set-up and reference."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dagc.base.errors import UsageError, counted
from dagc.base.files import check_new_file, scratch_directory, write_bytes_atomic
from dagc.base.python import np
from dagc.base.source import INCLUDE, include_directories
from dagc.ir.program import Graph, GraphOp
from dagc.ir.traversal import Traversal, traversal_text
from dagc.lab.neighbours import ISSUE, follow
from dagc.recipes.init import checked_name
from dagc.record import application as host
from dagc.record import native
from dagc.record.commands import CompileCommands, compiled_as
from dagc.record.flow import Flow, HostWait, Messages, Op, Together, flow_of
from dagc.record.footprints import with_footprints
from dagc.record.host import History
from dagc.record.log import Finalize, LaunchCall, RankLog, read_logs
from dagc.record.loop import Window, between, compare, described, differences, refuse, refuse_memory, windows
from dagc.record.merge import Blocks, Differs, OtherMemory, steps_of
from dagc.record.program import SETUP, Writer, Written, compressed, recorded_data, streams_of
from dagc.record.put_back import patch as patch_of
from dagc.record.put_back import starts_with_iteration
from dagc.record.races import races
from dagc.record.sources import Sources
from dagc.report.display import SILENT, Display
from dagc.space.moves import Moves
from dagc.space.proof import Prover
from dagc.stages.options import RecordOptions
from dagc.stages.program import check, read


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was written. `unfinished`: what a person must finish; `errors`: what `check` reports."""

    files: tuple[Path, ...]
    ranks: int
    rounds: str
    bytes: int
    unfinished: tuple[str, ...]
    errors: str
    notes: tuple[str, ...] = ()  # on waits of the host, and MPI
    computed: tuple[str, ...] = ()  # what the host computes, and was found
    parts: tuple[str, ...] = ()  # calls that may be split
    own: tuple[str, ...] = ()  # what the host gives from its own data
    commands: CompileCommands = CompileCommands(())  # with which its files compile

    @property
    def exit_code(self) -> int:
        return 2 if self.errors else 1 if self.unfinished else 0

    def render(self) -> str:
        program = shlex.quote(str(self.files[0]))
        names = ", ".join(map(str, self.files))
        lines = [f"recorded {self.rounds}", f"wrote {names} ({self.bytes} bytes of data)", *self.notes]
        if self.parts:
            lines.append(f"with -D rows_apart=true, so that messages overlap: {'; '.join(self.parts)}")
        if self.own:
            own = "; ".join(dict.fromkeys(self.own))
            lines.append(f"data of the host, which reads nothing in the rounds, as recorded: {own}")
        if self.computed:
            lines.append("computed by ops of the host, which give what was recorded to the bit:")
            lines += [f"  {text}" for text in self.computed]
        if self.unfinished or self.errors:
            lines.append(f"{counted(len(self.unfinished), 'place')} to finish by hand:")
            lines += [f"  {text}" for text in self.unfinished]
            lines += [self.errors] if self.errors else []
        every = dict.fromkeys((*self.commands.folders, *include_directories()))
        folders = "".join(f" -I {shlex.quote(str(folder))}" for folder in every)
        flags = "".join(
            f"{name}={shlex.quote(text)} " for name, text in self.commands.environment().items() if name != INCLUDE
        )
        lines.append(f"next  {flags}dagc compile {program}{folders} --run -n {self.ranks}")
        patch = next((f for f in self.files if f.suffix == ".patch"), None)
        if patch is not None:
            file = patch.read_text().partition("+++ b/")[2].partition("\n")[0]
            library, new = f"{patch.stem}_library", f"{patch.stem}_with_library{Path(file).suffix}"
            lines.append(f"then  {flags}dagc compile {program}{folders} --as library -o {shlex.quote(library)}")
            lines.append(f"      patch -o {shlex.quote(new)} {shlex.quote(file)} {shlex.quote(str(patch))}")
        return "\n".join(lines) + "\n"


def record(command: Sequence[str], output: str | Path, options: RecordOptions, display: Display = SILENT) -> Recorded:
    """Build and run the application twice, and write the program `output` and its data.

    The first run finds the loop; the second keeps the contents of the arrays before and after its rounds, and must make
    the same calls. Nothing is written unless all of it is. Raises UsageError, BuildFailed, RunFailed.
    """
    out = Path(output)
    _check(out, options)
    with compiled_as(options.host or options.source) as commands:
        return replace(_record(command, commands.files, out, options, display), commands=commands)


def _record(
    command: Sequence[str], sources: Sequence[str], out: Path, options: RecordOptions, display: Display
) -> Recorded:
    with scratch_directory("dagc-record-") as folder:
        with display.phase(f"{', '.join(sources)}: compiling"):
            prepared = host.build_for_host if options.host else native.prepare
            application = prepared(sources, out.parent, folder)
        words = host.command_of(application, sources, command)
        if application.loaded is not None:
            native.check_mpi(words, application.mpi)
        calls = host.builder_of_calls(sources, out.parent, folder) if options.host else None
        said: dict[str, str] = {}

        def run(name: str, span: str) -> tuple[RankLog, ...]:
            with display.phase(f"{shlex.join(command)}: {name} run"):
                said[name] = host.run(words, folder / name, application, options.watchdog, span, options.bytes)
                if application.loaded is not None:
                    native.place_calls(folder / name, application, out.parent)
            return read_logs(folder / name)

        logs = run("first", "")
        ranges = between(logs, options.begin, options.end)
        whole = application.texts if options.replace else None
        found = _rounds(logs, ranges, options.rounds, whole, said["first"])
        keep = options.keep_waits
        span = ";".join(_span(log, window) for log, window in zip(logs, found, strict=True))
        texts = Sources(application.texts, application.named, calls)

        def watched(name: str) -> tuple[RankLog, ...]:
            return with_footprints(run(name, span), found, texts)

        second = watched("second")
        differences(logs, second, found, options.bytes)

        def made(logs: Sequence[RankLog], name: str) -> tuple[Written, dict[str, np.ndarray]]:
            written = _written(out.stem, logs, found, keep, texts, _comment(command, sources, found))
            return written, recorded_data(written, folder / name, len(logs))

        written, data = made(second, "second")
        if options.twice:
            third = watched("third")
            differences(logs, third, found, options.bytes)
            compare(data, made(third, "third")[1])
        patch = patch_of(out.stem, second, found, application.texts, written) if options.replace else ""
    return _write(out, written, compressed(data), found, patch, _notes(second, found, keep))


def _notes(logs: Sequence[RankLog], found: Sequence[Window], keep: bool) -> tuple[str, ...]:
    """What is said of the application itself: its waits, races, end and GPUs."""
    return *waits_of(_flows(logs, found, keep), keep), *races(logs, found), *_without_end(logs), *shared_gpus(logs)


def _check(out: Path, options: RecordOptions) -> None:
    if bool(options.host) is bool(options.source):
        raise UsageError(
            "name the files of the application with --host, or with --source",
            "--host FILE compiles them for this machine without a GPU; --source FILE records the program as it is, on a"
            " GPU",
        )
    if out.suffix != ".dag":
        raise UsageError(f"{out}: the output is a program", "give -o NAME.dag")
    checked_name(out.stem)
    check_new_file(out, options.force)


def _rounds(
    logs: Sequence[RankLog], ranges: Sequence[tuple[int, int]], most: int, texts: Mapping[str, str] | None, said: str
) -> tuple[Window, ...]:
    """The first windows whose rounds are those of one loop on all ranks. `texts`: of the files in which a loop has to
    have whole rounds (`--replace`); `said`: output of the application. Raises UsageError."""
    first: Differs | None = None
    for of_host in (False, True):
        for found in windows(logs, ranges, most, of_host):
            if texts is not None and not starts_with_iteration(logs[0], found[0], texts):
                continue
            refuse(logs, found)
            if found[0].starts == (0, len(logs[0].events)):  # with what allocates the arrays
                break
            try:
                if steps_of(_flows(logs, found)):
                    return found
            except Differs as error:
                first = first or error
                if isinstance(error, OtherMemory):
                    break
    if first is not None:
        raise first
    if texts is not None:
        raise UsageError(
            "no round of what was recorded begins as an iteration of a loop does",
            "record without --replace, or mark the loop with --from",
        )
    if any(isinstance(e, LaunchCall) for log, (a, b) in zip(logs, ranges, strict=True) for e in log.events[a:b]):
        refuse_memory(logs, ranges)
        help = (
            "record a run of at least two of its rounds; or mark what to take on all ranks with --from and --to, by a"
            " kernel, FILE:LINE or a mark of dagc_record.h"
        )
        raise UsageError("no loop was found that all ranks repeat with the same calls", help)
    last = "".join(f"\n  {line:.200}" for line in said.splitlines()[-5:])
    raise UsageError(
        f"nothing that was recorded uses the GPU or MPI{last and f'; the application said at last:{last}'}",
        "give it arguments with which it computes, or choose other marks with --from and --to",
    )


def _written(
    name: str, logs: Sequence[RankLog], found: Sequence[Window], keep: bool, texts: Sources, comment: str
) -> Written:
    flows = _flows(logs, found, keep)
    steps = steps_of(flows)
    blocks, history = Blocks(logs, found, steps), History(logs, found)
    lines = "\n".join([comment, *waits_of(flows, keep)])
    return Writer(name, steps, blocks, texts, found[0].rounds, history).write(lines)


def _flows(logs: Sequence[RankLog], found: Sequence[Window], keep_waits: bool = False) -> list[Flow]:
    return [flow_of(log, window, keep_waits) for log, window in zip(logs, found, strict=True)]


def waits_of(flows: Sequence[Flow], kept: bool) -> tuple[str, ...]:
    """Lines on the waits of the host in a round: those that are left out, and those that data require on some rank."""
    waits: dict[HostWait, bool] = {}
    for flow in flows:
        for wait, required in flow.waits:
            waits[wait] = waits.get(wait, False) or required

    def line(required: bool) -> str:
        return ", ".join(dict.fromkeys(f"{w.call} at {w.at}" for w, its in waits.items() if its is required))

    out = [f"waits that no data require, {'kept' if kept else 'left out'}: {line(False)}"] if line(False) else []
    return (*out, *([f"waits that data require, as dependencies: {line(True)}"] if line(True) else []))


def _without_end(logs: Sequence[RankLog]) -> tuple[str, ...]:
    """A line on ranks that end without MPI_Finalize."""
    without = [str(log.rank) for log in logs if not any(isinstance(event, Finalize) for event in log.events)]
    if len(logs) == 1 or not without:
        return ()
    ranks = "rank" if len(without) == 1 else "ranks"
    return (f"{ranks} {', '.join(without)} ended without MPI_Finalize, which MPI requires",)


def shared_gpus(logs: Sequence[RankLog]) -> tuple[str, ...]:
    """A line on ranks that ran on one GPU, which they took turns on: dagc's program takes another for each rank, so
    that their times do not compare."""
    ranks: dict[str, list[str]] = {}
    for log in logs:
        ranks.setdefault(log.gpu, []).append(str(log.rank))
    shared = [f"ranks {' and '.join(those)}" for gpu, those in ranks.items() if gpu and len(those) > 1]
    if not shared:
        return ()
    return (f"{', '.join(shared)} ran on one GPU: before you compare times, let each choose one (cudaSetDevice)",)


def _span(log: RankLog, window: Window) -> str:
    numbers = [
        log.events[i].n if i < len(log.events) else log.events[-1].n + 1 for i in (window.starts[0], window.starts[-1])
    ]
    return f"{numbers[0]},{numbers[1]},{log.rank}"


def _comment(command: Sequence[str], sources: Sequence[str], found: Sequence[Window]) -> str:
    return f"Recorded by dagc record from {', '.join(sources)}:\n  {shlex.join(command)}\n{described(found)}."


def original(graph: Graph, names: Sequence[tuple[str, Op]]) -> Traversal:
    """The order and the streams of the application, with the sync ops that the graph needs; ops of a transport are
    where the application has its calls. Its waits that no data require are not in it."""
    streams = streams_of(op for _, op in names)
    known = {name: (number, op) for number, (name, op) in enumerate(names)}

    def place(op: GraphOp) -> tuple[float, float, int]:
        """Round, position in it, and stream."""
        name, _, rest = op.name.partition("[")
        index, _, part = rest.partition("]")
        if name not in known:
            return (math.inf if op.name == "end" else -1), 0, 0
        number, of = known[name]
        at, stream = of.index, 0
        if isinstance(of, Messages):
            outwards = "stage_out" in part
            own = [(i, s) for out, i, s in of.stages if out is outwards] if "stage" in part else []
            at, stream = own[0] if own else (of.done if "wait" in part or "stage" in part else at, 0)
        elif not isinstance(of, Together | HostWait):
            stream = of.stream
        if at < 0:  # of another rank: where it stands in the text
            at = max((one.index for _, one in names[:number]), default=0)
        return float(index) if index.isdecimal() else 0.5, at, streams.get(stream, 0)

    places = {op.id: place(op) for op in graph.ops}
    moves = Moves.of(graph)
    items = [
        (ISSUE, int(op.id), -1 if not op.gpu else op.stream if op.stream is not None else places[op.id][2])
        for op in sorted(graph.ops, key=lambda op: places[op.id][:2])
    ]
    return follow(moves, items)


def _original(out: Path, written: Written) -> str:
    graph = read(out, None, True).graph()
    traversal = original(graph, written.names)
    Prover(graph).prove(traversal, "the order of the application")
    words = traversal_text(traversal, graph).split()
    return "\n".join([f"# {out.name}: the order and the streams of the application", *words, ""])


def _write(
    out: Path, written: Written, data: bytes, found: Sequence[Window], patch: str, notes: tuple[str, ...]
) -> Recorded:
    files = {out.with_suffix(".npz"): data, out.with_suffix(".py"): SETUP.format(name=out.stem).encode()}
    files |= {out.with_name(name): text.encode() for name, text in written.calls.items()}
    files |= {out.with_suffix(".patch"): patch.encode()} if patch else {}
    files[out] = written.text.encode()
    for path, content in files.items():
        write_bytes_atomic(path, content)
    checked = check(out)
    errors = checked.render() if checked.errors else ""
    if not errors:
        order = out.with_name(f"{out.stem}_original.txt")
        text = _original(out, written).encode()
        write_bytes_atomic(order, text)
        files = {order: text, **files}
    return Recorded(
        tuple(reversed(files)),
        len(found),
        described(found),
        len(data),
        written.unfinished,
        errors,
        notes,
        written.computed,
        written.parts,
        written.own,
    )

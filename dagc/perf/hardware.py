"""Limits and speed of a GPU, from a descriptor: `gpus.toml` beside this file, or another file with one such table.

`dagc.measure.machine` writes such a file for the GPU of this machine.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from dagc.base.errors import UsageError
from dagc.base.source import read_file, undecodable

_LARGEST = 16 << 10  # bytes of a descriptor: the parser's memory grows with the square of the length of a dotted key
_MOST = 2**53
DESCRIPTORS = Path(__file__).with_name("gpus.toml")


@dataclass(frozen=True, slots=True)
class Measured:
    """Results of the micro-benchmarks (`templates/probe/gpu.cu`), in cycles of a multiprocessor.

    Latencies are those of a load; bytes per cycle those of the whole GPU; departures those of one multiprocessor, from
    one transaction to the next; the start of a block that of the whole GPU. Loads and stores per cycle of the L2 cache
    are sectors of the whole GPU, one word of each; cycles of an atomic addition those of the whole GPU, where all are
    at one address. The last three are 0 in descriptors written before they were measured, and so are, in descriptors
    of known GPUs, the bytes per second of the fastest kernel, the seconds between two launches in a graph, and the
    highest clock in Hz.
    """

    launch_cycles: float
    l1_latency: float
    l2_latency: float
    memory_latency: float
    l2_bytes_per_cycle: float
    memory_bytes_per_cycle: float
    departure_coalesced: float
    departure_uncoalesced: float
    block_start_cycles: float
    l2_loads_per_cycle: float = 0.0
    l2_stores_per_cycle: float = 0.0
    atomic_cycles: float = 0.0
    stream_bytes_per_second: float = 0.0
    graph_launch_seconds: float = 0.0
    highest_clock: float = 0.0


@dataclass(frozen=True, slots=True)
class Hardware:
    """Per GPU, or per multiprocessor if the name says so. Clock in Hz, memory in bytes, registers of 32 bits."""

    name: str
    arch: str
    multiprocessors: int
    clock: float
    max_threads_per_multiprocessor: int
    max_blocks_per_multiprocessor: int
    registers_per_multiprocessor: int
    shared_per_multiprocessor: int
    shared_reserved_per_block: int
    l1_bytes: int
    l2_bytes: int
    measured: Measured | None = None

    def parameters(self) -> dict[str, int | float]:
        """Values of the hardware parameters of the rational programs."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("name", "arch", "measured")}

    def table(self) -> dict[str, Any]:
        """The table of a descriptor, for `hardware_of`."""
        return {k: v for k, v in asdict(self).items() if v is not None}


def load_hardware(name: str) -> Hardware:
    """By name (`h200`), by architecture (`sm_90`: the first of it), or from a TOML file with one table.

    Raises UsageError naming the file and the key that is missing or wrong.
    """
    path = Path(name) if name.endswith(".toml") else DESCRIPTORS
    tables = _tables(path)
    if path is not DESCRIPTORS:
        if len(tables) != 1:
            raise UsageError(f"{path}: {len(tables)} tables instead of one", "keep one GPU in the file")
        key, table = next(iter(tables.items()))
        return _hardware(path, key, table)
    wanted = name.lower()
    for key, table in tables.items():
        if wanted in (key, str(table.get("arch")), str(table.get("name", "")).lower()):
            return _hardware(path, key, table)
    raise UsageError(f"no descriptor of GPU `{name}`", f"one of: {', '.join(tables)}, or the path of a .toml file")


def nearest_hardware(arch: str) -> tuple[Hardware, list[str]]:
    """The descriptor of an architecture of NVIDIA (`sm_90`); where there is none, that of the newest older one, or of
    the oldest, and a note."""
    arch = arch.rstrip("af")  # sm_90a
    known = {str(table.get("arch")): key for key, table in reversed(_tables(DESCRIPTORS).items())}
    older = [name for name in known if _number(name) <= _number(arch)]
    nearest = max(older, key=_number) if older else min(known, key=_number)
    found = load_hardware(known[nearest])
    return found, [] if nearest == arch else [f"no descriptor of {arch}: that of {found.name} ({nearest}) is assumed"]


def _number(arch: str) -> int:
    return int("".join(filter(str.isdigit, arch)) or 0)


def _tables(path: Path) -> dict[str, dict[str, Any]]:
    try:
        tables = tomllib.loads(read_file(path, largest=_LARGEST).decode("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "give the path of a descriptor") from None
    except UnicodeDecodeError as error:
        raise UsageError(undecodable(path, error), "save the file as UTF-8 text") from None
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        at = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(error), re.DOTALL)
        why = f"{path}: {error}" if at is None else f"{path}:{at[2]}:{at[3]}: {at[1][:1].lower()}{at[1][1:]}"
        raise UsageError(why, "see dagc/perf/gpus.toml for an example") from None
    return {k: v for k, v in tables.items() if isinstance(v, dict)}


def hardware_of(table: dict[str, Any], where: str) -> Hardware:
    """From a table. `where` is for the error: UsageError naming the key that is missing or wrong."""
    values = _values(Hardware, {**_unasked(table), **table}, where)
    if "measured" in table:
        measured = table["measured"]
        if not isinstance(measured, dict):
            raise UsageError(f"{where} measured is not a table", "write [NAME.measured] with a line for each value")
        values["measured"] = Measured(**_values(Measured, measured, f"{where}.measured"))
    return Hardware(**values)


def _hardware(path: Path, key: str, table: dict[str, Any]) -> Hardware:
    return hardware_of(table, f"{path}: [{key}]")


def _unasked(table: dict[str, Any]) -> dict[str, Any]:
    """Values that no driver reports: the size of the L1 cache, taken from another GPU of the architecture, else at
    least the shared memory that it can be configured as."""
    if "l1_bytes" in table:
        return {}
    same = (t for t in _tables(DESCRIPTORS).values() if t.get("arch") == table.get("arch"))
    return {"l1_bytes": next(same, {}).get("l1_bytes", table.get("shared_per_multiprocessor"))}


_MAY_BE_ZERO = (
    "shared_reserved_per_block", "l2_loads_per_cycle", "l2_stores_per_cycle", "atomic_cycles",
    "stream_bytes_per_second", "graph_launch_seconds", "highest_clock",
)  # fmt: skip


def _check_range(name: str, value: Any, where: str) -> None:
    """Numbers are used as divisors, and names are displayed."""
    if isinstance(value, str):
        good = value.isprintable()
    else:
        good = 0 < value <= _MOST or (value == 0 and name in _MAY_BE_ZERO)
    if not good:
        raise UsageError(f"{where} {name} = {value!r} is out of range", "correct the value")


def _values(type_: type, table: dict[str, Any], where: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in fields(type_):
        if field.name == "measured":
            continue
        value = table.get(field.name)
        if value is None and field.default == 0.0:
            continue
        if value is None:
            raise UsageError(f"{where} lacks `{field.name}`", f"add a line: {field.name} = ...")
        wanted = {"str": (str,), "int": (int,), "float": (int, float)}[str(field.type)]
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise UsageError(f"{where} {field.name} = {value!r} is not a {field.type}", "correct the value")
        _check_range(field.name, value, where)
        values[field.name] = value
    return values

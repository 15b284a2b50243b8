"""Limits of a GPU, from a descriptor: `gpus.toml` beside this file, or a file of the user's with one such table."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dagc.errors import UsageError

DESCRIPTORS = Path(__file__).with_name("gpus.toml")


@dataclass(frozen=True, slots=True)
class Hardware:
    """Per GPU, or per multiprocessor where the name says so. Clock in Hz, memory in bytes, registers of 32 bits."""

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

    def parameters(self) -> dict[str, int | float]:
        """Values of the hardware parameters of the rational programs."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("name", "arch")}


def load_hardware(name: str) -> Hardware:
    """By name (`h200`), by architecture (`sm_90`: the first of it), or from a TOML file with one table.

    Raises UsageError naming the file and the key that is missing or wrong.
    """
    path = Path(name) if name.endswith(".toml") else DESCRIPTORS
    tables = _tables(path)
    if path is not DESCRIPTORS:
        if len(tables) != 1:
            raise UsageError(f"{path}: {len(tables)} tables, one is wanted", "keep one GPU in the file")
        key, table = next(iter(tables.items()))
        return _hardware(path, key, table)
    wanted = name.lower()
    for key, table in tables.items():
        if wanted in (key, str(table.get("arch")), str(table.get("name", "")).lower()):
            return _hardware(path, key, table)
    raise UsageError(f"no descriptor of GPU `{name}`", f"one of: {', '.join(tables)}, or the path of a .toml file")


def _tables(path: Path) -> dict[str, dict[str, Any]]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "give the path of a descriptor") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}", "look at dagc/rational/gpus.toml for an example") from None
    return {k: v for k, v in found.items() if isinstance(v, dict)}


def _hardware(path: Path, key: str, table: dict[str, Any]) -> Hardware:
    values: dict[str, Any] = {}
    for field in fields(Hardware):
        if field.name not in table:
            raise UsageError(f"{path}: [{key}] lacks `{field.name}`", f"add a line: {field.name} = ...")
        value = table[field.name]
        wanted = {"str": (str,), "int": (int,), "float": (int, float)}[str(field.type)]
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise UsageError(f"{path}: [{key}] {field.name} = {value!r} is no {field.type}", "mend the value")
        values[field.name] = value
    return Hardware(**values)

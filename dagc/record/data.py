"""The recorded data of a program: one compressed file beside it, and the Python file that reads them from there."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from dagc.base.errors import UsageError
from dagc.base.python import np
from dagc.record.arrays import RecordedArray
from dagc.record.program import Written
from dagc.record.sources import SCALARS

TYPES = {name: "?" if name == "bool" else f"{name[0]}{int(name[1:]) // 8}" for name in SCALARS}

SETUP = '''"""Set-up and reference of {name}.dag: the data that `dagc record` recorded, in {name}.npz."""

from pathlib import Path

import numpy as np


def _recorded(rank, size, when):
    with np.load(Path(__file__).with_name("{name}.npz")) as data:
        if size != data["ranks"]:
            raise ValueError(f"the data are those of {{data['ranks']}} ranks: run it with -n {{data['ranks']}}")
        head = f"{{when}} {{rank}} "
        found = {{key.removeprefix(head): data[key] for key in data.files if key.startswith(head)}}
    return {{key: value if value.ndim else value.item() for key, value in found.items()}}


def start(rank, size, seed):
    """Arrays and scalars of a rank before the first round."""
    return _recorded(rank, size, "before")


def result(data, *, rank, size, seed):
    """The arrays of a rank after the last round."""
    return _recorded(rank, size, "after")
'''


def contents_of(folder: Path, which: int, rank: int, array: RecordedArray) -> np.ndarray | None:
    """The contents of an array before the rounds (0), or after them (1); None on a rank without it."""
    number = array.block.numbers[rank]
    if number is None:
        return None
    path = folder / f"contents-{which}-{rank}-{number}.bin"
    if not path.is_file():
        return None
    whole = np.frombuffer(path.read_bytes(), dtype=TYPES[array.of])[: array.counts[rank]]
    return whole if array.per == 1 else whole.reshape(-1, array.per)


def recorded_data(written: Written, folder: Path, ranks: int) -> dict[str, np.ndarray]:
    """By `WHEN RANK NAME`, what set-up and reference return.

    Raises UsageError for an array without contents: it was freed within the rounds.
    """
    out: dict[str, np.ndarray] = {"ranks": np.asarray(ranks)}
    for rank in range(ranks):
        for name, values in written.scalars.items():
            out[f"before {rank} {name}"] = np.asarray(values[rank])
        for given in written.given:
            for t, text in enumerate(given.values[rank]):
                out[f"before {rank} {given.name}[{t}]"] = np.frombuffer(bytes.fromhex(text), dtype=TYPES[given.of])
        for array in written.arrays:
            if array.has_data:
                out |= _of_array(array, folder, rank)
    return out


def _of_array(array: RecordedArray, folder: Path, rank: int) -> Mapping[str, np.ndarray]:
    before, after = (contents_of(folder, which, rank, array) for which in (0, 1))
    if before is None and array.block.numbers[rank] is None:  # another rank has it: any contents of the same size
        empty = np.zeros(array.counts[rank], dtype=TYPES[array.of])
        before = after = empty if array.per == 1 else empty.reshape(-1, array.per)
    if before is None or after is None:
        raise UsageError(
            f"{array.name}: allocated or freed within what is recorded, so its data before or after are missing",
            "choose --from and --to so that its memory exists at both",
        )
    out = {f"before {rank} {array.name}": before}
    return {**out, f"after {rank} {array.name}": after} if array.written else out


def compressed(data: Mapping[str, np.ndarray]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **data)  # type: ignore[arg-type]
    return file.getvalue()

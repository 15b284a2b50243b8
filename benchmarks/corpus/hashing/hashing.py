"""Set-ups and references of hash tables, filters and encodings."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def probe_table(rank: int, size: int, seed: int, N: int, NT: int) -> Data:
    """The table has a power of two of places, and is filled by half."""
    assert NT & (NT - 1) == 0
    rng = np.random.default_rng(seed)
    keys = np.unique(rng.integers(0, 1 << 30, NT // 2, np.int32))
    home = (keys.astype(np.uint32) * np.uint32(2654435761) >> np.uint32(8)) & np.uint32(NT - 1)
    table, left, at = np.full(NT, -1, np.int32), np.arange(len(keys)), home.astype(np.int64)
    while len(left):  # all that are left try their next place at once; of several at one place the first stays
        free = table[at[left]] == -1
        places, first = np.unique(at[left[free]], return_index=True)
        table[places] = keys[left[free][first]]
        left = left[table[at[left]] != keys[left]]
        at[left] = (at[left] + 1) & (NT - 1)
    asked = np.where(rng.integers(0, 2, N) == 1, rng.choice(keys, N), rng.integers(1 << 30, (1 << 31) - 1, N))
    value = rng.integers(0, 1000, NT, np.int32)
    return {"n": N, "nt": NT, "key": asked.astype(np.int32), "table": table, "value": value}


def probe_table_reference(data: Data, **_: Any) -> Data:
    value = {int(k): int(v) for k, v in zip(data["table"], data["value"], strict=True) if k != -1}
    return {"y": np.array([value.get(int(k), -1) for k in data["key"]], np.int32)}


def hash_grid(rank: int, size: int, seed: int, NI: int, NJ: int, NT: int) -> Data:
    rng = np.random.default_rng(seed)
    points = {name: rng.random(NI, np.float32) for name in ("px", "py")}
    return {"ni": NI, "nj": NJ, "nt": NT, **points, "table": rng.random((NT, 2), np.float32)}


def hash_grid_reference(data: Data, **_: Any) -> Data:
    j = np.arange(data["nj"])
    x, y = (data[name][:, None] * (16 << j % 8).astype(np.float32) for name in ("px", "py"))
    c, r = x.astype(np.uint32), y.astype(np.uint32)
    a, b = x - c, y - r
    total = np.zeros((*x.shape, 2))
    for corner in range(4):
        right, down = corner & 1, corner >> 1
        h = (c + np.uint32(right)) ^ (r + np.uint32(down)) * np.uint32(2654435761)
        at = (h + (j * 805459861).astype(np.uint32)) % np.uint32(data["nt"])
        weight = (a if right else 1 - a) * (b if down else 1 - b)
        total += weight[..., None] * data["table"][at]
    return {"y": total.astype(np.float32)}


def bloom_test(rank: int, size: int, seed: int, NI: int, NJ: int, NT: int) -> Data:
    rng = np.random.default_rng(seed)
    bits = rng.integers(-(1 << 31), 1 << 31, NT, np.int32)
    return {"ni": NI, "nj": NJ, "nt": NT, "word": rng.integers(0, 1 << 30, (NI, NJ), np.int32), "bits": bits}


def bloom_test_reference(data: Data, **_: Any) -> Data:
    word, bits = data["word"].astype(np.uint32), data["bits"].astype(np.uint32)
    found = np.ones(word.shape, bool)
    for factor, shift in ((2654435761, 15), (2246822519, 13)):
        h = word * np.uint32(factor)
        h = (h ^ h >> np.uint32(shift)) % np.uint32(32 * data["nt"])
        found &= (bits[h // 32] >> h % 32 & 1) == 1
    return {"y": found.astype(np.uint8)}

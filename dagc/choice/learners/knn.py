"""k nearest neighbours over the logarithms of sizes: trained with scikit-learn, asked in Python or in C."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from dagc.choice.nodes import LARGEST, Label, Name
from dagc.choice.selector import FRACTION, check_training, features, head, log2_fixed, parameters

SUMMARY = "nearest neighbours"


@dataclass(frozen=True, slots=True)
class Knn:
    """`sizes` ascend, a value for each of `data`; `labels` are numbers of choices.

    `weights`: `uniform` or `distance` (one over the Euclidean distance), as scikit-learn has them.
    """

    method: ClassVar[str] = "knn"
    data: tuple[str, ...]
    sizes: tuple[tuple[int, ...], ...]
    labels: tuple[int, ...]
    k: int
    weights: str

    @property
    def text(self) -> str:
        """`knn, k = 3, weights by distance`."""
        return f"knn, k = {self.k}" + (", weights by distance" if self.weights == "distance" and self.k > 1 else "")

    def choose(self, sizes: Sequence[int]) -> int:
        """The label with most weight among the k nearest sizes; the lowest of equal ones.

        Of sizes equally far, the one that stands first counts as nearer.
        """
        here = [log2_fixed(v) for v in sizes]
        apart = [sum((log2_fixed(v) - h) ** 2 for v, h in zip(row, here, strict=True)) for row in self.sizes]
        votes: dict[int, float] = {}
        for i in sorted(range(len(apart)), key=lambda i: apart[i])[: self.k]:
            if self.weights == "distance" and apart[i] == 0:
                return self.labels[i]
            weight = 1 / math.sqrt(apart[i]) if self.weights == "distance" else 1
            votes[self.labels[i]] = votes.get(self.labels[i], 0.0) + weight
        return min(votes, key=lambda label: (-votes[label], label))

    @property
    def answers(self) -> frozenset[int]:
        """As `Selector.answers`."""
        return frozenset(self.labels)

    def to_json(self) -> dict[str, Any]:
        """As `Selector.to_json`."""
        return {
            "method": self.method, "data": list(self.data), "sizes": [list(row) for row in self.sizes],
            "labels": list(self.labels), "k": self.k, "weights": self.weights,
        }  # fmt: skip

    def c_text(self, function: str) -> str:
        """C99, as `Selector.c_text`; needs the square root of math.h where weights are by distance."""
        n, d = len(self.sizes), len(self.data)
        rows = ", ".join("{" + ", ".join(f"INT64_C({log2_fixed(v)})" for v in row) + "}" for row in self.sizes)
        by_distance = self.weights == "distance"
        return f"""\
{"#include <math.h>" + chr(10) if by_distance else ""}#include <stdint.h>

/* 2^{FRACTION} log2(size) in integers: the same on every machine. */
static inline int64_t {function}_log(int64_t size) {{
  int whole = 0;
  if (size < 2) return 0;
  while (size >> whole > 1) ++whole;
  uint64_t part = whole > 31 ? (uint64_t)size >> (whole - 31) : (uint64_t)size << (31 - whole);
  int64_t result = whole;
  for (int i = 0; i < {FRACTION}; ++i) {{
    part = part * part >> 31;
    result *= 2;
    if (part >> 32) part >>= 1, ++result;
  }}
  return result;
}}

/* The label with most weight among the {self.k} nearest of {n} training sizes, {self.weights} weights. */
static inline int {function}_of(const int64_t* size) {{
  static const int64_t logs[{n}][{d}] = {{{rows}}};
  static const int labels[{n}] = {{{", ".join(map(str, self.labels))}}};
  int64_t apart[{n}];
  double weight[{self.k}];
  int label[{self.k}], found = 0, best = 0;
  for (int i = 0; i < {n}; ++i) apart[i] = 0;
  for (int k = 0; k < {d}; ++k) {{
    const int64_t here = {function}_log(size[k]);
    for (int i = 0; i < {n}; ++i) apart[i] += (logs[i][k] - here) * (logs[i][k] - here);
  }}
  for (int taken = 0; taken < {self.k}; ++taken) {{
    int near = -1, at = 0;
    for (int i = 0; i < {n}; ++i)
      if (apart[i] >= 0 && (near < 0 || apart[i] < apart[near])) near = i;
{"    if (apart[near] == 0) return labels[near];" + chr(10) if by_distance else ""}\
    while (at < found && label[at] != labels[near]) ++at;
    if (at == found) label[at] = labels[near], weight[at] = 0, ++found;
    weight[at] += {"1 / sqrt((double)apart[near])" if by_distance else "1"};
    apart[near] = -1;
  }}
  for (int i = 1; i < found; ++i)
    if (weight[i] > weight[best] || (weight[i] == weight[best] && label[i] < label[best])) best = i;
  return label[best];
}}

{head(function, self.data)} {{
  const int64_t dagc_sizes[{d}] = {{{", ".join(parameters(self.data))}}};
  return {function}_of(dagc_sizes);
}}
"""


def fit(
    data: Sequence[str], sizes: Sequence[Sequence[int]], labels: Sequence[int], *, folds: int = 5, seed: int = 0
) -> Knn:
    """k from 1 to the number of labels, and the weights, by GridSearchCV over shuffled folds (as the paper on the
    tridiagonal method).

    `sizes` holds a value for each of `data`. Raises UsageError as `check_training`.
    """
    import numpy as np
    from sklearn.model_selection import GridSearchCV, KFold
    from sklearn.neighbors import KNeighborsClassifier

    check_training(data, sizes, labels)
    order = sorted(range(len(sizes)), key=lambda i: tuple(sizes[i]))
    ordered, y = tuple(tuple(int(v) for v in sizes[i]) for i in order), tuple(int(labels[i]) for i in order)
    splits = min(folds, len(sizes))
    smallest_part = len(sizes) - -(-len(sizes) // splits)
    most = max(1, min(len(set(labels)), smallest_part))
    grid = {"n_neighbors": list(range(1, most + 1)), "weights": ["uniform", "distance"]}
    search = GridSearchCV(KNeighborsClassifier(), grid, cv=KFold(splits, shuffle=True, random_state=seed))
    search.fit(features(ordered), np.array(y))
    best = search.best_params_
    return Knn(tuple(data), ordered, y, int(best["n_neighbors"]), str(best["weights"]))


class Row(msgspec.Struct, tag_field="method", tag="knn", frozen=True):
    """As a tuned file keeps it."""

    data: tuple[Name, ...]
    sizes: tuple[tuple[Annotated[int, msgspec.Meta(ge=1, le=LARGEST)], ...], ...]
    labels: tuple[Label, ...]
    k: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    weights: Literal["uniform", "distance"]


def read(row: Row) -> Knn:
    """Raises ValueError."""
    lengths = {len(size) for size in row.sizes}
    if lengths != {len(row.data)} or len(row.labels) != len(row.sizes) or row.k > len(row.sizes):
        raise ValueError("a knn selector whose parts are not of one length")
    return Knn(row.data, row.sizes, row.labels, row.k, row.weights)

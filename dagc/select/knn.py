"""k nearest neighbours over the logarithm of a size: trained with scikit-learn, asked in Python or in C."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dagc.errors import UsageError

FEWEST = 3  # training sizes


@dataclass(frozen=True, slots=True)
class KnnChooser:
    """`sizes` ascend; `labels` are numbers of choices. `weights`: `uniform` or `distance`, as scikit-learn has them."""

    sizes: tuple[int, ...]
    labels: tuple[int, ...]
    k: int
    weights: str

    def choose(self, size: int) -> int:
        """The label with most weight among the k nearest sizes; the lowest of equal ones."""
        here = math.log10(size)
        order = sorted(range(len(self.sizes)), key=lambda i: abs(math.log10(self.sizes[i]) - here))[: self.k]
        votes: dict[int, float] = {}
        for i in order:
            distance = abs(math.log10(self.sizes[i]) - here)
            if self.weights == "distance" and distance == 0:
                return self.labels[i]
            votes[self.labels[i]] = votes.get(self.labels[i], 0.0) + (1 / distance if self.weights == "distance" else 1)
        return min(votes, key=lambda label: (-votes[label], label))


def fit_knn(sizes: Sequence[int], labels: Sequence[int], *, folds: int = 5, seed: int = 0) -> KnnChooser:
    """k from 1 to the number of labels, and the weights, by GridSearchCV over shuffled folds (as the seed).

    Raises UsageError for fewer than three sizes, sizes below 1, or sizes given twice.
    """
    import numpy as np
    from sklearn.model_selection import GridSearchCV, KFold
    from sklearn.neighbors import KNeighborsClassifier

    if len(sizes) < FEWEST or len(sizes) != len(labels):
        raise UsageError(
            f"{len(sizes)} sizes and {len(labels)} labels", f"give {FEWEST} or more, a label for each size"
        )
    if min(sizes) < 1 or len(set(sizes)) != len(sizes):
        raise UsageError("a size below 1, or one that is given twice", "give different sizes of 1 and more")
    order = sorted(range(len(sizes)), key=lambda i: sizes[i])
    x = np.log10(np.array([[sizes[i]] for i in order], float))
    y = np.array([labels[i] for i in order])
    splits = min(folds, len(sizes))
    smallest_part = len(sizes) - -(-len(sizes) // splits)
    most = max(1, min(len(set(labels)), smallest_part))
    grid = {"n_neighbors": list(range(1, most + 1)), "weights": ["uniform", "distance"]}
    search = GridSearchCV(KNeighborsClassifier(), grid, cv=KFold(splits, shuffle=True, random_state=seed))
    search.fit(x, y)
    best = search.best_params_
    return KnnChooser(
        tuple(int(sizes[i]) for i in order), tuple(int(v) for v in y), int(best["n_neighbors"]), str(best["weights"])
    )


def to_c(chooser: KnnChooser, function: str) -> str:
    """C99: `static inline int function(int64_t size)`, which needs math.h's log10. The label."""
    n = len(chooser.sizes)
    logs = ", ".join(repr(math.log10(s)) for s in chooser.sizes)
    labels = ", ".join(str(v) for v in chooser.labels)
    vote = "1 / apart" if chooser.weights == "distance" else "1"
    exact = "    if (apart == 0) return labels[near];\n" if chooser.weights == "distance" else ""
    return f"""\
#include <math.h>
#include <stdint.h>

/* The label with most weight among the {chooser.k} nearest of {n} training sizes, {chooser.weights} weights. */
static inline int {function}(int64_t size) {{
  static const double logs[{n}] = {{{logs}}};
  static const int labels[{n}] = {{{labels}}};
  const double here = log10((double)size);
  double weight[{chooser.k}];
  int label[{chooser.k}], found = 0, low = 0;
  for (int i = 0; i < {n} && logs[i] < here; ++i) low = i + 1;
  int high = low--;
  for (int taken = 0; taken < {chooser.k}; ++taken) {{
    const double below = low >= 0 ? here - logs[low] : HUGE_VAL, above = high < {n} ? logs[high] - here : HUGE_VAL;
    const int near = below <= above ? low-- : high++;
    const double apart = below <= above ? below : above;
{exact}    int at = 0;
    while (at < found && label[at] != labels[near]) ++at;
    if (at == found) label[at] = labels[near], weight[at] = 0, ++found;
    weight[at] += {vote};
    (void)apart;
  }}
  int best = 0;
  for (int i = 1; i < found; ++i)
    if (weight[i] > weight[best] || (weight[i] == weight[best] && label[i] < label[best])) best = i;
  return label[best];
}}
"""

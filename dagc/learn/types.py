"""The types of rules: samples, performance classes, features, rules, the tree. Times are in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from dagc.base.errors import counted
from dagc.base.python import np
from dagc.ir.choice import Choice
from dagc.ir.program import Graph
from dagc.ir.traversal import Traversal

Bools: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]"
Ints: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.int64]]"
Floats: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"

# ---- samples, classes, features, rules ----


@dataclass(frozen=True, slots=True)
class Example:
    """An implementation and its value: the median of `measurements` measurements, an estimate if that is 0.

    times    the single measurements, in the order taken; empty if unknown
    orders   positions of these among all measurements of the exploration; empty if unknown
    """

    graph: Graph
    configuration: Choice
    traversal: Traversal
    value: float
    measurements: int = 1
    times: tuple[float, ...] = ()
    orders: tuple[int, ...] = ()


# ---- performance classes --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Boundary:
    """A peak of the convolution (Tenzing, section IV-A): the sorted times rise after the `position`-th of them, from 0.

    value       midpoint of the two times that it separates
    height      value of the convolution there: the mean of the next r times minus that of the last r
    prominence  of the peak, in seconds
    step        median of the class above divided by that of the class below, minus 1, which is compared with the noise;
                for a dropped boundary, at the time when it was dropped
    samples     size of the class beside it, if it was dropped because that class may be chance; else 0
    chance      number of samples that chance may put into that class; else 0
    """

    position: int
    value: float
    height: float
    prominence: float
    step: float
    samples: int = 0
    chance: int = 0
    p: float = math.nan

    @property
    def why_dropped(self) -> str:
        """Why a boundary was dropped, as printed in rules, tables and plots."""
        if self.chance:
            return (
                f"a neighbouring class would have {counted(self.samples, 'implementation')}, and noise and outliers "
                f"may put up to {self.chance} there; more measurements would decide"
            )
        if not math.isnan(self.p):
            return (
                "neither repeated measurements nor any feature distinguish the two sides better than chance "
                f"(probability {self.p:.2g})"
            )
        return f"the neighbouring classes would differ by {100 * self.step:.1f} %, which is below the noise floor"


@dataclass(frozen=True, slots=True)
class PerformanceClass:
    """Implementations of about equal speed. `number` is 0 for the fastest class; times as measured."""

    number: int
    count: int
    fastest: float
    median: float
    slowest: float

    @property
    def width(self) -> float:
        """(slowest - fastest) / median, for comparison with the noise floor."""
        return (self.slowest - self.fastest) / self.median


@dataclass(frozen=True, slots=True)
class Classes:
    """Sorted times divided into classes.

    times         all times used for boundaries, ascending; without estimated ones
    radius        of the step function of the convolution
    convolution   its value after times[radius - 1], times[radius], ...: len(times) - 2 * radius + 1 values, in seconds
    threshold     prominence that a peak must exceed (98th percentile)
    boundaries    drawn, ascending; one fewer than the classes
    dropped       above the threshold, but below the noise floor, or beside a class that may be chance
    noise         the floor: relative standard deviation of the times used (NaN: unknown, nothing was dropped for it)
    p             probability of so many classes by chance (dagc.learn.classes); NaN: not tested
    """

    classes: tuple[PerformanceClass, ...]
    times: tuple[float, ...]
    radius: int
    convolution: tuple[float, ...]
    threshold: float
    boundaries: tuple[Boundary, ...]
    dropped: tuple[Boundary, ...]
    noise: float
    p: float = math.nan

    def of(self, value: float) -> int:
        """The class of a value: that between its boundaries."""
        return sum(value > boundary.value for boundary in self.boundaries)


# ---- rules ----------------------------------------------------------------------------------


class FeatureKind(Enum):
    """Kinds of features. a and b are names of entries (`pack`, `CER-after-pack`), or a decision and a value."""

    CHOICE = "choice"  # decision a has one of the values in b (separated by " or ")
    AT_MOST = "at most"  # decision a has a number of at most b
    SAME = "same stream"  # GPU ops a and b are present and on one stream
    DIFFERENT = "different streams"  # both are present, on different streams
    BEFORE = "before"  # entries a and b are present and a comes first


@dataclass(frozen=True, slots=True, order=True)
class RuleFeature:
    """A question about an implementation, answered by yes or no.

    `total`: "no" says the opposite: b before a, in different streams, `capture = false`, `> 64`. Otherwise "no" may
    also mean that a name is absent, both are of one entry, or the decision does not arise or has more than two values.
    """

    kind: FeatureKind
    a: str
    b: str
    total: bool = True

    @property
    def is_choice(self) -> bool:
        """Whether it is about a decision, not about the entries of a traversal."""
        return self.kind in (FeatureKind.CHOICE, FeatureKind.AT_MOST)

    @property
    def is_stream(self) -> bool:
        return self.kind in (FeatureKind.SAME, FeatureKind.DIFFERENT)

    def text(self, truth: bool = True) -> str:
        """As in Fig. 6 of the Tenzing paper: `yl before CES-b4-post_send`, `yl, pack in different streams`."""
        match self.kind:
            case FeatureKind.CHOICE if truth:
                return f"{self.a} = {self.b}"
            case FeatureKind.CHOICE:
                return f"{self.a} = false" if self.total else f"{self.a} is not {self.b}"
            case FeatureKind.AT_MOST if truth:
                return f"{self.a} <= {self.b}"
            case FeatureKind.AT_MOST:
                return f"{self.a} > {self.b}" if self.total else f"{self.a} not <= {self.b}"
            case FeatureKind.BEFORE if self.total:
                return f"{self.a} before {self.b}" if truth else f"{self.b} before {self.a}"
            case FeatureKind.BEFORE:
                return f"{self.a} before {self.b}" if truth else f"{self.a} not before {self.b}"
            case _:
                same = (self.kind is FeatureKind.SAME) == truth
                if not truth and not self.total:
                    return f"{self.a}, {self.b} not in {'the same stream' if not same else 'different streams'}"
                return f"{self.a}, {self.b} in {'the same stream' if same else 'different streams'}"


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """A feature that must, or must not, hold."""

    feature: RuleFeature
    truth: bool

    @property
    def text(self) -> str:
        return self.feature.text(self.truth)


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules on the path to one leaf, without those implied by the others and by the edges of the program.

    number    of the class: that with the largest share
    leaf      index of its node in the tree
    samples   how many implementations it was learned from
    counts    per class, how many of them
    shares    per class, with all classes weighted equally (as the boxes of Fig. 6); they add up to 1
    wrong     how many samples do not belong to its class, by more than the noise where that is known
    """

    number: int
    rules: tuple[Rule, ...]
    leaf: int
    samples: int
    counts: tuple[int, ...]
    shares: tuple[float, ...]
    wrong: int

    @property
    def sufficient(self) -> bool:
        """Whether these rules lead to their class; otherwise they are insufficient (Table VII)."""
        return not self.wrong


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the tree. A leaf has no `feature`; otherwise `yes` and `no` are the indices of its children."""

    feature: RuleFeature | None
    yes: int
    no: int
    depth: int
    samples: int
    counts: tuple[int, ...]
    shares: tuple[float, ...]
    number: int  # the class with the largest share
    wrong: int  # samples of another class, by more than the noise if that is known

    @property
    def leaf(self) -> bool:
        return self.feature is None


@dataclass(frozen=True, slots=True)
class Tree:
    """`nodes[0]` is the root; children come after their parents, `yes` first.

    error   training error with all classes weighted equally: samples wrong by more than the noise, if known
    search  (leaf nodes allowed, training error, depth) of each tree that Algorithm 1 tried, in order (Fig. 5)
    """

    nodes: tuple[Node, ...]
    error: float
    search: tuple[tuple[int, float, int], ...]

    @property
    def leaves(self) -> int:
        return sum(node.leaf for node in self.nodes)

    @property
    def depth(self) -> int:
        return max(node.depth for node in self.nodes)


# ---- rules on samples that did not make them ----


@dataclass(frozen=True, slots=True)
class Halves:
    """How rules that were learned from one half of the samples do on the other half, over several draws of the halves.

    halves       number of halves that taught rules, each judged by the other
    without      how many of these gave no rules; all further values are of the others
    accuracy     share of held-out samples whose time is in the range, fastest to slowest, of the class that the tree
                 gives them; mean of the halves
    constant     the same for one class for all, the best in hindsight
    chance       the same for random labels with the same class sizes
    followers    held-out samples in class 1 by the tree, in all halves
    stated       what is said of these: one in 20 is slower than this, over the fastest that taught, minus 1; the mean
    slower       share of them that are slower than that by more than `tolerance`
    loss         time of the followers over that of the fastest held-out sample, minus 1: the median
    loss_95      its 95th percentile
    tolerance    relative
    """

    halves: int
    without: int
    accuracy: float
    constant: float
    chance: float
    followers: int
    stated: float
    slower: float
    loss: float
    loss_95: float
    tolerance: float

    @property
    def refutes(self) -> bool:
        """Whether there are rules of halves, and they predict classes no better than one class for all."""
        return self.halves > self.without and not self.accuracy > self.constant

"""The decision tree as a picture (Fig. 6 of the seed), root at the left; each box hides and shows its subtree."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from dagc.base.errors import counted
from dagc.report import si
from dagc.report.charts import class_colour
from dagc.report.plot import n, picture, tag, text

if TYPE_CHECKING:
    from dagc.learn.rules.types import Node, Tree

# Height of a leaf's row, of a leaf, of a question; width between parent and child, of a bold and of a small letter.
_LEAF_ROW, _LEAF, _BOX, _GAP, _LETTER, _SMALL_LETTER, _MARGIN = 44.0, 34.0, 56.0, 44.0, 7.4, 6.2, 6.0


MOST_LEAVES = 24  # that are read at a glance
MOST_WIDTH = 1080.0  # of the page: what is wider is cut off at its right edge until one scrolls


def tree_chart(tree: Tree, name: str, deepest: int | None = None) -> str:
    """Questions in the boxes, `yes` upwards; the bar below a box shows the shares of the classes in it.

    `name` is the element's ID. What is deeper than `deepest` is left out; the box above it says so.
    """
    return _Chart(tree, tree.depth if deepest is None else deepest).svg(name)


def readable_depth(tree: Tree) -> int:
    """The greatest depth down to which the tree has at most MOST_LEAVES ends and fits on the page; at least 1."""

    def ends(depth: int) -> int:
        return sum(node.depth == depth or (node.leaf and node.depth < depth) for node in tree.nodes)

    fits = (d for d in range(1, tree.depth + 1) if ends(d) <= MOST_LEAVES and _Chart(tree, d).width <= MOST_WIDTH)
    return max(fits, default=1)


class _Chart:
    """Every box has `lefts` and `rows`: its left side, and its middle from the top."""

    def __init__(self, tree: Tree, deepest: int) -> None:
        self.nodes = tree.nodes
        self.deepest = deepest
        self.title = f"Decision tree with {counted(tree.leaves, 'leaf', 'leaves')}, depth {tree.depth}"
        self.lefts: dict[int, float] = {}
        self.rows: dict[int, float] = {}
        self._place(0, 0, _MARGIN)

    def _end(self, at: int) -> bool:
        """Is nothing drawn below this node?"""
        return self.nodes[at].leaf or self.nodes[at].depth >= self.deepest

    def _place(self, at: int, ends: int, left: float) -> int:
        """Ends in rows of their own, other boxes halfway between their children; returns the ends so far."""
        node = self.nodes[at]
        self.lefts[at] = left
        if self._end(at):
            self.rows[at] = _MARGIN + _LEAF_ROW * ends + _BOX / 2
            return ends + 1
        right = left + self._width(at) + _GAP
        ends = self._place(node.no, self._place(node.yes, ends, right), right)
        self.rows[at] = (self.rows[node.yes] + self.rows[node.no]) / 2
        return ends

    @property
    def width(self) -> float:
        return max(left + self._width(at) for at, left in self.lefts.items()) + _MARGIN

    def svg(self, name: str) -> str:
        height = max(self.rows.values()) + _BOX / 2 + _MARGIN
        return picture(self.width, height, [self._branch(0)], self.title, "plot tree natural", "group", id=name)

    def _branch(self, at: int) -> str:
        """A box with its subtree."""
        node = self.nodes[at]
        if self._end(at):
            return tag("g", self._end_box(at), class_="leaf" if node.leaf else "leaf cut", data_tip=_tooltip(node))
        below = "".join(self._edge(at, to, yes) + self._branch(to) for to, yes in ((node.yes, True), (node.no, False)))
        button = tag("g", self._question_box(at), class_="question", role="button", tabindex=0, aria_expanded="true",
                     aria_label=_question(node), data_tip=_tooltip(node))  # fmt: skip
        return tag("g", button + tag("g", below, class_="below"), class_="branch")

    def _edge(self, at: int, to: int, yes: bool) -> str:
        x, to_x = self.lefts[at] + self._width(at), self.lefts[to]
        y, to_y = self.rows[at], self.rows[to]
        bend = (x + to_x) / 2
        curve = f"M{n(x)} {n(y)}C{n(bend)} {n(y)} {n(bend)} {n(to_y)} {n(to_x)} {n(to_y)}"
        word = text(to_x - 5, to_y + (-6 if yes else 14), "yes" if yes else "no", "tick", text_anchor="end")
        return tag("path", d=curve, class_="edge", fill="none") + word

    def _question_box(self, at: int) -> str:
        x, top, node = self.lefts[at], self.rows[at] - _BOX / 2, self.nodes[at]
        lines = (text(x + 8, top + 16 + 14 * i, line, "box-title") for i, line in enumerate(_lines(node)))
        samples = text(x + 8, top + 44, si.ordinary(node.samples, "sample"), "box-detail")
        return self._frame(at, _BOX) + "".join(lines) + samples + self._shares(at, _BOX)

    def _end_box(self, at: int) -> str:
        title, detail = self._end_words(at)
        beside = tag("tspan", escape(detail), dx=7, class_="box-detail")
        x, y = self.lefts[at] + 8, self.rows[at] - _LEAF / 2 + 17
        words = tag("text", escape(title) + beside, x=x, y=y, class_="box-title")
        return self._frame(at, _LEAF) + words + self._shares(at, _LEAF)

    def _end_words(self, at: int) -> tuple[str, str]:
        """The class with how many samples; of a box with leaves that are not drawn, how many.

        "mixed": some samples are of another class, by more than the noise.
        """
        node = self.nodes[at]
        impure = ", mixed" if node.wrong else ""
        more = "" if node.leaf else f", {counted(self._leaves(at), 'leaf', 'leaves')}"
        return f"class {node.number + 1}{impure}", si.ordinary(node.samples, "sample") + more

    def _leaves(self, at: int) -> int:
        node = self.nodes[at]
        return 1 if node.leaf else self._leaves(node.yes) + self._leaves(node.no)

    def _width(self, at: int) -> float:
        if self._end(at):
            title, detail = self._end_words(at)
            return 24 + _LETTER * len(title) + _SMALL_LETTER * len(detail)
        return max(100.0, 16 + _LETTER * max(map(len, _lines(self.nodes[at]))))

    def _frame(self, at: int, height: float) -> str:
        x, y = self.lefts[at], self.rows[at] - height / 2
        return tag("rect", x=x, y=y, width=self._width(at), height=height, rx=5, class_="box")

    def _shares(self, at: int, height: float) -> str:
        """The bar at the bottom of a box."""
        shares, left, y = self.nodes[at].shares, self.lefts[at] + 1, self.rows[at] + height / 2 - 7
        out = []
        for number, share in enumerate(shares):
            wide = share * (self._width(at) - 2)
            if wide > 0:
                colour = f"fill:{class_colour(number, len(shares))}"
                out.append(tag("rect", x=left, y=y, width=wide, height=6.0, style=colour))
                left += wide
        return "".join(out)


def _question(node: Node) -> str:
    return "leaf" if node.feature is None else f"{node.feature.text()}?"


def _lines(node: Node) -> list[str]:
    """The question in two lines of about the same length."""
    words = _question(node).split(" ")
    cuts = [(" ".join(words[:i]), " ".join(words[i:])) for i in range(1, len(words))]
    return list(min(cuts, key=lambda c: max(map(len, c)), default=(words[0],)))


def _tooltip(node: Node) -> str:
    shares = (
        f"class {number + 1}: {si.ordinary(count, 'sample')}, {si.percent(share)} with all classes weighted equally"
        for number, (count, share) in enumerate(zip(node.counts, node.shares, strict=True))
        if count
    )
    return "\n".join((_question(node), *shares))

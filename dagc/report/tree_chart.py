"""The decision tree as a picture (Fig. 6 of the seed), root at the left; each box closes and opens what hangs on it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from dagc.report import si
from dagc.report.charts import class_colour
from dagc.report.plot import n, picture, tag, text

if TYPE_CHECKING:
    from dagc.rules.types import Node, Tree

# Height of a leaf's row, of a leaf, of a question; width between parent and child, and of a letter.
_ROW, _LEAF, _BOX, _GAP, _LETTER, _MARGIN = 44.0, 34.0, 56.0, 44.0, 7.3, 6.0


def tree_chart(tree: Tree) -> str:
    """Questions in the boxes, `yes` upwards; the bar below a box shows the shares of the classes in it."""
    return _Chart(tree).svg()


class _Chart:
    def __init__(self, tree: Tree) -> None:
        self.nodes = tree.nodes
        self.title = f"Decision tree with {tree.leaves} leaves, depth {tree.depth}"
        self.lefts: dict[int, float] = {}
        self.rows: dict[int, float] = {}  # middle of each box, from the top
        self._place(0, 0, _MARGIN)

    def _place(self, at: int, leaves: int, left: float) -> int:
        """Leaves in rows of their own, other boxes halfway between their children; returns the leaves so far."""
        node = self.nodes[at]
        self.lefts[at] = left
        if node.leaf:
            self.rows[at] = _MARGIN + _ROW * leaves + _BOX / 2
            return leaves + 1
        right = left + _width(node) + _GAP
        leaves = self._place(node.no, self._place(node.yes, leaves, right), right)
        self.rows[at] = (self.rows[node.yes] + self.rows[node.no]) / 2
        return leaves

    def svg(self) -> str:
        height = max(self.rows.values()) + _BOX / 2 + _MARGIN
        width = max(left + _width(self.nodes[at]) for at, left in self.lefts.items()) + _MARGIN
        return picture(width, height, [self._branch(0)], self.title, "plot tree natural", "group", id="tree-chart")

    def _branch(self, at: int) -> str:
        """A box with everything that hangs on it."""
        node = self.nodes[at]
        if node.leaf:
            return tag("g", self._box(at, node), class_="leaf", data_tip=_told(node))
        below = "".join(self._edge(at, to, yes) + self._branch(to) for to, yes in ((node.yes, True), (node.no, False)))
        button = tag("g", self._box(at, node), class_="question", role="button", tabindex=0, aria_expanded="true",
                     aria_label=_question(node), data_tip=_told(node))  # fmt: skip
        return tag("g", button + tag("g", below, class_="below"), class_="branch")

    def _edge(self, at: int, to: int, yes: bool) -> str:
        x, to_x = self.lefts[at] + _width(self.nodes[at]), self.lefts[to]
        y, to_y = self.rows[at], self.rows[to]
        bend = (x + to_x) / 2
        curve = f"M{n(x)} {n(y)}C{n(bend)} {n(y)} {n(bend)} {n(to_y)} {n(to_x)} {n(to_y)}"
        word = text(to_x - 5, to_y + (-6 if yes else 14), "yes" if yes else "no", "tick", text_anchor="end")
        return tag("path", d=curve, class_="edge", fill="none") + word

    def _box(self, at: int, node: Node) -> str:
        high = _LEAF if node.leaf else _BOX
        x, top, width = self.lefts[at], self.rows[at] - high / 2, _width(node)
        out = [tag("rect", x=x, y=top, width=width, height=high, rx=5, class_="box")]
        samples = si.ordinary(node.samples, "sample")
        if node.leaf:
            beside = tag("tspan", escape(samples), dx=7, class_="box-detail")
            out.append(tag("text", escape(_lines(node)[0]) + beside, x=x + 8, y=top + 17, class_="box-title"))
        else:
            out += [text(x + 8, top + 16 + 14 * i, line, "box-title") for i, line in enumerate(_lines(node))]
            out.append(text(x + 8, top + 44, samples, "box-detail"))
        left = x + 1
        for number, share in enumerate(node.shares):
            if share > 0:
                wide = share * (width - 2)
                colour = f"fill:{class_colour(number, len(node.shares))}"
                out.append(tag("rect", x=left, y=top + high - 7, width=wide, height=6.0, style=colour))
                left += wide
        return "".join(out)


def _question(node: Node) -> str:
    return "" if node.feature is None else f"{node.feature.text()}?"


def _lines(node: Node) -> list[str]:
    """The question in two lines of about the same length; of a leaf its class."""
    if node.leaf:
        impure = node.counts[node.number] != node.samples
        return [f"class {node.number + 1}" + (", mixed" if impure else "")]
    words = _question(node).split(" ")
    cuts = [(" ".join(words[:i]), " ".join(words[i:])) for i in range(1, len(words))]
    return [line for line in min(cuts, key=lambda c: max(map(len, c)), default=(words[0], "")) if line]


def _width(node: Node) -> float:
    letters = max(map(len, _lines(node)))
    return 90 + _LETTER * letters if node.leaf else max(100.0, 16 + _LETTER * letters)


def _told(node: Node) -> str:
    shares = (
        f"class {number + 1}: {si.ordinary(count, 'sample')}, {si.percent(share)} with all classes weighted equally"
        for number, (count, share) in enumerate(zip(node.counts, node.shares, strict=True))
        if count
    )
    return "\n".join((_question(node) or "leaf", *shares))

"""The text of a kernel for V neighbouring threads at once: statements and loads that they share stand once, others in a
loop over the lanes; along x, rows of arrays are vectors.

Lanes keep the order of their own loads and stores: a group of statements loads what it needs, computes, then stores.
An element that a loop adds to is kept in a register meanwhile, if the array has no other access there: arrays of a
kernel do not overlap where one of them is written (`aliased-arguments`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import gcd
from typing import TYPE_CHECKING

from dagc.cuda.syntax import (
    Change,
    Declarator,
    below,
    change_of,
    declarators,
    field_of,
    operator_of,
    text_of,
    without_brackets,
)
from dagc.forms.affine import (
    LOOPS,
    MOVED,
    NUMBER,
    VECTOR_ACCESSES,
    coefficient,
    kind_of,
    names_of,
    number_of,
    prefix_of,
    without,
)
from dagc.forms.neighbours import AccessSite, Neighbours, NotAlike, is_below, operands
from dagc.forms.text import edited, product_of
from dagc.forms.types import ALWAYS
from dagc.ir.sym import Apply, Const, Fn, Poly, Sym, Var

if TYPE_CHECKING:
    from tree_sitter import Node

_ZERO = re.compile(r"0(\.0*)?f?")
_LONGEST = 110  # characters of a line that declares several variables
_MOST_LISTED = 64  # elements that are listed in the emitted text
_NOT_LISTED = ("initializer_list", "initializer_pair", "string_literal", "parameter_pack_expansion")
_EFFECTS = (*LOOPS, "pointer_expression", "lambda_expression")
_MATH = re.compile(r"(std::)?(f?(abs|min|max)|r?sqrt|exp|log|pow|fma|sin|cos|tanh|hypot|float|double)f?")
_LEAVING = ("return_statement", "break_statement", "continue_statement")
Multiple = tuple[int, tuple[str, ...]]  # a number, and names that it is multiplied by
Key = tuple[str, tuple[tuple[object, object], ...]]


@dataclass(frozen=True, slots=True)
class LaneNames:
    """Names in the emitted text: of X of the first lane, and of the counter of lanes; how others are made."""

    first: str
    lane: str
    fresh: Callable[[str], str]


@dataclass(slots=True)
class VectorRow:
    """Elements of an array around those of the first lane. `base`: the offset, from the lane's X, of the element that
    begins a vector; `text`: its address."""

    name: str
    base: int
    text: str
    first: int
    last: int


@dataclass(slots=True)
class LaneGroup:
    """Statements that lanes execute in one loop."""

    nodes: list[Node] = field(default_factory=list)
    stores: bool = False


@dataclass(slots=True)
class Lockstep:
    """The writer of one kernel.

    elements   the C++ types of the elements of arrays
    wide       whether neighbours load and store vectors
    shift      lanes of the first group that lie before X = 0, so that what is stored begins a vector
    own        the variable with the lanes that take part, as bits; "" if all do
    multiples  what must be a multiple of V
    vectors    arrays that are accessed as vectors
    """

    alike: Neighbours
    lanes: int
    names: LaneNames
    elements: Mapping[str, str]
    shift: int = 0
    own: str = ""
    wide: bool = True
    multiples: dict[Multiple, None] = field(default_factory=dict)
    vectors: dict[str, None] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    group: LaneGroup = field(default_factory=LaneGroup)
    declared: set[str] = field(default_factory=set)  # indices that are declared for the first lane
    each: set[str] = field(default_factory=set)  # variables that are declared as an array over the lanes
    rows: dict[int, tuple[VectorRow, int]] = field(default_factory=dict)  # of loads, by the node: row and element
    once: dict[int, str] = field(default_factory=dict)  # loads that stand once for all lanes, by the node
    kept: dict[int, str] = field(default_factory=dict)  # accesses of elements that a loop keeps in registers
    numbers: dict[str, int] = field(default_factory=dict)
    shared: list[str] = field(default_factory=list)  # variables that are declared once for all lanes
    alone: dict[str, tuple[str, str]] = field(default_factory=dict)  # declarations: their beginning, and of what kind

    def written(self) -> list[str]:
        """The lines, without the variables that settled conditions have left unused."""
        lines = self.lines
        for name in reversed(self.shared):
            used = [k for k, line in enumerate(lines) if re.search(rf"\b{name}\b", line)]
            if len(used) == 1 and re.search(rf"\b{name}\b *(=|;)", lines[used[0]]):
                lines = [line for k, line in enumerate(lines) if k != used[0]]
        return self._joined(lines)

    def _joined(self, lines: Sequence[str]) -> list[str]:
        """The lines with declarations of one kind that follow each other as one."""
        out: list[str] = []
        last: tuple[str, str] | None = None
        for line in lines:
            kind = self.alone.get(line)
            text = line[len(kind[0]) :] if kind is not None else line
            if kind is not None and kind == last and len(out[-1]) + len(text) < _LONGEST:
                out[-1] = f"{out[-1][:-1]}, {text}"
            else:
                out.append(line)
            last = kind
        return out

    def _together(self, begin: str, text: str, kind: str = "") -> None:
        """A declaration, which may join that before it if that begins alike and is of the same kind."""
        line = f"{begin}{text};"
        self.lines.append(line)
        if "\n" not in line and (kind or "auto" not in begin.split()):
            self.alone[line] = begin, kind

    # ---- statements ----

    def block(self, nodes: Sequence[Node], indent: str) -> None:
        outer = set(self.each)
        for node in nodes:
            self._statement(node, indent)
        self._flush(indent)
        self.each = outer

    def in_order(self, nodes: Sequence[Node], indent: str) -> None:
        """Statements for one lane after the other, for which rows are loaded as vectors before."""
        self._load(nodes, indent)
        self._each_lane([self._text(node, self.names.lane) for node in nodes], indent)
        self.rows.clear()

    def _statement(self, node: Node, indent: str) -> None:
        match node.type:
            case "comment":
                if self.group.nodes:
                    self.group.nodes.append(node)
                else:
                    self.lines.append(indent + text_of(node))
            case "compound_statement":
                self._flush(indent)
                self.lines.append(f"{indent}{{")
                self.block(node.named_children, indent + "  ")
                self.lines.append(f"{indent}}}")
            case "declaration":
                self._declaration(node, indent)
            case "if_statement" if self._is_alike(node):
                self._if(node, indent)
            case kind if kind in LOOPS and self._is_alike(node):
                self._loop(node, indent)
            case kind if kind in _LEAVING:
                self._flush(indent)
                self.lines.append(indent + self._text(node))
            case "expression_statement":
                if self.alike.varies(node) or self._accesses_stores(node):
                    self._add(node, indent)
                else:
                    self._shared(node, indent, "", self._text(node))
            case "preproc_call":
                self._flush(indent)
                self.lines.append(indent + text_of(node).strip())
            case _:
                self._add(node, indent)

    def _is_alike(self, node: Node) -> bool:
        """Whether lanes take the same way through a branch or a loop."""
        parts = [field_of(node, part) for part in ("condition", "initializer", "update")]
        return not any(part is not None and self.alike.varies(part) for part in parts)

    def _declaration(self, node: Node, indent: str) -> None:
        for each in declarators(node):
            one = Declarator.of(each)
            if one.name in self.alike.varying:
                self._add(each, indent)
                continue
            if one.name in self.alike.indices:
                self.declared.add(one.name)
            self._shared(each, indent, prefix_of(node), self._text(each))
            if not any(at.type == "call_expression" for at in below(each)):
                self.shared.append(one.name)

    def _shared(self, node: Node, indent: str, prefix: str, text: str) -> None:
        """A statement that is the same for all lanes; before the open group, if it does not read what that stores."""
        loads = any(True for _ in self._accesses(node)) or any(at.type == "call_expression" for at in below(node))
        if self.group.stores and loads:
            self._flush(indent)
        if self._changes_what_group_uses(node):
            self._flush(indent)
        if prefix:
            self._together(f"{indent}{prefix}", text)
        else:
            self.lines.append(indent + text)

    def _changes_what_group_uses(self, node: Node) -> bool:
        changed = {text_of(c.target) for at in below(node) if (c := change_of(at)) is not None and c.how}
        return any(text_of(at) in changed for one in self.group.nodes for at in below(one) if at.type == "identifier")

    def _if(self, node: Node, indent: str) -> None:
        self._flush(indent)
        condition, then, other = (field_of(node, part) for part in ("condition", "consequence", "alternative"))
        assert condition is not None
        assert then is not None
        inner = [c for c in other.named_children if c.type != "comment"] if other is not None else []
        truth = self.alike.truth(condition)
        if truth is not None:
            nodes = _inside([then] if truth else inner)
            if any(at.type == "declaration" for at in nodes):  # its names may be those of others around it
                self.lines.append(f"{indent}{{")
                self.block(nodes, indent + "  ")
                self.lines.append(f"{indent}}}")
            else:
                self.block(nodes, indent)
            return
        if not inner and then.type in _LEAVING:
            self.lines.append(f"{indent}if {self._condition(condition)} {self._text(then)}")
            return
        self.lines.append(f"{indent}if {self._condition(condition)} {{")
        self.block(_inside([then]), indent + "  ")
        if inner:
            self.lines.append(f"{indent}}} else {{")
            self.block(_inside(inner), indent + "  ")
        self.lines.append(f"{indent}}}")

    def _condition(self, node: Node) -> str:
        text = self._text(node)
        return text if text.startswith("(") and node.type != "binary_expression" else f"({text})"

    def _loop(self, node: Node, indent: str) -> None:
        body = field_of(node, "body")
        assert body is not None
        self._flush(indent)
        kept = self._keep(node, indent)
        source, begin = node.text or b"", node.start_byte
        edits = list(self._edits(node, "", without=body))
        head = edited(source, begin, begin, body.start_byte, edits).rstrip()
        tail = edited(source, begin, body.end_byte, node.end_byte, edits).strip()
        self.lines.append(f"{indent}{head} {{")
        self.block(_inside([body]), indent + "  ")
        self.lines.append(f"{indent}}} {tail}" if tail else f"{indent}}}")
        for site, name in kept:
            self.kept = {at: of for at, of in self.kept.items() if of != name}
            self._store(site, name, indent)

    # ---- elements that a loop adds to ----

    def _keep(self, loop: Node, indent: str) -> list[tuple[AccessSite, str]]:
        """Load the elements that a loop reads and writes at one place, which it then keeps in registers."""
        inside = [s for s in self.alike.sites if is_below(s.node, loop) and s.node.id not in self.kept]
        if any(at.type == "return_statement" for at in below(loop)) or any(not s.array for s in inside):
            return []
        changed = {text_of(c.target) for at in below(loop) if (c := change_of(at)) is not None}
        out = []
        for array in dict.fromkeys(s.array for s in inside if s.store):
            own = [s for s in inside if s.array == array]
            first = own[0]
            moved = any(name.endswith(MOVED) for name in names_of(first.place or {}))
            one_place = first.place is not None and not moved and all(s.place == first.place for s in own)
            if not one_place or changed & set(_words(first.node)) or not self._was_stored(first, loop):
                continue
            if any(s.node.type == "call_expression" for s in own):
                continue
            name = self._name(array)
            self._registers_of(first, name, indent, loads=True)
            self.kept |= {s.node.id: name for s in own}
            out.append((first, name))
        return out

    def _was_stored(self, site: AccessSite, loop: Node) -> bool:
        """Whether the thread is sure to store to the place before a loop, which may have no iteration."""
        around = _around(loop)
        return any(
            s.store and s.array == site.array and s.place == site.place and s.node.end_byte <= loop.start_byte
            for s in self.alike.sites
            if (statement := _statement_of(s.node)).parent is not None and statement.parent.id in around
        )

    # ---- statements of the lanes ----

    def _add(self, node: Node, indent: str) -> None:
        leaving = next((at for at in below(node) if _leaves(at, node)), None)
        if leaving is not None:
            raise NotAlike("some of the neighbours leave here, depending on data or on their place", leaving)
        accesses = list(self._accesses(node))
        stored = [at for at in accesses if kind_of(at)[1]]
        vector = self._stored(node)
        loads = len(accesses) > len(stored) or any(at.type == "call_expression" for at in below(node))
        apart = [at for at in stored if vector is None or at.id != vector.id]
        if self.group.stores and (loads or apart or self._loads_what_it_stores(node)):
            self._flush(indent)
        self.group.nodes.append(node)
        self.group.stores = self.group.stores or bool(stored)

    def _accesses_stores(self, node: Node) -> bool:
        return any(kind_of(at)[1] for at in self._accesses(node))

    def _accesses(self, node: Node) -> Iterator[Node]:
        """The loads and stores of global memory below a node, without those of what is kept in registers."""
        return (at for at in self.alike.accesses(node) if at.id not in self.kept)

    def _loads_what_it_stores(self, node: Node) -> bool:
        change = _change(node)
        return change is not None and change.how != "=" and without_brackets(change.target).id not in self.kept

    def _stored(self, node: Node) -> Node | None:
        """The place that a statement stores to as a vector: `a[i] = ...;` where `a[i]` begins one."""
        change = _change(node)
        if change is None:
            return None
        target = without_brackets(change.target)
        site = self._site(target)
        if site is None or site.place is None or target.id in self.kept:
            return None
        if not self.wide:
            return target
        if not self._is_row(site.place):
            return None
        return target if (self._offset(site.place) - self.shift) % self.lanes == 0 else None

    def _site(self, node: Node) -> AccessSite | None:
        return next((s for s in self.alike.sites if s.node.id == node.id), None)

    def _flush(self, indent: str) -> None:
        if not self.group.nodes:
            return
        nodes, self.group = self.group.nodes, LaneGroup()
        lane = self.names.lane
        self._declare(nodes, indent)
        self._load(nodes, indent)
        self._load_once(nodes, indent)
        loop: list[str] = []
        after: list[tuple[AccessSite, str]] = []
        for node in nodes:
            target = self._stored(node)
            if target is None:
                self._refuse_apart(node)
                loop.append(self._lane_text(node))
                continue
            site, change = self._site(target), _change(node)
            assert site is not None
            assert change is not None
            if self.wide and node.id == nodes[-1].id and (variable := self._variable_of(change, site)):
                self._use(site)
                after.append((site, variable))
                continue
            name = self._name(site.array)
            self._registers_of(site, name, indent, loads=change.how != "=")
            loop.append(self._stored_text(node, change, f"{name}[{lane}]"))
            after.append((site, name))
        if self.own and any(map(self._has_effects, nodes)):
            raise NotAlike("lanes that take no part must not execute this", nodes[0])
        self._each_lane(loop, indent)
        for site, name in after:
            self._store(site, name, indent)
        self.rows.clear()
        self.once.clear()

    def _has_effects(self, node: Node) -> bool:
        """Whether a lane that takes no part must not execute a statement, with whatever it has for numbers."""
        stored, todo = self._stored(node), [node]
        while todo:
            at = todo.pop()
            if at.id in self.rows or at.id in self.once or (stored is not None and at.id == stored.id):
                continue
            divides = operator_of(at) in ("/", "%", "/=", "%=") and not _is_divisor(field_of(at, "right"))
            calls = at.type == "call_expression" and not _MATH.fullmatch(text_of(field_of(at, "function")))
            if (
                divides
                or calls
                or at.type in _EFFECTS
                or (at.id not in self.kept and at.type == "subscript_expression")
            ):
                return True
            todo += at.named_children
        return False

    def _variable_of(self, change: Change, site: AccessSite) -> str:
        """The variable of the lanes whose values an assignment stores as they are; "" if it does more."""
        name = text_of(change.value) if change.how == "=" and change.value is not None else ""
        one = self.alike.variables.get(name) if name in self.each else None
        stored = one is not None and not one.declarator.sizes and not one.declarator.pointers
        return name if stored and one is not None and _unqualified(one.prefix) == self.elements[site.array] else ""

    def _each_lane(self, texts: Sequence[str], indent: str) -> None:
        lane = self.names.lane
        if not any(texts):
            return  # declarations without values
        head = f"for (int {lane} = 0; {lane} < {self.lanes}; ++{lane})"
        lines = [line for text in self._joined([*filter(None, texts)]) for line in text.split("\n")]
        self.lines.append(f"{indent}#pragma unroll")
        if len(lines) == 1 and not lines[0].startswith("//"):
            self.lines.append(f"{indent}{head} {lines[0]}")
            return
        self.lines += [f"{indent}{head} {{", *(f"{indent}  {line}" for line in lines), f"{indent}}}"]

    @property
    def _given(self) -> str:
        return f", {self.own}" if self.own else ""

    def _registers_of(self, site: AccessSite, name: str, indent: str, loads: bool) -> None:
        """Declare what the lanes store to a place; `loads`: with the elements that are there."""
        v, type_ = self.lanes, self.elements[site.array]
        if not self.wide:
            self._together(f"{indent}{type_} ", f"{name}[{v}]")
            if loads:
                self._each_lane([f"{name}[{self.names.lane}] = {self._text(site.node, self.names.lane)};"], indent)
            return
        self._use(site)
        before = f" = dagc::load<{v}>({self._address(site.node)}{self._given})" if loads else ""
        self._together(f"{indent}dagc::Vector<{type_}, {v}> ", f"{name}{before}")

    def _store(self, site: AccessSite, name: str, indent: str) -> None:
        if self.wide:
            self.lines.append(f"{indent}dagc::store<{self.lanes}>({self._address(site.node)}, {name}{self._given});")
        else:
            self._each_lane([f"{self._text(site.node, self.names.lane)} = {name}[{self.names.lane}];"], indent)

    def _refuse_apart(self, node: Node) -> None:
        """Lanes that store elements one by one in all groups are slower than threads that do: a warp's are apart."""
        change = _change(node)
        site = self._site(without_brackets(change.target)) if change is not None else None
        if self.wide and site is not None and site.node.id not in self.kept:
            fix = "pass the length of its rows, such as m / 2, as an argument of its own"
            raise NotAlike(f"`{text_of(site.node)}` is not where a vector begins in all rows: {fix}", site.node)

    def _use(self, site: AccessSite) -> None:
        assert site.place is not None
        self.vectors.setdefault(site.array)
        multiples = multiples_in(site.place, self.alike)
        if self.own and not multiples:
            raise NotAlike("a vector of which some lanes load may end beyond its array", site.node)
        self.multiples.update(dict.fromkeys(multiples or ()))

    def _declare(self, nodes: Sequence[Node], indent: str) -> None:
        """Declare the variables of the lanes that are used after this group."""
        for node in nodes:
            if node.type != "init_declarator" and node.parent is not None and node.parent.type != "declaration":
                continue
            one = Declarator.of(node)
            if not one.name or one.name not in self.alike.varying or not _used_after(one.name, node, nodes[-1]):
                continue
            declaration = node.parent
            assert declaration is not None
            prefix = prefix_of(declaration)
            words = prefix.split()
            listed = _listed(one)
            plain = one.value is None or one.value.type not in ("argument_list", "initializer_list") or bool(listed)
            if sum(name == one.name for name in _declares(_scope_of(node))) > 1:
                raise NotAlike(f"`{one.name}` hides another variable, or another hides it", node)
            unread = one.sizes and one.value is not None and not listed
            row = "auto" in words and one.value is not None and text_of(one.value).startswith("dagc::")
            if ("auto" in words and not row) or one.reference or not one.simple or not plain or unread:
                raise NotAlike(f"the declaration of `{one.name}` is not read", node)
            kept = prefix if one.pointers else f"{_unqualified(prefix)} "
            kept = f"decltype({self._text(one.value, '0')}) " if row and one.value is not None else kept
            target = field_of(node, "declarator") if node.type == "init_declarator" else node
            assert target is not None
            assert one.at is not None
            own = text_of(target).replace("const", "") if one.pointers else text_of(target)
            own = own.replace("[]", f"[{len(listed)}]") if listed else own
            own = one.name if row else own
            zero = " = {}" if _is_zero(one) else ""
            self._together(f"{indent}{kept}", own.replace(one.name, f"{one.name}[{self.lanes}]", 1) + zero)
            self.each.add(one.name)

    def _lane_text(self, node: Node) -> str:
        lane = self.names.lane
        if node.parent is None or node.parent.type != "declaration":
            return self._text(node, lane)
        one = Declarator.of(node)
        if one.name in self.each and _is_zero(one):
            return ""
        if one.name in self.each and (listed := _listed(one)):
            texts = [self._text(each, lane) if each is not None else "0" for each in listed]
            return "\n".join(f"{one.name}[{lane}][{k}] = {text};" for k, text in enumerate(texts))
        if one.name in self.each:
            return f"{one.name}[{lane}] = {self._text(one.value, lane)};" if one.value is not None else ""
        line = f"{prefix_of(node.parent)}{self._text(node, lane)};"
        self.alone[line] = prefix_of(node.parent), str(node.parent.id)
        return line

    def _stored_text(self, node: Node, change: Change, name: str) -> str:
        inner = node.named_children[0]
        if inner.type == "update_expression":
            return f"{operator_of(inner)}{name};"
        assert change.value is not None
        return f"{name} {change.how} {self._text(change.value, self.names.lane)};"

    # ---- rows ----

    def _load(self, nodes: Sequence[Node], indent: str) -> None:
        """Load the rows of the group as vectors, those first that are sure to be loaded by all lanes."""
        groups: dict[Key, list[tuple[AccessSite, int, int]]] = {}
        inner = {name for node in nodes for name in _declares(node)}
        for node in nodes:
            stored = self._stored(node)
            for at, leaving in self._reached(node):
                site = self._site(at)
                if site is None or site.place is None or not site.load or (stored is not None and at.id == stored.id):
                    continue
                if self.wide and self._is_row(site.place) and not inner & set(_words(at)):
                    offset = self._offset(site.place)
                    groups.setdefault(_key(site), []).append((site, offset, leaving))
        for sites in groups.values():
            for cluster in _clusters(sorted(sites, key=lambda s: s[1]), self.lanes):
                self._load_row(cluster, indent)

    def _load_once(self, nodes: Sequence[Node], indent: str) -> None:
        """Load what all lanes load from one place."""
        inner = {name for node in nodes for name in _declares(node)}
        inner |= {text_of(c.target) for node in nodes for at in below(node) if (c := change_of(at)) is not None}
        names: dict[str, str] = {}
        for node in nodes:
            for at, leaving in self._reached(node):
                site = self._site(at)
                if leaving or site is None or site.place is None or site.store or at.id in self.rows:
                    continue
                if self.alike.varies(at) or inner & set(_words(at)) or text_of(at).startswith(VECTOR_ACCESSES):
                    continue
                text = self._text(at)
                if text not in names:
                    names[text] = self._name(site.array)
                    self._together(f"{indent}const {self.elements[site.array]} ", f"{names[text]} = {text}")
                self.once[at.id] = names[text]

    def _load_row(self, sites: Sequence[tuple[AccessSite, int, int]], indent: str) -> None:
        v = self.lanes
        low = sites[0][1]
        base = next((o for _, o, _ in sites if (o - self.shift) % v == 0), low - (low - self.shift) % v)
        first, last = self._registers(sites, base)
        if last < first:
            return
        if not first <= 0 <= last:
            base, first, last = base + first, 0, last - first
        site, offset, _ = next((s for s in sites if s[1] == base), sites[0])
        span = f"<{v}>" if (first, last) == (0, v - 1) else f"<{v}, {first}, {last}>"
        if self.own:
            site, offset, span = self._in_part(sites, base, (first, last))
        text = self._address(site.node)
        type_ = self.elements[site.array]
        text += f" {'+' if base > offset else '-'} {abs(base - offset)}" if base != offset else ""
        row = VectorRow(self._name(site.array), base, text, first, last)
        self._together(
            f"{indent}const auto ", f"{row.name} = dagc::window{span}({text}{self._given})", f"{type_} {span}"
        )
        for each, at, _ in sites:
            self.rows[each.node.id] = row, at - base
        self._use(site)

    def _in_part(
        self, sites: Sequence[tuple[AccessSite, int, int]], base: int, span: tuple[int, int]
    ) -> tuple[AccessSite, int, str]:
        """The row of lanes of which some may take no part: the site that gives its address, with its offset, and what
        the window has. The address is that of no element before the row: an unsigned index is not below 0."""
        site, offset, _ = next((s for s in sites if s[1] >= base), (sites[0][0], base - 1, 0))
        if offset < base or any(leaving for _, _, leaving in sites):
            raise NotAlike("some lanes may load nothing of a vector", site.node)
        least, most = sites[0][1] - base, sites[-1][1] - base
        v = self.lanes
        numbers = [*span, least, most] if least or most else [*span] if span != (0, v - 1) else []
        return site, offset, f"<{', '.join(map(str, (v, *numbers)))}>"

    def _registers(self, sites: Sequence[tuple[AccessSite, int, int]], base: int) -> tuple[int, int]:
        """The elements that are worth a vector: the first and the last one. All of a vector are loaded by some lane, or
        some are and the array has the others."""
        v, row = self.lanes, self.alike.whole.get(sites[0][0].array)
        whole = multiples_in(row, self.alike) if row is not None else None
        sure = {o - base + lane for _, o, leaving in sites if leaving == 0 for lane in range(v)}
        most = {o - base + lane for _, o, leaving in sites for lane in range(v) if leaving < v}
        if not most:
            return 0, -1
        likely = min(leaving for _, _, leaving in sites)
        good = []
        for k in range((min(most) // v), max(most) // v + 1):
            own = set(range(k * v, k * v + v))
            known = len(own & sure)
            shared = whole is not None and len(own & most) > 1 and (known or len(own & most) > likely)
            if known == v or shared:
                good.append(k)
            if known < v and shared:  # some elements that no lane asks for
                self.multiples.update(dict.fromkeys(whole or ()))
        runs = [k for k in good if k - 1 not in good]
        best = max(runs, key=lambda k: _length(k, good), default=0)
        return (best * v, (best + _length(best, good)) * v - 1) if good else (0, -1)

    def _reached(self, node: Node) -> Iterator[tuple[Node, int]]:
        """The loads and stores that a statement is sure to make in all lanes, but for some that leave it out."""
        wanted = {at.id for at in self._accesses(node)}
        yield from self._reached_in(node, wanted, 0)

    def _reached_in(self, node: Node, wanted: Collection[int], leaving: int) -> Iterator[tuple[Node, int]]:
        if node.id in wanted:
            yield node, leaving
        children = list(node.named_children)
        if node.type == "conditional_expression":
            condition, then, other = (field_of(node, part) for part in ("condition", "consequence", "alternative"))
            assert condition is not None
            truth, mask = self.alike.truth(condition), self.alike.masked.get(node.id)
            children = [condition] if truth is None else [c for c in (then if truth else other,) if c is not None]
            if mask is not None:
                arm = then if then is not None and then.id == mask[0] else other
                assert arm is not None
                yield from self._reached_in(arm, wanted, leaving + mask[1])
                rest = other if arm is then else then  # taken by the lanes that leave the other one out
                yield from ((at, self.lanes) for at, _ in self._reached_in(rest, wanted, 0)) if rest is not None else ()
        elif node.type == "binary_expression" and operator_of(node) in ("&&", "||"):
            children = operands(node)[:1]
        elif node.type == "if_statement":
            children = [c for c in (field_of(node, "condition"),) if c is not None]
        elif node.type in (*LOOPS, "switch_statement", "lambda_expression", "compound_statement"):
            children = []
        for child in children:
            yield from self._reached_in(child, wanted, leaving)

    def _is_row(self, place: Poly) -> bool:
        """Whether neighbours access neighbouring elements of rows that may all begin at a vector."""
        return (
            number_of(coefficient(place, self.alike.along.place)) == 1 and multiples_in(place, self.alike) is not None
        )

    def _offset(self, place: Poly) -> int:
        return int(place.get(NUMBER, 0))

    def _name(self, array: str) -> str:
        number = self.numbers.get(array, 0)
        while (name := f"{array}_{number}") != self.names.fresh(name):
            number += 1
        self.numbers[array] = number + 1
        return name

    def _address(self, node: Node) -> str:
        """The address of what a load or store accesses, for the first lane."""
        node = without_brackets(node)
        if node.type == "call_expression":
            arguments = field_of(node, "arguments")
            assert arguments is not None
            return self._text(arguments.named_children[0])
        if node.type == "pointer_expression":
            return self._text(node.named_children[-1])
        text = self._text(node)
        return text[: -len("[0]")] if text.endswith("[0]") else f"&{text}"

    # ---- expressions ----

    def _text(self, node: Node, lane: str = "") -> str:
        """The text of a part, for the first lane or for `lane`."""
        text = edited(node.text or b"", node.start_byte, node.start_byte, node.end_byte, self._edits(node, lane))
        return re.sub(rf"\n {{0,{node.start_point[1]}}}", "\n", text)

    def _edits(self, node: Node, lane: str, without: Node | None = None) -> Iterator[tuple[int, int, str]]:
        if without is not None and node.id == without.id:
            return
        new = self._new(node, lane)
        if new is not None:
            yield node.start_byte, node.end_byte, new
            return
        for child in node.children:
            yield from self._edits(child, lane, without)

    def _new(self, node: Node, lane: str) -> str | None:
        """What a part is replaced by; None to look at its parts."""
        if lane and node.id in self.rows:
            row, element = self.rows[node.id]
            return f"{row.name}[{_sum(lane, element)}]"
        if lane and node.id in self.kept:
            return f"{self.kept[node.id]}[{lane}]"
        if node.id in self.once:
            return self.once[node.id]
        truth = self.alike.truth(node) if node.type == "binary_expression" else None
        if truth is not None:
            return str(truth).lower()
        if node.type == "binary_expression" and operator_of(node) in ("&&", "||"):
            left = [child for child in operands(node) if self.alike.truth(child) is None]
            return self._text(left[0], lane) if len(left) == 1 else None
        if node.type == "conditional_expression":
            condition, then, other = (field_of(node, part) for part in ("condition", "consequence", "alternative"))
            settled = self.alike.truth(condition) if condition is not None else None
            arm = then if settled else other
            return self._text(arm, lane) if settled is not None and arm is not None else None
        return self._place(node, lane)

    def _place(self, node: Node, lane: str) -> str | None:
        """The place along x, and the variables of lanes."""
        name = text_of(node)
        if lane and node.type in ("identifier", "type_identifier"):
            if name in self.declared:
                return f"({name} + {self._ahead(name, lane)})"
            if name in self.each:
                return f"{name}[{lane}]"
        return place_of(self.alike, node, f"{self.names.first} + {lane}" if lane else self.names.first)

    def _ahead(self, name: str, lane: str) -> str:
        """How far an index of a lane is from that of the first one."""
        one, amount = self.alike.variables[name], self.alike.indices[name]
        number = number_of(amount)
        if number is not None:
            return lane if number == 1 else f"{number} * {lane}"
        type_ = "long long" if one.declarator.pointers or one.type == "auto" else _unqualified(one.prefix)
        terms = []
        for monomial, factor in amount.items():
            names = [_as(type_, a.name) for a in monomial if isinstance(a, Var)]
            terms.append(" * ".join([*([str(factor)] if factor != 1 or not names else []), *names]))
        return f"{lane} * {terms[0]}" if len(terms) == 1 else f"{lane} * ({' + '.join(terms)})"


def multiples_in(place: Poly, alike: Neighbours) -> list[Multiple] | None:
    """What has to be a multiple of V so that an address is one but for its array, X and its number; None if nothing
    that is the same for all threads makes it one."""
    out: list[Multiple] = []
    for monomial, number in without(place, alike.along.place).items():
        names = [a.name for a in monomial if isinstance(a, Var)]
        if monomial == NUMBER or (len(names) == 1 and names[0] in alike.numbers.arrays):
            continue
        if len(names) == 1 and names[0].endswith(MOVED):
            moving = alike.numbers.moving(names[0].removesuffix(MOVED))
            for amount in moving[1] if moving is not None else ():
                each = multiples_in(amount, alike)
                if each is None or int(amount.get(NUMBER, 0)) % alike.lanes:
                    return None
                out += each
            continue
        factor = gcd(int(number), alike.lanes) if number.denominator == 1 else 0
        sizes = [name for name in names if name in alike.sizes and name not in alike.numbers.changes]
        if not factor or (factor < alike.lanes and not sizes):
            return None
        if factor < alike.lanes:
            parameters = [name for name in sizes if name in alike.parameters]
            out.append((factor, tuple(parameters or sizes)))
    return out


def needed_multiples(all_: Collection[Multiple]) -> list[Multiple]:
    """Those that do not follow from others: n * n is a multiple where n is, and not the other way round."""

    def follows(m: Multiple, other: Multiple) -> bool:
        return other != m and m[0] % other[0] == 0 and Counter(other[1]) <= Counter(m[1])

    return [m for m in all_ if not any(follows(m, other) for other in all_)]


def shown_multiples(all_: Collection[Multiple], lanes: int) -> list[str]:
    """The conditions that numbers are multiples of V, without those that follow from others."""
    out = []
    for factor, (first, *others) in needed_multiples(all_):
        words = [str(factor)] if factor > 1 else []
        words += [f"(long long){first}", *others] if others else [first]
        out.append(f"{' * '.join(words)} % {lanes} == 0")
    return out


def are_multiples(all_: Collection[Multiple], lanes: int) -> Sym:
    """The same as an expression of a launch."""
    numbers = [product_of([Const(factor), *map(Var, names)]) for factor, names in needed_multiples(all_)]
    each = [Apply(Fn.EQ, (Apply(Fn.MOD, (number, Const(lanes))), Const(0))) for number in numbers]
    return reduce(lambda a, b: Apply(Fn.AND, (a, b)), each) if each else ALWAYS


def place_of(alike: Neighbours, node: Node, value: str) -> str | None:
    """The text of X, given as `value`, in the place of an expression that is X; None for others. Where there is no such
    expression, the kernel is read as one of one block along x."""
    along = alike.along
    if along.counter:
        return f"({value})" if along.in_text(node) and value != along.counter else None
    if along.block and node.type in ("binary_expression", "field_expression") and _is_x(alike, node):
        above = node.parent
        declared = above is not None and above.type == "init_declarator" and "auto" not in _declared_as(above)
        return value if declared else _as(_type_of(node), value)
    if along.in_text(node):
        return f"unsigned({value})" if text_of(node) == along.place else "0u"
    return None


def _as(type_: str, value: str) -> str:
    """A number converted to a type."""
    return f"{type_}({value})" if type_.isidentifier() else f"({type_})({value})"


def _unqualified(prefix: str) -> str:
    return " ".join(w for w in prefix.split() if w not in ("const", "constexpr"))


def _declared_as(declarator: Node) -> list[str]:
    above = declarator.parent
    return prefix_of(above).split() if above is not None else []


def _is_x(alike: Neighbours, node: Node) -> bool:
    """Whether an expression that uses the built-in variables is X."""
    if not any(map(alike.along.in_text, below(node))):
        return False
    value = alike.numbers.polynomial(node)
    if value is None or alike.along.block not in names_of(value):
        return False
    return without(value, alike.along.block) == alike.along.poly


def _type_of(node: Node) -> str:
    casts = [text_of(field_of(at, "type")) for at in below(node) if at.type == "cast_expression"]
    calls = [text_of(field_of(at, "function")) for at in below(node) if at.type == "call_expression"]
    return next((t for t in (*casts, *calls) if t.isidentifier() or " " in t), "unsigned")


def _change(node: Node) -> Change | None:
    """The assignment that a statement is."""
    inner = [c for c in node.named_children if c.type != "comment"] if node.type == "expression_statement" else []
    return change_of(inner[0]) if len(inner) == 1 else None


def _listed(declared: Declarator) -> list[Node | None]:
    """What the elements of an array of one dimension begin with, None for 0: `float r[4] = {a, b}`; [] for others."""
    value, sizes = declared.value, declared.sizes
    if value is None or value.type != "initializer_list" or len(sizes) != 1:
        return []
    given = [each for each in value.named_children if each.type != "comment"]
    size = text_of(sizes[0]) if sizes[0] is not None else str(len(given))
    if not size.isdecimal() or int(size) > _MOST_LISTED or any(each.type in _NOT_LISTED for each in given):
        return []
    return [*given, *[None] * (int(size) - len(given))]


def _is_divisor(node: Node | None) -> bool:
    """Whether it is a number that is not 0."""
    return node is not None and node.type == "number_literal" and not _ZERO.fullmatch(text_of(node))


def _is_zero(declared: Declarator) -> bool:
    """Whether a number, or all elements of an array, are 0 at first."""
    value, listed = declared.value, _listed(declared)
    if value is None or declared.pointers:
        return False
    return not any(listed) if listed else not declared.sizes and bool(_ZERO.fullmatch(text_of(value)))


def _inside(nodes: Sequence[Node]) -> list[Node]:
    """The statements of a block, or the one that stands for it."""
    return [c for n in nodes for c in (n.named_children if n.type == "compound_statement" else [n])]


def _leaves(at: Node, node: Node) -> bool:
    """Whether a statement below a node goes on outside of it."""
    if at.type in ("return_statement", "goto_statement", "labeled_statement"):
        return True
    if at.type not in _LEAVING:
        return False
    ends = (*LOOPS, "switch_statement") if at.type == "break_statement" else tuple(LOOPS)
    above = at
    while above.id != node.id and above.type not in ends and above.parent is not None:
        above = above.parent
    return above.type not in ends


def _declares(node: Node) -> Iterator[str]:
    for at in below(node):
        if at.type == "declaration":
            yield from (Declarator.of(d).name for d in declarators(at))
    if node.parent is not None and node.parent.type == "declaration":
        yield Declarator.of(node).name


def _scope_of(declarator: Node) -> Node:
    at = declarator
    while at.parent is not None and at.type not in ("compound_statement", "for_statement"):
        at = at.parent
    return at


def _around(node: Node) -> set[int]:
    """The blocks around a node."""
    out, at = set[int](), node.parent
    while at is not None:
        out |= {at.id} if at.type == "compound_statement" else set()
        at = at.parent
    return out


def _statement_of(node: Node) -> Node:
    """The statement that a part of an expression is surely executed with, else the node."""
    at = node
    while at.parent is not None and not at.type.endswith(("statement", "declaration")):
        if at.parent.type == "conditional_expression" or operator_of(at.parent) in ("&&", "||"):
            return node
        at = at.parent
    return at


def _used_after(name: str, declarator: Node, last: Node) -> bool:
    """Whether a variable is used after a statement in the scope of its declaration."""
    return any(at.start_byte >= last.end_byte and text_of(at) == name for at in below(_scope_of(declarator)))


def _words(node: Node) -> Iterator[str]:
    return (text_of(at) for at in below(node) if at.type == "identifier")


def _key(site: AccessSite) -> Key:
    assert site.place is not None
    place = {m: c for m, c in site.place.items() if m != NUMBER}
    return site.array, tuple(sorted(place.items(), key=repr))


def _clusters(sites: Sequence[tuple[AccessSite, int, int]], lanes: int) -> Iterator[list[tuple[AccessSite, int, int]]]:
    """Sites of one row whose elements touch."""
    out: list[tuple[AccessSite, int, int]] = []
    for one in sites:
        if out and one[1] - out[-1][1] > lanes:
            yield out
            out = []
        out.append(one)
    if out:
        yield out


def _length(first: int, of: Collection[int]) -> int:
    length = 0
    while first + length in of:
        length += 1
    return length


def _sum(name: str, number: int) -> str:
    return name if number == 0 else f"{name} {'+' if number > 0 else '-'} {abs(number)}"

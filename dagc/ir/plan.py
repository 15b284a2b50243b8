"""`Plan`: one traversal with every other choice made. All that emission needs, and what `plan.json` keeps.

`plan.json` holds the texts of the program, not its graph: parsing and lowering them again gives the same graph, which
the program's hash confirms. So the schema stays small and does not follow the compiler's inner types.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dagc.base.errors import UsageError
from dagc.ir.enums import ElementType
from dagc.ir.graph import Graph
from dagc.ir.launching import Chooser, OpenTunable
from dagc.ir.program import Program, Value
from dagc.ir.traversal import Traversal, parse_traversal, traversal_text

SCHEMA_VERSION = 1


class Target(Enum):
    """What the emitted code runs on."""

    CUDA = "cuda"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Plan:
    """`arch` is nvcc's name of the GPU architecture (`sm_90`); it means nothing on the host target.

    The values of `open` tunables are settled when the program runs: by `chooser`, where there is one.
    """

    graph: Graph
    traversal: Traversal
    target: Target
    arch: str = "sm_90"
    open: tuple[OpenTunable, ...] = ()
    chooser: Chooser | None = None

    @property
    def program(self) -> Program:
        return self.graph.program

    @property
    def capture(self) -> bool:
        """Are stretches of GPU ops captured in CUDA graphs?"""
        return any(d.name == "capture" and d.chosen is True for d in self.program.decisions)

    @property
    def decisions(self) -> tuple[tuple[str, Value], ...]:
        """Every decision of the program with the value chosen."""
        made = {d.name: d.chosen for d in self.program.decisions}
        made |= {"transport": self.graph.transport.value, "staging": self.graph.staging.value}
        made["streams"] = self.graph.streams
        return tuple(sorted(made.items()))


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """What `plan.json` says: enough to build the same graph again. `traversal` is text."""

    path: str
    sources: tuple[tuple[str, str], ...]
    params: tuple[tuple[str, Value], ...]
    decisions: tuple[tuple[str, Value], ...]
    target: Target
    arch: str
    program_hash: str
    traversal: str


# ---- the program's hash ---------------------------------------------------------------------

_TOKENS = re.compile(
    r'"""(?P<code>.*?)"""|(?P<string>"(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/|(?P<space>\s+)|(?P<other>.)', re.DOTALL
)


def canonical_text(text: str) -> str:
    """A program's text without comments and layout; code and strings are kept as they are."""
    out: list[str] = []
    for match in _TOKENS.finditer(text):
        if match["code"] is not None or match["string"] is not None or match["other"] is not None:
            out.append(match.group())
        elif out and out[-1] != " ":
            out.append(" ")
    return "".join(out).strip()


def _plain(value: Value | ElementType) -> Value:
    return value.value if isinstance(value, ElementType) else value


def program_hash(program: Program) -> str:
    """16 hexadecimal digits over the texts and the values of the parameters.

    Comments, layout and open decisions do not change it: records of one program belong together.
    """
    texts = [canonical_text(source.text) for _, source in sorted(program.sources.items())]
    params = [[p.name, _plain(p.value)] for p in program.params]
    return hashlib.sha256(json.dumps([texts, params]).encode()).hexdigest()[:16]


# ---- plan.json ------------------------------------------------------------------------------


def plan_to_json(plan: Plan) -> str:
    """The text of `plan.json`. Raises nothing."""
    program = plan.program
    record = {
        "schema_version": SCHEMA_VERSION,
        "program": program.name,
        "program_hash": program_hash(program),
        "path": program.path,
        "target": plan.target.value,
        "arch": plan.arch,
        "params": {p.name: _plain(p.value) for p in program.params},
        "decisions": dict(plan.decisions),
        "traversal": traversal_text(plan.traversal, plan.graph),
        "sources": {path: source.text for path, source in sorted(program.sources.items())},
    }
    return json.dumps(record, indent=2) + "\n"


def plan_inputs(text: str, name: str = "plan.json") -> PlanInputs:
    """Read `plan.json`. Raises UsageError, naming `name`, where it is not a plan of this schema."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name}: not JSON: {error}", "write it again with `dagc compile`") from None
    version = record.get("schema_version") if isinstance(record, dict) else None
    if version != SCHEMA_VERSION:
        found = "no schema_version" if version is None else f"schema_version {version!r}"
        raise UsageError(f"{name}: {found}, expected {SCHEMA_VERSION}", "write it again with `dagc compile`")
    try:
        return PlanInputs(
            path=_typed(record, "path", str),
            sources=_texts(record),
            params=_values(record, "params"),
            decisions=_values(record, "decisions"),
            target=Target(_typed(record, "target", str)),
            arch=_word(record, "arch"),
            program_hash=_word(record, "program_hash"),
            traversal=_typed(record, "traversal", str),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{name}: not a plan: {error}", "write it again with `dagc compile`") from None


def _typed(record: dict[str, Any], key: str, kind: type) -> Any:
    if key not in record:
        raise KeyError(f"no `{key}`")
    if not isinstance(record[key], kind):
        raise TypeError(f"`{key}` is not a {kind.__name__}")
    return record[key]


def _values(record: dict[str, Any], key: str) -> tuple[tuple[str, Value], ...]:
    found = _typed(record, key, dict)
    if not all(isinstance(value, bool | int | float | str) for value in found.values()):
        raise TypeError(f"a value of `{key}` is no number, text or truth value")
    return tuple(found.items())


def _texts(record: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    found = _typed(record, "sources", dict)
    if not all(isinstance(text, str) for text in found.values()):
        raise TypeError("a text of `sources` is not a str")
    return tuple(found.items())


def _word(record: dict[str, Any], key: str) -> str:
    """What becomes a word of a command line, or is shown."""
    word: str = _typed(record, key, str)
    if not re.fullmatch(r"[A-Za-z0-9_]{1,64}", word):
        raise ValueError(f"`{key}` is not one word")
    return word


def plan_from_json(text: str, graph: Graph, name: str = "plan.json") -> Plan:
    """The plan over `graph`, which was built from `plan_inputs(text)`.

    Raises UsageError where the text is not a plan or was written for another program.
    """
    inputs = plan_inputs(text, name)
    actual = program_hash(graph.program)
    if actual != inputs.program_hash:
        raise UsageError(
            f"{name}: written for program {inputs.program_hash}, this is {actual}",
            "compile the program again, or use the text that the plan carries",
        )
    return Plan(graph, parse_traversal(inputs.traversal, graph, name), inputs.target, inputs.arch)

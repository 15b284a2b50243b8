"""Plan and plan.json."""

from __future__ import annotations

import json

import pytest

from dagc.base.errors import UsageError
from dagc.base.source import Source
from dagc.emit import emit
from dagc.ir.plan import PlanInputs, Target, canonical_text, plan_from_json, plan_inputs, plan_to_json, program_hash
from dagc.ir.program import Graph
from dagc.lang.lower import lower, parse_with_includes
from dagc.passes import build_graph
from tests.emit.build import SPMV, graph, plan


def rebuild(inputs: PlanInputs) -> Graph:
    """The graph of the texts and choices in a plan alone."""
    source = Source(inputs.path, inputs.sources[inputs.path])
    defines = inputs.params | inputs.decisions
    return build_graph(lower(parse_with_includes(source), defines))


def test_a_plan_comes_back_from_its_own_text() -> None:
    made = plan(SPMV, Target.CUDA, transport="mpi_cuda", rows="2000", **{"yl.variant": "warp_per_row"})
    text = plan_to_json(made)
    again = plan_from_json(text, rebuild(plan_inputs(text)))
    assert again.traversal == made.traversal
    assert again.decisions == made.decisions
    assert emit(again) == emit(made)


def test_decisions_are_all_there() -> None:
    made = dict(plan(SPMV, Target.HOST).decisions)
    assert made["transport"] == "mpi_host"
    assert made["staging"] == "fused"
    assert made["streams"] == 2
    assert made["yl.block"] == 64


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{\n", "^p.json:2:1: not JSON: expecting property name"),
        ("[]", "no schema_version"),
        ('{"schema_version": 2}', "schema_version 2, expected 1"),
        ('{"schema_version": 1}', "not a plan"),
    ],
)
def test_what_is_no_plan(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan_inputs(text, "p.json")


@pytest.mark.parametrize(("key", "value"), [("target", "tpu"), ("sources", []), ("traversal", None)])
def test_broken_fields(key: str, value: object) -> None:
    record = json.loads(plan_to_json(plan(SPMV, Target.HOST)))
    record[key] = value
    with pytest.raises(UsageError, match="not a plan"):
        plan_inputs(json.dumps(record))


def test_a_wrong_entry_is_named_where_it_stands_in_the_plan() -> None:
    made = plan(SPMV, Target.HOST)
    text = plan_to_json(made).replace("yl@s0", "yk@s0", 1)
    line = next(number for number, line in enumerate(text.split("\n"), 1) if "yk@s0" in line)
    column = text.split("\n")[line - 1].index("yk@s0") + 1
    with pytest.raises(UsageError, match=f"^p.json:{line}:{column}: `yk@s0`: no op has this name"):
        plan_from_json(text, made.graph, "p.json")


def test_a_plan_of_another_program_is_refused() -> None:
    text = plan_to_json(plan(SPMV, Target.HOST))
    with pytest.raises(UsageError, match="written for program"):
        plan_from_json(text, graph(SPMV, rows="3000"))


def test_layout_and_comments_do_not_change_the_hash() -> None:
    program = graph(SPMV).program
    source = program.sources[program.path]
    other = Source(program.path, "// a new comment\n" + source.text.replace("  gpu {", "    gpu   {"))
    assert program_hash(lower(parse_with_includes(other), {})) == program_hash(program)
    commented = Source(program.path, source.text.replace("a[i] + b[i]", "a[i] /* x */\n+ b[i] // y\n"))
    assert program_hash(lower(parse_with_includes(commented), {})) == program_hash(program)
    changed = Source(program.path, source.text.replace("a[i] + b[i]", "a[i] - b[i]"))
    assert program_hash(lower(parse_with_includes(changed), {})) != program_hash(program)


def test_canonical_text_has_no_comments_but_keeps_strings() -> None:
    text = 'a  /* x */ b // c\n"d  // e"  """ f  + "x // y"// g """'
    assert canonical_text(text) == 'a b "d  // e" """f + "x // y""""'

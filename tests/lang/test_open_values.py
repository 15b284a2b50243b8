"""`check` reads a program for all values of what is open: advice holds for each of them, and errors say for which."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from dagc.base.errors import Diagnostic, Severity
from dagc.base.source import Source
from dagc.lang.lower import analyse, parse_with_includes
from dagc.passes import Analysis, analysis_of, graph_with_diagnostics
from tests.tiers import examples

BROKEN = Path(__file__).parent / "broken"
KERNEL = (
    "kernel cp(y: out i32[8], x: in i32[8]) "
    '{ gpu { launch grid(1) block(8) cuda """ y[threadIdx.x] = x[threadIdx.x]; """ } }'
)
HEAD = f"""program p
array x : i32[8] in
array y : i32[8] out
{KERNEL}
"""


def checked(text: str, **defines: object) -> Analysis:
    return analysis_of(Source("p.dag", text), defines)


def found(text: str, **defines: object) -> list[tuple[str, str]]:
    return [(d.code, d.message) for d in checked(text, **defines).diagnostics]


CHUNKS = """
tune chunks in {1, 2, 4, 8}
for k in {1, 2, 4, 8} { array tmp[k] : i32[8] }
dag {
  one : gpu cp(tmp[chunks], x)
  two : gpu cp(y, tmp[chunks])
}
"""
KINDS = {
    "array of another value": CHUNKS,
    "array of another iteration": """
for k in 0 .. 3 { array t[k] : i32[8] }
dag { a : gpu cp(t[1], x)  b : gpu cp(y, t[1]) }
""",
    "array in a branch": """
tune wide in {false, true}
array t : i32[8]
if wide {
  kernel more(y: out i32[8], x: in i32[8]) { gpu { launch grid(1) block(8) cuda \"\"\" y[threadIdx.x] = x[0]; \"\"\" } }
}
dag { if wide { a : gpu more(t, x)  b : gpu more(y, t) } else { c : gpu cp(y, x) } }
""",
    "array in a branch of a param": """
param way : i32 = 0
array t : i32[8]
dag { if way == 1 { a : gpu cp(t, x)  b : gpu cp(y, t) } else { c : gpu cp(y, x) } }
""",
    "param in a choice": """
param way : i32 = 0
param p : i32 = 4
array t : i32[way == 0 ? 8 : p]
dag { a : gpu cp(t, x)  b : gpu cp(y, t) }
""",
    "param with values": """
param last : bool = false
array t : i32[8]
dag { a : gpu cp(t, x)  if last { b : gpu cp(y, t) } else { c : gpu cp(y, x) } }
""",
    "op of some iterations": """
for k in 0 .. 3 { array t[k] : i32[8] }
dag { for k in 0 .. 3 { a[k] : gpu cp(t[k], x) }  b : gpu cp(y, t[1]) }
""",
    "dag of a value": """
tune way in {0, 1}
array t : i32[8]
dag sub(a: out i32[8], b: in i32[8]) { c : gpu cp(a, b) }
dag { if way == 0 { c : gpu cp(y, x) } else { a : dag sub(t, x)  b : gpu cp(y, t) } }
""",
    "edge of some iterations": """
for k in 0 .. 2 { array t[k] : i32[8] }
dag {
  edges explicit
  for k in 0 .. 2 { a[k] : gpu cp(t[k], x) }
  b : gpu cp(y, t[0])
  for k in 0 .. 2 { a[k] -> b }
  a[0] -> b
}
""",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_another_value_uses_is_not_reported(kind: str) -> None:
    said = found(HEAD + KINDS[kind])
    if kind == "edge of some iterations":  # the single edge can be dropped
        assert [code for code, _ in said] == ["duplicate-edge"]
    else:
        assert said == []


def test_an_op_that_fills_constant_memory_is_used() -> None:
    text = '''program p
array x : i32[8] on host in
array d : i32[8]
array y : i32[8] out
array t : i32[8]
cuda """ __constant__ int c[8]; __device__ int total; """
kernel fill(t: out i32[8], x: in i32[8]) {
  cpu { cpp """ cudaMemcpyToSymbol(c, x, 8 * sizeof(int)); for (int i = 0; i < 8; ++i) t[i] = x[i]; """ }
}
kernel note(x: in i32[8]) { cpu { cpp """ std::printf("%d\\n", x[0]); """ } }
kernel add(y: out i32[8]) { gpu { launch grid(1) block(8) cuda """ y[threadIdx.x] = c[threadIdx.x]; """ } }
array h : i32[8] on host
dag {
  a : cpu fill(h, x)
  b : gpu add(y)
  c : cpu note(x)
}
'''
    codes = [code for code, _ in found(text)]
    assert "unreachable-op" not in codes
    assert codes.count("unused-array") == 2  # d and t


def test_an_op_of_which_a_variant_fills_constant_memory_is_used() -> None:
    fill = """
cuda \"\"\" __device__ int c[8]; \"\"\"
array t : i32[8]
kernel fill(t: out i32[8], x: in i32[8]) {
  gpu plain { launch grid(1) block(8) cuda \"\"\" t[threadIdx.x] = x[threadIdx.x]; \"\"\" }
  gpu also { launch grid(1) block(8) cuda \"\"\" t[threadIdx.x] = c[threadIdx.x] = x[threadIdx.x]; \"\"\" }
}
kernel add(y: out i32[8]) { gpu { launch grid(1) block(8) cuda \"\"\" y[threadIdx.x] = c[threadIdx.x]; \"\"\" } }
dag { a : gpu fill(t, x)  b : gpu add(y) }
"""
    text = HEAD.replace(KERNEL, "") + fill
    assert "unreachable-op" not in [code for code, _ in found(text)]
    alone = text.replace("c[threadIdx.x] = x", "x")
    assert "unreachable-op" in [code for code, _ in found(alone)]


def test_a_formal_of_a_function_is_renamed_not_dropped(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "k.cu").write_text(
        "__global__ void cp(int* y, const int* x, int n) { if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x]; }"
    )
    path = tmp_path / "p.dag"
    path.write_text("""program p
param n : i32 = 8
array x : i32[8] in
array y : i32[8] out
kernel cp(y: out i32[8], x: in i32[8], n: i32) { gpu { launch grid(1) block(8) cuda cp from "k.cu" } }
dag { a : gpu cp(y, x, n) }
""")
    (only,) = analysis_of(Source.read(path)).diagnostics
    assert (only.code, only.help) == ("shadowed-name", "choose another name")


def test_an_error_of_one_value_says_for_which() -> None:
    text = HEAD + CHUNKS.replace("for k in {1, 2, 4, 8}", "for k in {1, 4, 8}")
    assert found(text) == 2 * [("bad-index", "there is no `tmp[2]` (where chunks = 2)")]
    assert found(text, chunks=4) == []
    assert found(text, chunks=2) == 2 * [("bad-index", "there is no `tmp[2]`")]
    default = HEAD + CHUNKS.replace("for k in {1, 2, 4, 8}", "for k in {2, 4, 8}")
    assert found(default) == 2 * [("bad-index", "there is no `tmp[1]` (where chunks = 1)")]
    two = (
        HEAD
        + """
tune a in {0, 1}
tune b in {0, 1}
dag { if a == 1 && b == 1 { c : gpu cp(y, z) } else { d : gpu cp(y, x) } }
"""
    )
    assert [message.partition("(")[2] for _, message in found(two)] == ["where a = 1, b = 1)"]
    over = HEAD + "param n : i64 = 8 over {4, 8}\narray t : i32[n]\ndag { a : gpu cp(t, x)  b : gpu cp(y, t) }"
    assert {message.rpartition("(")[2] for _, message in found(over)} == {"where n = 4)"}


def test_values_that_a_require_excludes_are_left_out() -> None:
    text = HEAD + CHUNKS.replace("for k in {1, 2, 4, 8}", "require chunks != 2\nfor k in {1, 4, 8}")
    assert found(text) == []


def test_what_a_transport_cannot_do_is_a_note() -> None:
    text = (BROKEN / "ungroupable.places.dag").read_text()
    (found,) = checked(text.replace("let transport = nccl\n", "")).diagnostics
    assert (found.code, found.severity) == ("ungroupable", Severity.NOTE)
    assert found.message.endswith("(where transport = nccl)")


def test_the_bound_is_said() -> None:
    tunes = "".join(f"tune a{i} in {{0, 1, 2, 3}}\n" for i in range(6))
    test = " && ".join(f"a{i} == 3" for i in range(6))
    ops = f"if {test} {{ a : gpu cp(t, x) b : gpu cp(y, t) }} else {{ c : gpu cp(y, x) }}"
    text = f"{HEAD}{tunes}array t : i32[8]\narray z : i32[8]\ndag {{ {ops} }}"
    done = checked(text)
    assert "of 4096 combinations of a0, a1, a2, a3, a4, a5" in done.left_out
    assert [d.message for d in done.diagnostics] == ["array `z` is never used"]  # its name stands nowhere else


# ---- advice is obeyed ------------------------------------------------------------------------

INDEX = ("a", "b", "0", "1", "(a + b) % 2", "1 - a")


@st.composite
def programs(draw: st.DrawFn) -> str:
    """One declaration or op in a line. Families of arrays and ops in loops and branches, over two tunes and a param."""
    test = st.sampled_from(["a == 0", "b == 1", "a == b", "way == 0", "flag", "a + b == 2"])
    lines = ["program p", "array x : i32[8] in", "array y : i32[8] out", KERNEL, "tune a in {0, 1}"]
    lines += ["tune b in {0, 1}", f"param way : i32 = {draw(st.integers(0, 1))}", "param flag : bool = false"]
    lines += [f"tune c in {{0, {draw(st.integers(1, 2))}}}", "param spare : i32 = 1"]
    lines += [f"for k in 0 .. 2 {{ array f[k] : i32[{draw(st.sampled_from(['8', '8 * spare', '8 + c - c']))}] }}"]
    names = ["t", "u", "v"]
    for name in names:
        array = f"array {name} : i32[8]"
        lines.append(f"if {draw(test)} {{ {array} }}" if draw(st.integers(0, 5)) == 0 else array)
    lines.append("dag {")
    written: list[str] = ["x"]
    for number in range(draw(st.integers(1, 5))):
        source = draw(st.sampled_from(written))
        target = draw(st.sampled_from([*names, *(f"f[{i}]" for i in INDEX)]))
        op = f"o{number} : gpu cp({target}, {source})"
        form = draw(st.integers(0, 5))
        if form == 0:
            op = f"if {draw(test)} {{ {op} }}"
        elif form == 1 and source != "f[k]":
            op = f"for k in 0 .. 2 {{ o{number}[k] : gpu cp(f[k], {source}) }}"
            written += ["f[0]", "f[1]"]
        elif target != source:
            written.append(target)
        lines.append(op)
    return "\n".join([*lines, f"last : gpu cp(y, {draw(st.sampled_from(written))})", "}", ""])


VALUES = [
    dict(zip(("a", "b", "c", "flag"), each, strict=True)) for each in product((0, 1), (0, 1), (0, 1, 2), (False, True))
]


def errors(text: str, values: Mapping[str, object]) -> list[Diagnostic]:
    """Of the program for these values, of those that it has."""
    known = {n: v for n, v in values.items() if f"tune {n} in" in text or f"param {n} :" in text}
    if known.get("c", 0) != 0 and f"tune c in {{0, {known['c']}}}" not in text:
        return []
    lowered = analyse(parse_with_includes(Source("p.dag", text)), known)  # type: ignore[arg-type]
    said = lowered.diagnostics
    if lowered.program is not None:
        said = graph_with_diagnostics(lowered.program)[1]
    return [d for d in said if d.severity is Severity.ERROR]


@settings(max_examples=examples(20), deadline=None)
@given(programs())
def test_advice_can_be_obeyed_for_every_value(text: str) -> None:
    done = checked(text)
    wrong = [d for d in done.diagnostics if d.severity is Severity.ERROR]
    for values in VALUES:
        bad = errors(text, values)
        assert wrong or not bad, values  # an error of some values is found
    assume(not wrong)
    lines = text.split("\n")
    dropped = {text.count("\n", 0, d.span.start) for d in done.diagnostics}
    event(f"{len(dropped)} lines dropped")
    left = "\n".join(line for number, line in enumerate(lines) if number not in dropped)
    for values in VALUES:
        assert errors(left, values) == [], (values, [lines[n] for n in dropped])

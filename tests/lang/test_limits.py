"""Texts that grow beyond reason are answered before they are expanded, in little memory."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import Severity, UsageError
from dagc.base.source import LARGEST
from dagc.lang.parse import MOST_WORDS
from tests.passes.text import edges

HEAD = """program many
param rows : i64 = 10
array a : f32[rows] inout
kernel k(a: inout f32[n], n: i64) { gpu { launch grid(1) block(32) cuda \"\"\" \"\"\" } }
"""
CHECK = """
import re, sys
from dagc import api
found = api.check(sys.argv[1])
peak = re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())
print(found.errors, int(peak[1]) >> 10)
print(*(d.message for d in found.diagnostics), sep="\\n")
"""


def check(tmp_path: Path, text: str) -> tuple[int, int, str]:
    """Errors, peak memory in MiB, and messages, of a process of its own. Far slower than meant, it is ended."""
    path = tmp_path / "many.dag"
    path.write_text(text)
    command = [sys.executable, "-c", CHECK, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    first, _, rest = done.stdout.partition("\n")
    errors, memory = map(int, first.split())
    return errors, memory, rest


def doubling(levels: int) -> str:
    dags = [HEAD, "dag d0(a: inout f32[rows]) { o : gpu k(a, rows) }\n"]
    dags += [f"dag d{i + 1}(a: inout f32[rows]) {{ x : dag d{i}(a) y : dag d{i}(a) }}\n" for i in range(levels)]
    return "".join([*dags, f"dag {{ z : dag d{levels}(a) }}\n"])


@pytest.mark.parametrize(
    ("text", "message", "where"),
    [
        (
            HEAD + "dag { for i in 0..1000, j in 0..1000, l in 0..1000 { o[i,j,l] : gpu k(a, rows) } }",
            "this loop expands to 1000000000 ops, more than 20000",
            "i in 0..1000",
        ),
        (
            HEAD + "dag { for i in 0..9 { p[i] : gpu k(a, rows) } for i in 0..200 { for j in 0..101 {"
            " if rows > 3 { o[i,j] : gpu k(a, rows) } else { for z in 0..100000 { q[i,j,z] : gpu k(a, rows) } } } } }",
            "this loop expands to 20200 ops, more than 20000",
            "i in 0..200",
        ),
        (doubling(30), "this call of `d15` expands to 32768 ops, more than 20000", "x"),
    ],
    ids=["loops", "branch", "compounds"],
)
def test_ops_are_counted_before_they_are_made(tmp_path: Path, text: str, message: str, where: str) -> None:
    path = tmp_path / "many.dag"
    path.write_text(text)
    (found,) = api.check(path).diagnostics
    assert (found.code, found.message) == ("too-many-ops", message)
    assert text[found.span.start : found.span.end] == where


@pytest.mark.parametrize("again", ["o[i] : gpu k(a, rows)", "o[i] : gpu k(a, rows) if i > 0 { o[i] -> o[i - 1] }"])
def test_a_loop_whose_length_is_not_known_before_is_stopped(tmp_path: Path, again: str) -> None:
    path = tmp_path / "many.dag"
    path.write_text(HEAD + "dag { for i in 0..1000 { for j in i..1000 { o[i,j] : gpu k(a, rows) } } }")
    (found,) = api.check(path).diagnostics
    assert found.message == "loops and compounds expand to more than 20000 ops"


def test_a_chain_of_10_000_ops(tmp_path: Path) -> None:
    errors, memory, _ = check(tmp_path, HEAD + "dag { for i in 0..10000 { o[i] : gpu k(a, rows) } }")
    assert errors == 0
    assert memory < 200


def test_10_000_ops_on_slices_of_their_own_against_text_order(tmp_path: Path) -> None:
    """Every op touches another slice; the edges run from the last to the first."""
    text = HEAD.replace("f32[rows] inout", "f32[10000] inout")
    text += "dag { for i in 0..10000 { o[i] : gpu k(a[i .. i + 1], 1) } for i in 1..10000 { o[i] -> o[i - 1] } }"
    errors, memory, _ = check(tmp_path, text)
    assert errors == 0
    assert memory < 200


@pytest.mark.thorough
def test_many_readers_between_writers_of_a_slice(tmp_path: Path) -> None:
    text = HEAD + "array b : f32[rows] inout\nkernel r(a: inout f32[n], b: in f32[n], n: i64)"
    text += ' { gpu { launch grid(1) block(32) cuda """ """ } }\n'
    text += "dag { for i in 0..4000 { r[i] : gpu r(b, a, rows) w[i] : gpu k(a[0 .. 1], 1) } }"
    errors, _, messages = check(tmp_path, text)
    assert (errors, messages.strip()) in (
        (0, ""),
        (1, "array `a` has more than 3000000 pairs of accesses that conflict"),
    )


def test_many_slices_with_bounds_that_are_scalars(tmp_path: Path) -> None:
    text = HEAD.replace("f32[rows]", "f32[*]") + "scalar m : i64\n"
    text += "dag { for i in 0..1500 { o[i] : gpu k(a[m * 3 + i .. m * 3 + i + 1], 1) } }"
    errors, _, messages = check(tmp_path, text)
    assert (errors, messages.splitlines()[-1]) == (1, "array `a` has 1500 slices, more than can be compared")


def test_the_slices_of_all_arrays_together_have_a_limit(tmp_path: Path) -> None:
    text = HEAD + "".join(f"array b{k} : f32[*] inout\n" for k in range(3)) + "scalar m : i64\ndag {"
    text += "".join(f"for i in 0..500 {{ o{k}[i] : gpu k(b{k}[m * 3 + i .. m * 3 + i + 1], 1) }}\n" for k in range(3))
    path = tmp_path / "many.dag"
    path.write_text(text + "}")
    errors = [d.message for d in api.check(path).diagnostics if d.severity is Severity.ERROR]
    assert errors == ["array `b2` has 500 slices, more than can be compared"]


def test_the_messages_of_all_exchanges_together_have_a_limit(tmp_path: Path) -> None:
    text = HEAD + "array b, c : f32[*] out\nscalar m : i32\ndag {"
    text += "".join(
        f"x{k} : mpi exchange {{ for i in 0..300 {{ p[i] : send a to m recv b[m + i .. m + i + 1] from m }} }}\n"
        for k in range(8)
    )
    path = tmp_path / "many.dag"
    path.write_text(text + "}")
    errors = {d.message for d in api.check(path).diagnostics if d.severity is Severity.ERROR}
    assert "the messages of exchanges use too many slices of `b` to compare" in errors


@pytest.mark.parametrize("text", ["}", "}\nparam\n", '"""x"""\n'])
def test_a_text_of_one_word(tmp_path: Path, text: str) -> None:
    errors, memory, _ = check(tmp_path, text * (LARGEST // len(text)))
    assert errors >= 1
    assert memory < 300


@pytest.mark.parametrize("sign", [";", "let x = 1+1+1+1\n", "a->b "])
def test_a_text_of_too_many_words_is_not_parsed(tmp_path: Path, sign: str) -> None:
    path = tmp_path / "many.dag"
    path.write_text("program many // not counted\n" + sign * (LARGEST // len(sign) - 40))
    (found,) = api.check(path).diagnostics
    assert (found.code, found.message) == ("too-large", f"more than {MOST_WORDS} tokens")
    path.write_text("program many " + "/**/" * 2000)
    assert "too-large" not in {found.code for found in api.check(path).diagnostics}


def test_a_text_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "many.dag"
    path.write_text("}" * (LARGEST + 1))
    with pytest.raises(UsageError, match="larger than 512 KiB"):
        api.check(path)


def test_included_texts_count_too(tmp_path: Path) -> None:
    (tmp_path / "more.dag").write_text("// " + "x" * (LARGEST - 100) + "\n")
    (tmp_path / "many.dag").write_text('program many\ninclude "more.dag"\n// ' + "x" * 200 + "\n")
    found = api.check(tmp_path / "many.dag").diagnostics
    assert ("too-large", "with `more.dag` the texts of the program are larger than 512 KiB") in [
        (d.code, d.message) for d in found
    ]


def test_files_of_code_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "large.cu").write_text(" " * (LARGEST + 1))
    (tmp_path / "loop.cu").symlink_to("loop.cu")
    (tmp_path / "k.cu").write_text("int f();\n")
    found = []
    for named in ('f from "large.cu"', 'f from "loop.cu"', 'int from "k.cu"'):
        kernel = f"kernel k(x: out f32[n], n: i64) {{ gpu {{ launch grid(1) block(1) cuda {named} }} }}"
        text = f"program a\nparam m : i64 = 1\narray x : f32[m] out\n{kernel}\ndag {{ o : gpu k(x, m) }}\n"
        (tmp_path / "a.dag").write_text(text)
        first = api.check(tmp_path / "a.dag").diagnostics[0]
        found.append((first.message, first.help))
    assert found == [
        (
            "cannot read `large.cu`: larger than 512 KiB",
            "leave out what the program does not use; name compiled code with `link`",
        ),
        ("cannot read `loop.cu`: Too many levels of symbolic links", "put the file in the place of the link"),
        ("`k.cu` has no function `int`", "name a function of `k.cu`"),
    ]


def test_of_many_findings_the_errors_are_shown(tmp_path: Path) -> None:
    names = ", ".join(f"b{i}" for i in range(3000))
    path = tmp_path / "many.dag"
    path.write_text(HEAD + f"array {names} : f32[rows] in\ndag {{ o : gpu k(a, rows) }}\n")
    found = api.check(path)
    wrong = replace(found.diagnostics[2500], severity=Severity.ERROR, code="one", message="wrong")
    text = api.Checked((*found.diagnostics, wrong), found.sources).render()
    assert text.count("[unused-array]") == 999
    assert ": error: wrong [one]" in text
    assert text.endswith("\n2001 more findings not shown")


# ---- choices --------------------------------------------------------------------------------

BITS = "".join(f"tune t{i} in {{0, 1}}\n" for i in range(24))
ONES = "".join(f"require t{i} == 1\n" for i in range(24))
SUM = " + ".join(f"t{i}" for i in range(24))
OPS = "dag { for i in 0..3 { o[i] : gpu k(a, rows) } }\n"


def kernel_with(items: str, ops: str) -> str:
    return (
        HEAD + f'kernel q(a: inout f32[n], n: i64) {{ {items} gpu {{ launch grid(1) block(32) cuda """ """ }} }}\n{ops}'
    )


def said(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "many.dag"
    path.write_text(text)
    return [d.message for d in api.check(path).diagnostics if d.code == "unsatisfiable-require"]


def test_the_first_legal_choice_is_found_wherever_it_is(tmp_path: Path) -> None:
    """It is the last of 16 million combinations."""
    assert said(tmp_path, HEAD + BITS + ONES + OPS) == []
    assert {d.name: d.chosen for d in api.load(tmp_path / "many.dag").decisions}["t23"] == 1
    assert said(tmp_path, kernel_with(BITS + ONES, "dag { o : gpu q(a, rows) }")) == []
    assert {d.name: d.chosen for d in api.load(tmp_path / "many.dag").decisions}["o.t23"] == 1


@pytest.mark.parametrize("in_kernel", [False, True])
def test_where_not_all_choices_can_be_tried_that_is_reported(tmp_path: Path, in_kernel: bool) -> None:
    items = f"{BITS} require ({SUM}) % 25 == 24\n"  # only ones satisfy it
    (message,) = said(tmp_path, kernel_with(items, "dag { o : gpu q(a, rows) }") if in_kernel else HEAD + items + OPS)
    assert message.startswith("too many combinations to try all; found no choice of t0, t1, t2")
    assert "no choice of t0" not in message.replace("found no choice of t0", "")


def test_a_require_that_only_the_others_exclude(tmp_path: Path) -> None:
    text = HEAD + "tune s in {0, 1}\ntune t in {0, 1}\nrequire s + t == 1\nrequire s == t\n" + OPS
    assert said(tmp_path, text) == ["no choice of s, t satisfies `s + t == 1` together with the other `require`s"]


def test_ops_of_a_kernel_share_the_search_for_a_legal_choice(tmp_path: Path) -> None:
    items = "tune u in 0..5000\nrequire u == 4999\n"
    ops = " ".join(f"o{i} : gpu q(a, rows)" for i in range(200))
    assert said(tmp_path, kernel_with(items, f"dag {{ {ops} }}")) == []


# ---- slices bounded by scalars --------------------------------------------------------------


def test_many_requires_of_many_scalars(tmp_path: Path) -> None:
    """Elimination over all of them would take minutes: what is not decided in time is noted."""
    many = range(120)
    text = HEAD.replace("f32[rows]", "f32[*]") + "scalar " + ", ".join(f"s{i}" for i in range(40)) + " : i64\n"
    text += "".join(
        f"require s{i % 40} + {i % 7 + 1} * s{(i * 7 + 1) % 40} <= s{(i * 3 + 2) % 40} + {i % 5} * s{i * 11 % 40}\n"
        for i in range(300)
    )
    ops = "".join(f"o{i} : gpu k(a[s{i % 40} + {i} .. s{i % 40} + s{(i + 1) % 40} + {i}], 1)\n" for i in many)
    errors, _, messages = check(tmp_path, text + f"dag {{ {ops} }}\n")
    assert errors == 0
    assert "cannot decide whether" in messages


def test_many_slices_one_behind_the_other(tmp_path: Path) -> None:
    many = range(25)
    text = HEAD.replace("f32[rows]", "f32[*]") + "scalar " + ", ".join(f"s{i}" for i in many) + " : i64\n"
    text += "".join(f"require s{i} + 1 <= s{i + 1}\n" for i in many[:-1])
    text += "dag { " + "".join(f"o{i} : gpu k(a[s{i} .. s{i} + 1], 1)\n" for i in many) + " }\n"
    (tmp_path / "many.dag").write_text(text)
    assert edges(api.load_graph(tmp_path / "many.dag")) == set()


def test_suggestions_for_thousands_of_misspelt_names(tmp_path: Path) -> None:
    """Each of 3000 names is like each of 3000 others: to compare them all takes a quarter of an hour."""
    arrays = "".join(f"array {'a' * 23}{i} : f32[rows] inout\n" for i in range(3000))
    ops = "".join(f"o{i} : gpu k({'a' * 22}b{i}, rows)\n" for i in range(3000))
    (tmp_path / "a.dag").write_text(f"{HEAD}{arrays}dag {{\n{ops}}}\n")
    found = api.check(tmp_path / "a.dag")
    helps = [d.help for d in found.diagnostics if d.code == "unknown-name"]
    assert len(helps) == 3000
    assert set(helps[50:]) == {"declare it before its use"}
    assert helps[7] == f"did you mean `{'a' * 23}7`?"


def test_a_name_misspelt_in_a_loop_is_looked_up_once(tmp_path: Path) -> None:
    """It does not use up the suggestions for others."""
    loop = "for i in 0..200 { o[i] : gpu k(ab, rows) }\np : gpu k(a, rowss)"
    (tmp_path / "a.dag").write_text(f"{HEAD}array bc : f32[rows] inout\ndag {{\n{loop}\n}}\n")
    helps = [d.help for d in api.check(tmp_path / "a.dag").diagnostics if d.code == "unknown-name"]
    assert helps == ["did you mean `a`?", "did you mean `rows`?"]

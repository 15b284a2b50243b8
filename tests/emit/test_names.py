"""C++ names, types, values and the names that a code text uses."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagc.choice.types import Site
from dagc.cuda.lexer import KEYWORDS, is_global
from dagc.emit.render import Names, cxx_string, cxx_value, hides_declaration, value_type
from dagc.ir.choice import PROGRAM
from dagc.ir.names import alike, mangle, set_apart
from dagc.perf.cprint import identifier


@pytest.mark.parametrize(
    ("display", "name"),
    [
        ("x", "x"),
        ("row_ptr", "row_ptr"),
        ("pack[x,lo]", "pack_x_lo_"),
        ("nbr[0]", "nbr_0_"),
        ("u[0,1]", "u_0_1_"),
        ("u_0[1]", "u_0_1_i_"),
        ("u_0_1", "u_0_1"),
        ("A.to_device", "A_to_device_du_"),
        ("a[1].b[2]", "a_1_b_2_idi_"),
        ("u[i]", "u_i_i_"),
        ("u_", "u_t_"),
        ("m-1", "m_1_x45_"),
    ],
)
def test_mangle(display: str, name: str) -> None:
    assert mangle(display) == name


# Few words, of which many are what a mangled name consists of.
WORDS = st.sampled_from(["a", "u", "i", "d", "t", "0", "1", "a_0", "0_1", "u_", "_a", "a__b", "x45", "iU", "ui"])
NAME = WORDS.filter(lambda word: not word[0].isdigit())
PART = st.builds(
    lambda name, indices: name + (f"[{','.join(indices)}]" if indices else ""), NAME, st.lists(WORDS, max_size=3)
)
DISPLAYS = st.one_of(
    st.lists(PART, min_size=1, max_size=3).map(".".join),
    st.text("a_[],.0i-tU", max_size=7),
    st.text(max_size=5),
    st.sampled_from(sorted(KEYWORDS | {"size_t", "exp", "cudaMalloc", "MPI_Send", "dagc_choose_u", "self", "lambda"})),
)


LIBC = "/lib/x86_64-linux-gnu/libc.so.6"


@given(st.lists(DISPLAYS, min_size=2, unique=True))
def test_different_names_stay_different(displays: list[str]) -> None:
    mangled = [mangle(display) for display in displays]
    assert len(set(mangled)) == len(displays)
    for display, name in zip(displays, mangled, strict=True):
        assert re.fullmatch(r"\w*", name, re.ASCII)
        if re.fullmatch(r"[A-Za-z_]\w*(?<!_)", display, re.ASCII):
            assert name == display


@given(st.lists(DISPLAYS, min_size=2, unique=True), st.sampled_from(["", "requests"]))
def test_names_are_handed_out_once_and_are_no_reserved_words(displays: list[str], suffix: str) -> None:
    for names, refused in (
        (Names(["a", "a_0_"]), lambda name: hides_declaration(name) or name in ("a", "a_0_")),
        (Names(library=True), lambda name: is_global(name) or name.startswith("dagc_")),
    ):  # no word of these families ends with `_`
        new = [names.new(display, suffix) for display in displays]
        assert len(set(new)) == len(displays)
        assert [name for name in new if name in KEYWORDS or (refused(name) and name[-1] != "_") or name == "a_0_"] == []


@given(st.lists(DISPLAYS, min_size=2, unique=True))
def test_variables_of_choosers_are_no_words_of_c(displays: list[str]) -> None:
    names = [identifier(display) for display in displays]
    assert len(set(names)) == len(displays)
    assert [n for n in names if n in KEYWORDS or (n[-1:] != "_" and (is_global(n) or n.startswith("dagc_")))] == []


@given(st.lists(DISPLAYS, min_size=2, unique=True))
def test_functions_of_sites_stay_different(displays: list[str]) -> None:
    sites = [Site(display, ()) for display in (PROGRAM, *displays) if display]
    functions = [name for s in sites for name in (s.function, s.order, s.predict, s.label, s.table)]
    assert len(set(functions)) == 5 * len({s.name for s in sites})


def test_files_that_a_file_system_without_case_takes_for_one() -> None:
    assert alike(["u", "x", "U", "X1"]) == [("u", "U")]
    assert alike(["u[0]", "u_0"]) == []


def test_a_kernel_is_not_named_after_a_library_function() -> None:
    for name in ("y0", "bind", "cblas_ddot", "GOMP_barrier"):
        assert Names(library=True).new(name) == set_apart(name)
        assert Names().new(name) == name


@pytest.mark.skipif(shutil.which("nm") is None or not Path(LIBC).exists(), reason="needs nm, and the C library there")
def test_no_kernel_replaces_a_function_of_the_c_library() -> None:
    """Where a kernel was named `bind`, MPI called it."""
    listed = subprocess.run(["nm", "-D", "--defined-only", LIBC], capture_output=True, text=True, check=True).stdout
    defined = re.findall(r" [TWi] ([a-z]\w*)@@GLIBC_", listed)
    assert len(defined) > 1000
    assert [name for name in defined if Names(library=True).new(name) == name] == []


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (3, "int", "3"),
        (2**31, "std::int64_t", "2147483648"),
        (-(2**31), "std::int64_t", "-2147483648"),
        (True, "bool", "true"),
        (0.1, "double", "0.1"),
        ("a", "const char*", '"a"'),
    ],
)
def test_values(value: int | float | bool | str, type_: str, text: str) -> None:
    assert (value_type(value), cxx_value(value)) == (type_, text)


def test_strings_cannot_leave_their_quotes() -> None:
    assert cxx_string('a"b\\c\nd??/e') == '"a\\"b\\\\c\\nd\\?\\?/e"'

"""C++ names, types, values and the names that a code text uses."""

from __future__ import annotations

import pytest

from dagc.emit.render import Names, cxx_string, cxx_value, value_type
from dagc.ir.program import mangle


@pytest.mark.parametrize(
    ("display", "name"),
    [
        ("x", "x"),
        ("pack[x,lo]", "pack_x_lo"),
        ("nbr[0]", "nbr_0"),
        ("A.to_device", "A_to_device"),
        ("a[1].b[2]", "a_1_b_2"),
    ],
)
def test_mangle(display: str, name: str) -> None:
    assert mangle(display) == name


def test_names_are_handed_out_once() -> None:
    names = Names(["comm"])
    assert [names.new(n) for n in ("a[x]", "a_x", "comm", "int", "a_x")] == ["a_x", "a_x_", "comm_", "int_", "a_x__"]


def test_a_kernel_is_not_named_after_a_library_function() -> None:
    assert Names(library=True).new("y0") == "y0_"
    assert Names().new("y0") == "y0"


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

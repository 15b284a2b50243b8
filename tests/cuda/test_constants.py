"""Names that a text reads, and those that C++ demands to be constant expressions in a kernel's text."""

from __future__ import annotations

import pytest

from dagc.cuda.text import constant_names, functions_defined, names_read


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("if (i<bx && j>by) a[i] = 1;", set()),
        ("int i = 0; if (i<bx && j>(by)) a[i] = 1;", set()),
        ("a[i<bx ? 1 : j>by] = 1;", set()),
        ("__shared__ float s[bx][by + 1];", {"bx", "by"}),
        ("float own[bx]; own[by] = 1;", {"bx"}),
        ("const int w = bx * 2; __shared__ float s[w];", {"w", "bx"}),
        ("const int w = bx * 2, v = w + by; __shared__ float s[v];", {"v", "w", "bx", "by"}),
        ("int w = bx * 2; a[w] = 1;", set()),
        ("constexpr int w = bx;", {"w", "bx"}),
        ("#pragma unroll bx\nfor (int k = 0; k < by; ++k) a[k] = 1;", {"unroll", "bx"}),
        ('_Pragma("unroll bx") for (int k = 0; k < by; ++k) a[k] = 1;', {"unroll", "bx"}),
        ("for (;;)\n#pragma unroll bx\n  for (int k = 0; k < by; ++k) a[k] = 1;", {"unroll", "bx"}),
        ("if (by > 1)  // many\n  #pragma unroll\n  for (int k = 0; k < by; ++k) a[k] = 1;", {"unroll"}),
        ("sum<bx>(a);", {"bx"}),
        ("sum<float, bx + 1>(a, by);", {"float", "bx"} - {"float"}),
        ("switch (n) { case bx: a[by] = 1; }", {"bx"}),
        ("if constexpr (bx > 3) a[by] = 1;", {"bx"}),
        ('static_assert(bx > 3, "too small"); a[by] = 1;', {"bx", "too", "small"}),
        ("// bx\na[0] = 1; /* s[by] */", set()),
    ],
)
def test_where_a_constant_is_demanded(text, expected):
    assert constant_names(text) == expected


def test_formals_are_no_templates():
    assert constant_names("if (n<bx && m>(by)) a[0] = 1;", frozenset("n")) == set()


def test_what_does_not_parse_may_need_any():
    assert constant_names("if (") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int i = n; a.b = c->d; // e", {"n", "a", "c"}),
        ("double own[n + 1], (&other)[m] = own; own[0] = 1;", {"n", "m"}),  # sizes are not declared
        # A cast of a call in a launch configuration does not parse.
        (
            "k<<<(unsigned)((long(n) + 0x7f) / 128), 128, 0, s>>>(a.b /* c */, 'd');",
            {"k", "unsigned", "long", "n", "s", "a"},
        ),
    ],
)
def test_names_that_a_text_reads(text: str, expected: set[str]) -> None:
    assert names_read(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int main(int argc, char** argv) { return 0; }", {"main"}),
        ("auto main() -> int { return 0; }", {"main"}),
        ('// int main() {}\n/* int main() { } */ const char* s = "int main() {";', set()),
        ("int main();\nvoid f() { main(); }", {"f"}),
        ("#if TEST\nint main() { return f(1); }\n#endif", {"main"}),
        ("namespace a { template <class T> __global__ void k(T* x) { x[0] = 1; } }", {"k"}),
        ('extern "C" { float* first(float* x) { return x; } }\nint& ns::at(int& i) { return i; }', {"first", "at"}),
        ("struct S { int main() { return 1; } };", set()),
    ],
)
def test_functions_that_a_file_defines(text: str, expected: set[str]) -> None:
    assert functions_defined(text) == expected

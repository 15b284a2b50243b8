"""Names and directives of C and CUDA text, whatever comments and literals hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagc.cuda.lexer import directives, includes, names_in, names_used, tokens_of, uses_openmp
from dagc.cuda.text import has_gpu_variable


@pytest.mark.parametrize(
    ("text", "used", "not_used"),
    [
        ("int i = blockIdx.x * block;", "blockIdx block", "i x"),
        ("a->n + b.m + c::k", "a b c", "n m k"),
        ("x = n; // m\n/* k */ y = \"q\" + 'r';", "x n y", "m k q r"),
        ("const real* r = lines;", "real lines", ""),
        ("__shared__ real s[256];", "real", "s"),
        ("return n;", "n", ""),
        ("long x = 1; y = x;", "y", "x"),
        ("0xff + 1.0f + ~0u", "", "xff f u"),
        ("#pragma unroll tile", "tile", ""),
        ("#pragma unroll unroll", "unroll", ""),
        ("#pragma unroll\nfor (;;) {}", "", "unroll"),
        ('_Pragma("unroll tile") for (;;) {}', "tile", "unroll"),
        ("n = 1'000 + m;", "n m", ""),
        ('s = R"x(m ")" n)x" u8"k" L\'q\';', "s", "m n k q u8 L x R"),
        ("x = n; // m \\\n k", "x n", "m k"),
    ],
)
def test_names_used(text: str, used: str, not_used: str) -> None:
    names = names_used(text)
    assert names >= set(used.split())
    assert not names & set(not_used.split())


def test_names_have_their_places() -> None:
    text = 'a.b(_Pragma("unroll c")) /* d */ "e" f'
    assert [(n.text, text[n.start :].startswith(n.text)) for n in names_in(text)] == [
        (name, True) for name in ("a", "b", "_Pragma", "c", "f")
    ]


def test_directives_are_not_read_from_comments_and_strings() -> None:
    text = """/* #include "no.h"
#include <no.h> */
#include <a.h>  // #include "no.h"
  # include "b.h" /* two
#include "no.h"
lines */
const char* s = R"(
#include "no.h"
)";
#define F \\
  #include "no.h"
#include MACRO
#pragma once"""
    assert list(includes(text)) == [("a.h", False), ("b.h", True)]
    assert [(d.name, d.line) for d in directives(text)] == [
        ("include", 2), ("include", 3), ("define", 9), ("include", 11), ("pragma", 12),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#pragma omp parallel for\nfor (;;) {}", True),
        ("# pragma \\\n omp simd", True),
        ("#include <omp.h>", True),
        ('#include "omp.h"', False),
        ("/*\n#pragma omp parallel\n*/", False),
        ("#pragma ompx", False),
    ],
)
def test_what_needs_openmp(text: str, expected: bool) -> None:
    assert uses_openmp(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__device__ int x;", True),
        ("__constant__ float c[3] = {1, 2, 3};", True),
        ("namespace a { template <int N> __managed__ float t[N]; }", True),
        ("__device__ float (*g)(int) = h;", True),
        ("#define V __device__ int x\nV;", True),
        ("__device__ int f(int a) { return a; }", False),
        ("__device__ int* f(int); inline __device__ double& at(int i);", False),
        ('// __device__ int x;\nconst char* s = "__device__ int x;";', False),
        ("__global__ void k() { __shared__ int s[3]; }", False),
    ],
)
def test_variables_of_the_gpu(text: str, expected: bool) -> None:
    assert has_gpu_variable(text) == expected


@pytest.mark.parametrize("unit", ['R"(', 'R"d(', '"\\"', "'\\'", 'u8"x\\"', ')aaaaaaaaaaaaaaa"'])
def test_a_literal_without_its_end_is_read_once(unit: str) -> None:
    """A file of many does not take a time quadratic in its length: minutes here."""
    text = 'x R"aaaaaaaaaaaaaaaa(' + unit * 100_000 if unit.startswith(")") else "x " + unit * 100_000
    assert {name.text for name in names_in(text)} == {"x"}
    assert not list(directives(text))


def test_a_literal_without_its_end_ends_with_its_line() -> None:
    assert names_used("don't x\ny = \"z;\nw") == {"don", "y", "w"}
    assert names_used('a R"(\nb )x"\nc') == {"a"}


WORDS = st.sampled_from(
    ["x", "if", "0x1p-3", "1'000", "<", ">>", "<<<", "-", "--", "->", "(", "{", ";", '"a // b"', "'/'", 'R"(/* x)"']
)
BLANKS = st.sampled_from([" ", "\n", "\t  ", " /* x */ ", "// y\n", "/**/", "\\\n", "/* \n # define x */"])


@given(st.lists(st.tuples(WORDS, BLANKS, BLANKS), min_size=1, max_size=12), st.data())
def test_comments_and_layout_are_no_tokens(parts: list[tuple[str, str, str]], data: st.DataObject) -> None:
    one, other = ("".join(f"{part[0]} {part[i]}" for part in parts) for i in (1, 2))
    assert tokens_of(one) == tokens_of(other)
    at = data.draw(st.integers(0, len(parts) - 1))
    words = [word for word, _, _ in parts]
    changed = [*words[:at], data.draw(WORDS.filter(lambda w: w != words[at])), *words[at + 1 :]]
    assert tokens_of(" ".join(changed)) != tokens_of(one)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("a+b", "a + b", True),
        ("f<<<g,b>>>(x)", "f<<< g, b >>> ( x )", True),
        ("a - -b", "a--b", False),
        ("int x; // old", "int x; /* new */", True),
        ("#define f(x) x\ny", "#define f (x) x\ny", False),
        ("#define n 1\ny", "#define n\n1 y", False),
        ("#define n \\\n 1 // one\ny", "#define n 1\n\n  y", True),
        ("x\n#pragma unroll 4\nfor", "x\n  # pragma unroll 4\nfor", False),
        ("x\n#pragma unroll 4\nfor", "x // a\n  #pragma   unroll /* 4 */ 4\nfor", True),
        ('s = "a  b"', 's = "a b"', False),
        ('R"(a // b)"', 'R"(a)"', False),
    ],
)
def test_which_texts_have_equal_tokens(one: str, other: str, equal: bool) -> None:
    assert (tokens_of(one) == tokens_of(other)) == equal

"""Launches and dynamic shared memory, said in C++ that g++ can parse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagc.cuda.text import rewrite_for_host, with_own_constants

LAUNCHES = [
    ("k<<<g, b, 0, s>>>(x, n);", "dagc::launch(DAGC_KERNEL(k), g, b, 0, s, x, n);"),
    ("k<<<g, b>>>();", "dagc::launch(DAGC_KERNEL(k), g, b, 0, nullptr);"),
    ("k<<<g, b, 64>>>(x);", "dagc::launch(DAGC_KERNEL(k), g, b, 64, nullptr, x);"),
    ("k << <g, b >> > (x);", "dagc::launch(DAGC_KERNEL(k), g, b, 0, nullptr,   x);"),  # as an editor writes it
    (
        "a >> b; f(v<v<v<int>> >(2)); operator<< <T>(x); k<< <g, T<int>(b)>>>(x);",
        "a >> b; f(v<v<v<int>> >(2)); operator<< <T>(x); dagc::launch(DAGC_KERNEL(k), g, T<int>(b), 0, nullptr, x);",
    ),
    ("k <<< g, b >>> (x);", "dagc::launch(DAGC_KERNEL(k), g, b, 0, nullptr,  x);"),
    ("a::k<float, 3><<<g, b>>>(x);", "dagc::launch(DAGC_KERNEL(a::k<float, 3>), g, b, 0, nullptr, x);"),
    ("k<A<B<int>>><<<g, b>>>(x);", "dagc::launch(DAGC_KERNEL(k<A<B<int>>>), g, b, 0, nullptr, x);"),
    ("::k<<<g, b>>>(x);", "dagc::launch(DAGC_KERNEL(::k), g, b, 0, nullptr, x);"),
    ("(c ? k : l)<<<g, b>>>(x);", "dagc::launch((c ? k : l), g, b, 0, nullptr, x);"),
    ("table.k<<<g, b>>>(x);", "dagc::launch(table.k, g, b, 0, nullptr, x);"),
    ("table->k<<<g, b>>>(x);", "dagc::launch(table->k, g, b, 0, nullptr, x);"),
    (
        "k<<<dim3(f(a, b), 2), (n + 255) / 256, n * sizeof(float)>>>(x[i, j], {1, 2});",
        "dagc::launch(DAGC_KERNEL(k), dim3(f(a, b), 2), (n + 255) / 256, n * sizeof(float), nullptr, x[i, j], {1, 2});",
    ),
    ("k<<<max<int, long>(a, b), 2>>>(x);", "dagc::launch(DAGC_KERNEL(k), max<int, long>(a, b), 2, 0, nullptr, x);"),
    ("k<<<a < b, c > d>>>(x);", "dagc::launch(DAGC_KERNEL(k), a < b, c > d, 0, nullptr, x);"),
    ("k<<<g, n >> 3>>>(x);", "dagc::launch(DAGC_KERNEL(k), g, n >> 3, 0, nullptr, x);"),
    ("k<<<g, T<U<int>>{}>>>(x);", "dagc::launch(DAGC_KERNEL(k), g, T<U<int>>{}, 0, nullptr, x);"),
    ("k<<<g, b>>>(\")\", ')', x);", "dagc::launch(DAGC_KERNEL(k), g, b, 0, nullptr, \")\", ')', x);"),
    ("k<<<g, /* , >>>( */ b>>>(x);", "dagc::launch(DAGC_KERNEL(k), g, /* , >>>( */ b, 0, nullptr, x);"),
    (
        "k<n><<<{f(a), 2}, {32, n, 1}, 0, s>>>(T{1, {2}});",
        "dagc::launch(DAGC_KERNEL(k<n>), dim3{f(a), 2}, dim3{32, n, 1}, 0, s, T{1, {2}});",
    ),
    ("k<<<1'000, b>>>(x);", "dagc::launch(DAGC_KERNEL(k), 1'000, b, 0, nullptr, x);"),
    (
        "for (;;) k<<<g, b>>>(x); l<<<g, b>>>();",
        "for (;;) dagc::launch(DAGC_KERNEL(k), g, b, 0, nullptr, x); dagc::launch(DAGC_KERNEL(l), g, b, 0, nullptr);",
    ),
    ("if (c) { k<<<g, b>>>(x); }", "if (c) { dagc::launch(DAGC_KERNEL(k), g, b, 0, nullptr, x); }"),
    ("CHECK((k<<<g, b>>>(x), 0));", "CHECK((dagc::launch(DAGC_KERNEL(k), g, b, 0, nullptr, x), 0));"),
    (
        "k<<<g, b>>>([&] { l<<<g, b>>>(y); });",
        "dagc::launch(DAGC_KERNEL(k), g, b, 0, nullptr, [&] { dagc::launch(DAGC_KERNEL(l), g, b, 0, nullptr, y); });",
    ),
]


@pytest.mark.parametrize(("text", "expected"), LAUNCHES)
def test_launch(text: str, expected: str) -> None:
    assert rewrite_for_host(text) == expected


def test_the_header_of_thrust_on_the_host_comes_first_and_no_byte_order_mark() -> None:
    text = "int a;\n#include <thrust/sort.h>\n#include <thrust/scan.h>\n"
    assert rewrite_for_host(f"\ufeff{text}") == text.replace("#", '#include "dagc/host_thrust.hpp"\n#line 2\n#', 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int i = threadIdx.x + blockIdx . y;", "int i = dagc::here().threadIdx.x + dagc::here().blockIdx . y;"),
        ("#define I (blockDim.x * gridDim.y)\n", "#define I (dagc::here().blockDim.x * dagc::here().gridDim.y)\n"),
        # Declared, or not of this thread: this variable is left, the others are not.
        ("dim3 blockDim(8); f(blockDim.x, gridDim.x);", "dim3 blockDim(8); f(blockDim.x, dagc::here().gridDim.x);"),
        (
            "dim3 a, gridDim; gridDim.x = 1; x = threadIdx.y;",
            "dim3 a, gridDim; gridDim.x = 1; x = dagc::here().threadIdx.y;",
        ),
        ("c.gridDim.x = p->blockDim.y; ::threadIdx.x; // threadIdx.x", None),
        ("g(threadIdx); h(threadIdx.x);", None),
        ("int warp = threadIdx_x / warpSize;", None),
    ],
)
def test_variables_of_the_thread(text: str, expected: str | None) -> None:
    assert rewrite_for_host(text) == (text if expected is None else expected)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a << b; c >> d;",
        "// k<<<g, b>>>(x)\n",
        "// continued \\\nk<<<g, b>>>(x)\n",
        "/* k<<<g, b>>>(x) */",
        'auto s = "k<<<g, b>>>(x)";',
        'auto s = R"x(k<<<g, b>>>(x) " )x";',
        "operator<<<int>(a, b);",
        "k<<<g>>>(x);",
        "k<<<g, b, c, d, e>>>(x);",
        "k<<<g, b>>>;",
        "k<<<g, b>>>(x",
        "k<<<g, b",
        "k<<<g, (b>>>(x);",
        "k<<<, b>>>(x);",
        "<<<g, b>>>(x);",
        "// k\n<<<g, b>>>(x);",
        "k<<<g; b>>>(x);",
    ],
)
def test_left_as_it_is(text: str) -> None:
    assert rewrite_for_host(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "k<<<g,\n    b,  // threads\n    0, s>>>(\n        x,\n        n);\nmark",
        "k<<<g,\n b // threads\n>>>(x);\nmark",
        "extern\n__shared__ float\n s[];\nmark",
    ],
)
def test_lines_keep_their_numbers(text: str) -> None:
    rewritten = rewrite_for_host(text)
    assert rewritten != text
    assert rewritten.count("\n") == text.count("\n")
    assert rewritten.splitlines()[-1] == "mark"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("extern __shared__ float s[];", "DAGC_DYNAMIC_SHARED(float, s);"),
        ("extern __shared__ unsigned char raw[ ] ;", "DAGC_DYNAMIC_SHARED(unsigned char, raw);"),
        ("extern __shared__ __align__(16) unsigned char raw[];", "DAGC_DYNAMIC_SHARED(unsigned char, raw);"),
        ("extern __shared__ std::pair<int, int> p[];", "DAGC_DYNAMIC_SHARED(std::pair<int, int>, p);"),
        ("static __shared__ int a[4];", " __shared__ int dagc_shared_a[4]; auto& a = dagc::shared(dagc_shared_a);"),
        ("extern int x; extern __shared__ T t[];", "extern int x; DAGC_DYNAMIC_SHARED(T, t);"),
        ("// extern __shared__ float s[];", "// extern __shared__ float s[];"),
        ("__shared__ float s[4];", "__shared__ float dagc_shared_s[4]; auto& s = dagc::shared(dagc_shared_s);"),
        (
            "__shared__ T *p, t[2];",
            "__shared__ T *dagc_shared_p, dagc_shared_t[2]; "
            + " ".join(f"auto& {n} = dagc::shared(dagc_shared_{n});" for n in "pt"),
        ),
        ("extern __shared__ float s[4];", "extern __shared__ float s[4];"),
        ('extern "C" void f();', 'extern "C" void f();'),
    ],
)
def test_dynamic_shared_memory(text: str, expected: str) -> None:
    assert rewrite_for_host(text) == expected


_PIECES = ["k", "<<<", ">>>", "<", ">", "(", ")", "[", "]", "{", "}", ",", ";", '"', "'", "\\", "/*", "*/", "//", "\n"]
_PIECES += ["extern", "__shared__", " ", "R", "1", "::", "."]


@given(st.lists(st.sampled_from(_PIECES), max_size=30).map("".join))
def test_any_text_is_taken_and_keeps_its_lines(text: str) -> None:
    assert rewrite_for_host(text).count("\n") == text.count("\n")


@given(st.lists(st.sampled_from(_PIECES), max_size=30).map("".join))
def test_what_has_no_launch_is_untouched(text: str) -> None:
    assert "<<<" in text or rewrite_for_host(text) == text


def test_launches_in_macros() -> None:
    text = "#define RUN(k, n) k<<<n, \\\n  32>>>(x); \\\n  l<<<1, 2>>>()\nmark\n"
    new = rewrite_for_host(text)
    assert new.split("\n")[-2] == "mark"
    assert new.count("\n") == text.count("\n")
    assert "dagc::launch(DAGC_KERNEL(k), n, \\\n  32, 0, nullptr, x)" in new
    assert "dagc::launch(DAGC_KERNEL(l), 1, 2, 0, nullptr)" in new
    assert all(line.endswith("\\") for line in new.split("\n")[:2])


def test_a_text_may_be_nested_deeply() -> None:
    text = "(" * 5000 + "k<<<1, 2>>>()" + ")" * 5000
    assert "dagc::launch(DAGC_KERNEL(k), 1, 2, 0, nullptr)" in rewrite_for_host(f"void f() {{ {text}; }}")


def test_constants_are_of_their_file_unless_another_declares_them() -> None:
    own = {"a.cu": "__constant__ double c;\n  static __constant__ int d[2];", "b.cpp": "double c;"}
    assert with_own_constants(own) == {**own, "a.cu": "static __constant__ double c;\n  static __constant__ int d[2];"}
    shared = {**own, "b.cu": "extern __constant__ double c;"}
    assert with_own_constants(shared) == shared

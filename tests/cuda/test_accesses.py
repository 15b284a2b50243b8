"""The reader of loads and stores is sound: whatever a kernel touches is in what was read from its text."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc.cuda.accesses import accesses_of
from dagc.cuda.expressions import MemoryAccess, either, nearby, symbol
from dagc.cuda.syntax import NotUnderstood
from tests.tiers import examples

N, M = 5, 3  # what the by-value formals are where kernels are run


def read(body: str, **options) -> list[MemoryAccess]:
    names = {name: symbol(name) for name in "nm"}
    return list(accesses_of(body, {"a": 4, "b": 4}, names, **options).accesses)


def shown(body: str) -> list[tuple[str, str, bool]]:
    """Array, address ("?": not known) and whether it is a store."""
    return [(a.array, str(a.address) if a.known else "?", a.store) for a in read(body)]


# ---- where paths meet -----------------------------------------------------------------------

T = "threadIdx_x"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("int i = threadIdx.x, k = 0; if (i < n) k = i; a[k] = 1;", [("a", f"either({T}, 0)", True)]),
        ("int i = threadIdx.x, k = 0; if (i < n) k = i; else k = i; a[k] = 1;", [("a", T, True)]),
        ("int i = threadIdx.x, k; if (i == 0) k = 1; else k = 2; a[k] = 1;", [("a", "either(1, 2)", True)]),
        ("int i = threadIdx.x, k = i; if (i < n) k = i * i; a[k] = 1;", [("a", "?", True)]),
        ("int i = threadIdx.x; a[i > 0 ? i - 1 : i] = 1;", [("a", f"either({T} - 1, {T})", True)]),
        ("int k = 1; if (n < m) { int k = 2; a[k] = 1; } a[k] = 1;", [("a", "2", True), ("a", "1", True)]),
        ("int i = threadIdx.x; if (!(i == 3)) a[i] = 1;", [("a", T, True)]),
        ("int i = threadIdx.x; if (i == 3) a[i] = 1;", [("a", T, True)]),
        ("int i = threadIdx.x; if (i >= n) { a[i] = 0; return; } b[i] = 1;", [("a", T, True), ("b", T, True)]),
        ("int k = 0; if (n < m) return; else k = 1; a[k] = 1;", [("a", "1", True)]),
        ("if (n < m) return; else return; a[0] = 1;", []),
        ("float *p = a; if (n < m) p = a + 1; p[threadIdx.x] = 1;", [("a", "?", True)]),
    ],
)
def test_a_name_keeps_its_value_only_where_all_paths_agree(body, expected):
    assert shown(body) == expected


@pytest.mark.parametrize(
    ("body", "weight", "guards"),
    [
        ("if (!(threadIdx.x == 3)) a[0] = 1;", 1.0, set()),
        ("if (threadIdx.x != 3) a[0] = 1;", 1.0, set()),
        ("if (threadIdx.x == 3) a[0] = 1;", 1.0, {f"{T} - 3", f"3 - {T}"}),
        ("if (n == 3) a[0] = 1;", 0.5, set()),
        ("if (threadIdx.x < n && n == 3) a[0] = 1;", 0.5, {f"n - {T} - 1"}),
        ("if (2 < 1) a[0] = 1;", 0.0, set()),
        ("if (!(threadIdx.x < n)) a[0] = 1;", 1.0, {f"-n + {T}"}),
    ],
)
def test_how_often_a_branch_runs_and_for_which_threads(body, weight, guards):
    (access,) = read(body)
    assert access.weight == weight
    assert {str(guard.value) for guard in access.guards} == guards  # each at least 0


# ---- loops ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "int k = 0; for (int j = 0; j < n; ++j) { if (b[j] > 0) k += 1; a[k] = 1; }",
            [("b", "j_0", False), ("a", "?", True)],
        ),
        ("int k = 0; for (int j = 0; j < n; ++j) { if (j == m) continue; a[k] = 1; k += 1; }", [("a", "?", True)]),
        ("int k = 0; for (int j = 0; j < n; ++j) { a[k] = 1; k += j; }", [("a", "?", True)]),
        ("for (int j = 0; j < n; ++j) { a[j] = 1; j += 1; }", [("a", "?", True)]),
        ("int e = n; for (int j = 0; j < e; ++j) { a[j] = 1; e -= 1; }", [("a", "?", True)]),
        ("int j = 0; for (j = threadIdx.x; j < n; j += blockDim.x) a[j] = 1;", [("a", "j_0", True)]),
        ("int j = 0; for (j = threadIdx.x; j < n; j *= 2) a[j] = 1; a[j] = 1;", [("a", "?", True), ("a", "?", True)]),
        ("float *p = a; for (int j = 0; j < n; ++j) *p++ = 1;", [("a", "?", True)]),
        (
            "float *p = a; for (int j = 0; j < n; ++j) { p[0] = 1; p += m; } p[0] = 1;",
            [("a", "j_0*m", True), ("a", "?", True)],
        ),
        ("int k = 0; while (k < n) { if (b[k] > 0) ++k; a[k] = 1; }", [("b", "?", False), ("a", "?", True)]),
        ("int k = n; while (b[k] > 0) k -= 1;", [("b", "?", False)]),
        ("for (int j = 0; n > j; ++j) a[j] = 1;", [("a", "j_0", True)]),
        ("int k = m; for (int j = 1; j < n; ++j, k += 3) a[k] = 1;", [("a", "3*j_0 + m - 3", True)]),
        ("float *p = a; for (int j = n; j > 0; --j, ++p) *p = 1;", [("a", "-j_0 + n", True)]),
        ("int k = 0; for (int j = 0; j < n; ++j, k += 3) { a[k] = 1; k = m; } a[k] = 1;", [("a", "?", True)] * 2),
        ("int k = 0; for (int j = 0; j < k; ++j, k += 3) a[j] = 1;", [("a", "?", True)]),
        ("int k = 0; for (int j = 0; j < n; ++j, k += j) a[k] = 1;", [("a", "?", True)]),
        ("int k = 1; for (int j = 0; j < n; ++j, k += k) a[k] = 1;", [("a", "?", True)]),
        ("int k = 1; for (int j = 0; j < n; ++j, k += b[0]) a[k] = 1;", [("a", "?", True), ("b", "0", False)]),
        ("for (int d = 16; d > 0; d /= 2) a[d] = 1;", [("a", "?", True)]),
    ],
)
def test_what_an_iteration_changes_is_not_known_in_the_next(body, expected):
    assert shown(body) == expected


def test_the_trips_of_a_stride_loop():
    (access,) = read("int j; for (j = threadIdx.x; j < n; j += blockDim.x) a[j] = 1;")
    (loop,) = access.loops
    start, bound, step = symbol(T), symbol("n"), symbol("blockDim_x")
    assert (loop.first, loop.step) == (start, step)
    assert sp.simplify(loop.trips - sp.ceiling((bound - start) / step)) == 0


@pytest.mark.parametrize(
    ("header", "trips"),
    [
        ("int d = 16; d > 0; d /= 2", 5), ("int d = 512; d >= 1; d >>= 1", 10), ("int d = 1; d < 32; d *= 2", 5),
        ("int d = 1; d < 100; d <<= 2", 4), ("int d = 0; d > 0; d /= 2", 0),
    ],
)  # fmt: skip
def test_the_trips_of_a_loop_that_halves_or_doubles(header, trips):
    found = accesses_of(f"for ({header}) a[threadIdx.x] += 1;", {"a": 4}, {})
    assert {loop.trips for access in found.accesses for loop in access.loops} == {trips}
    assert found.notes == ()


# Loops as C++ has them and, beside them, in Python: (text, the addresses of thread t of 32).
STEPPED = [
    ("int i = threadIdx.x; while (i < n) { a[i] = 1; i += blockDim.x; }", lambda n, t: range(t, n, 32)),
    ("int i = threadIdx.x; while (i < n) { i += blockDim.x; a[i] = 1; }", lambda n, t: range(t + 32, n + 32, 32)),
    ("int i = n - 1; while (i >= 0) { a[i] = 1; --i; }", lambda n, t: range(n - 1, -1, -1)),
    ("int i = 0; do { a[i] = 1; i += 3; } while (i < n);", lambda n, t: range(0, n, 3)),
    ("int i = t; for (; i < n; i += 32) a[i] = 1;", lambda n, t: range(t, n, 32)),
    ("for (int i = t; i < n; ) { a[i] = 1; i += 32; }", lambda n, t: range(t, n, 32)),
    ("for (int i = 0; i != n; ++i) a[i] = 1;", lambda n, t: range(n)),
    (
        "int k = t; for (int i = 0; i < n; i += 2) { a[k] = 1; k += 5; }",
        lambda n, t: (t + 5 * i for i in range(-(-n // 2))),
    ),
    ("float *p = a + t; for (int i = 0; i < n; ++i) { *p = 1; p += 32; }", lambda n, t: (t + 32 * i for i in range(n))),
    (
        "float *p = a + t; for (int i = 0; i < n; i += 4, p += n) *p = 1;",
        lambda n, t: (t + n * i for i in range(-(-n // 4))),
    ),
    (
        "int k = t; for (int i = 0; i < n; i = i + 2) { a[k] = 1; k = 5 + k; }",
        lambda n, t: (t + 5 * i for i in range(-(-n // 2))),
    ),
    ("for (int i = 0; i < n; ++i) a[(i & 31) + (i & ~31)] = 1;", lambda n, t: range(n)),
    ("for (int i = 0; i < n; ++i) a[i & 7] = 1;", lambda n, t: (i % 8 for i in range(n))),
]


@pytest.mark.parametrize(("body", "expected"), STEPPED, ids=[body for body, _ in STEPPED])
def test_the_addresses_of_a_loop_one_by_one(body, expected):
    found = accesses_of(body, {"a": 4}, {"n": symbol("n"), "t": symbol(T)})
    (access,), ((loop,),) = found.accesses, [one.loops for one in found.accesses]
    for n, t in ((100, 3), (64, 31), (33, 0)):
        numbers = {symbol("n"): n, symbol(T): t, symbol("blockDim_x"): 32}
        first, step, trips = (sp.sympify(v).subs(numbers) for v in (loop.first, loop.step, loop.trips))
        at = [access.address.subs(numbers).subs(loop.counter, first + step * i) for i in range(int(sp.ceiling(trips)))]
        assert at == list(expected(n, t))
    assert found.notes == ()


@pytest.mark.parametrize("number", [1, 2, 1000, 1023, 1024, 2**20 + 1])
def test_the_trips_of_a_loop_that_halves_a_size(number):
    down, up = (accesses_of(f"for ({header}) a[0] = 1;", {"a": 4}, {"n": symbol("n")}).accesses[0].loops[0].trips
                for header in ("int d = n; d > 0; d /= 2", "int d = 1; d < n; d *= 2"))  # fmt: skip
    assert down.subs(symbol("n"), number) == number.bit_length()
    assert up.subs(symbol("n"), number) == (number - 1).bit_length()


@pytest.mark.parametrize(
    "header",
    [
        "int d = threadIdx.x; d > 0; d /= 2",
        "int d = 1; d < n; d += d",
        "int d = 1; d < 9; d *= 1",
        "int d = 1; d < 9; d *= m",
    ],
)
def test_the_trips_of_another_geometric_loop_are_not_known(header):
    (note,) = accesses_of(f"for ({header}) a[0] = 1;", {"a": 4}, {n: symbol(n) for n in "nm"}).notes
    assert "the number of iterations is not known" in note


@pytest.mark.parametrize(
    ("address", "most_threads"),
    [
        (f"Min(n - 1, Max(0, {T} - 1))*m + 2", f"({T} - 1)*m + 2"), (f"either({T} - 1, 0)", f"{T} - 1"),
        (f"either(0, {T} - 1)", f"{T} - 1"), ("either(n, m)", "n"), (f"either(Max({T}, 0), 3) + n", f"{T} + n"),
    ],
)  # fmt: skip
def test_an_address_as_most_threads_compute_it(address, most_threads):
    names = {n: symbol(n) for n in ("n", "m", T)} | {"either": either}
    one, other = (sp.sympify(text, locals=names) for text in (address, most_threads))
    assert sp.expand(nearby(one) - other) == 0


def test_a_loop_between_loaded_bounds_has_a_guess_and_a_note():
    text = "for (int k = b[threadIdx.x]; k < b[threadIdx.x + 1]; ++k) a[k] = 1;"
    found = accesses_of(text, {"a": 4, "b": 4}, {}, {"b"})
    assert {loop.trips for access in found.accesses for loop in access.loops} == {32}
    assert found.notes == ("`k < b[threadIdx.x + 1]` depends on loaded values: 32 iterations are assumed",)


def test_a_table_of_the_programs_own_code_gives_equal_values_to_all_threads():
    found = accesses_of("for (int q = 0; q < 9; ++q) a[threadIdx.x - c[q]] += w[q];", {"a": 4}, {})
    assert {(a.array, a.known, a.address.coeff(symbol(T), 1)) for a in found.accesses} == {("a", True, 1)}
    assert found.notes == tuple(f"`{n}` is not declared in the kernel: its loads are assumed to be free" for n in "wc")


def test_buffers_that_are_exchanged():
    body = "float *p = s, *q = s + 64; for (int r = 0; r < 8; ++r) { q[0] = p[1]; float *o = p; p = q; q = o; }"
    found = accesses_of(f"extern __shared__ float s[]; {body} a[0] = p[3];", {"a": 4}, {})
    assert {(a.array, a.shared) for a in found.accesses} == {("s", True), ("a", False)}
    assert any("is swapped with other pointers" in note for note in found.notes)


def test_one_thread_works_where_the_others_leave_at_once():
    leave = "if (threadIdx.x > 0) return;"
    assert accesses_of(f"{leave} a[0] = 1;", {"a": 4}, {}).one_thread
    assert not accesses_of(f"float s = a[threadIdx.x]; __syncthreads(); {leave} a[0] = s;", {"a": 4}, {}).one_thread


@pytest.mark.parametrize(
    "body",
    [
        "float s = b[i] > 0 ? a[i] : 0; float t = a[i]; t += a[i];",
        "float s = 0; if (b[i] > 0 && a[i] > 1) s = 1; s += a[i]; b[i + n] = s;",
    ],
)
def test_a_load_that_data_decide_counts_once_with_the_same_one_after_it(body):
    loads = [a for a in read(f"int i = threadIdx.x; {body}") if a.array == "a"]
    assert [str(a.address) for a in loads] == [T]


def test_a_barrier_in_a_loop_counts_once():
    assert len(accesses_of("for (int j = 0; j < n; ++j) __syncthreads();", {}, {"n": symbol("n")}).barriers) == 1


# ---- aliases, casts, structures, macros, calls ------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("float *p = a + 3; p += 2; p[threadIdx.x] = 1;", [("a", f"{T} + 5", True)]),
        ("float *p = a; *p++ = 1; *p = 2;", [("a", "0", True), ("a", "1", True)]),
        ("float *p = a; *++p = 1;", [("a", "1", True)]),
        ("float &r = a[threadIdx.x]; r = 2;", [("a", T, True)]),
        ("float &r = a[threadIdx.x]; b[0] = r;", [("a", T, False), ("b", "0", True)]),
        ("float *p = &a[4]; p[1] = 2;", [("a", "5", True)]),
        ("(a + 1)[n] = 2;", [("a", "n + 1", True)]),
        ("a[(int)((float)threadIdx.x / 2)] = 1;", [("a", "?", True)]),
        ("float f = threadIdx.x; int k = f / 2; a[k] = 1;", [("a", "?", True)]),
        ("unsigned char c = threadIdx.x; a[c] = 1;", [("a", "?", True)]),
        ("a[UNKNOWN_MACRO] = 1;", [("a", "?", True)]),
        ("a[INDEX(threadIdx.x, n)] = 1;", [("a", "?", True)]),
        ("float2 v; a[v.x] = 1;", [("a", "?", True)]),
        ("a[threadIdx.x / 32] = 1;", [("a", f"floor({T}/32)", True)]),
        ("a[threadIdx.x * threadIdx.x] = 1;", [("a", "?", True)]),
        ("int k = 1; change(&k); a[k] = 1;", [("a", "?", True)]),
        ("int k = 1; for (int j = 0; j < n; ++j) change(&k); a[k] = 1;", [("a", "?", True)]),
        ("__shared__ int k; k = 3; __syncthreads(); a[k] = 1;", [("a", "?", True)]),
        ("atomicAdd(&a[threadIdx.x], 1);", [("a", T, True)]),
        ("b[0] = __ldg(a + threadIdx.x);", [("a", T, False), ("b", "0", True)]),
        ("a[0x1F + 0] = 1;", [("a", "31", True)]),
        ("int u[4]; u[threadIdx.x] = 1; a[u[0]] = 1;", [("a", "?", True)]),
        ("a[0] = b[0] = 1;", [("b", "0", True), ("a", "0", True)]),
    ],
)  # fmt: skip
def test_aliases_casts_structures_and_macros(body, expected):
    assert shown(body) == expected


@pytest.mark.parametrize(
    "cast", ["(float4*)a", "reinterpret_cast<float4*>(a)", "reinterpret_cast<const float4 *>(a + 8)"]
)
def test_a_pointer_of_another_size_counts_in_its_own_elements(cast):
    (access,) = read(f"float4 v = ({cast})[threadIdx.x];")
    assert (access.size, access.known) == (16, True)
    assert access.address == symbol(T) + (2 if "8" in cast else 0)


def test_members_of_elements_are_loaded_and_stored():
    found = accesses_of("v[threadIdx.x].x = v[n].y;", {"v": 8}, {"n": symbol("n")}).accesses
    assert [(a.array, str(a.address), a.store) for a in found] == [("v", "n", False), ("v", T, True)]


@pytest.mark.parametrize(("type_", "size"), [("double", 8), ("float", 4), ("real", 8), ("unsigned char", 1)])
def test_elements_of_shared_arrays_have_the_size_of_their_type(type_, size):
    found = accesses_of(
        f"__shared__ {type_} s[16][9]; s[threadIdx.y][threadIdx.x] = 1;", {}, {}, types={"real": "double"}
    )
    (access,) = found.accesses
    assert (access.size, access.shared) == (size, True)
    assert access.address == 9 * symbol("threadIdx_y") + symbol(T)


@pytest.mark.parametrize(
    "body",
    [
        "float *p = n < m ? a : b; p[0] = 1;",
        "float *p; if (n < m) p = a; else p = b; p[0] = 1;",
        "float *p; p[0] = 1;",
        "float *p = a; for (int j = 0; j < n; ++j) { p[0] = 1; p = b; }",
        "helper(a, n);",
        "helper(&a[3]);",
        "float *p[2]; p[0] = a;",
        "[&](int i) { a[i] = 1; }(3);",
        "switch (n) { case 1: a[0] = 1; }",
        "goto end; end: ;",
        "struct S { int x; }; a[0] = 1;",
        "s.pointer[3] = 1; } void other() {",
        "p->pointer[3] = 1;",
        "a[0, 1] = 2;",
    ],
)
def test_what_is_not_understood_is_no_answer(body):
    with pytest.raises(NotUnderstood):
        read(body)


def test_a_value_loaded_from_one_place_is_one_value_only_where_nothing_is_stored():
    body = "int k = b[0]; a[k] = 1; b[n] = 2; a[k + 1] = 3;"
    assert [a.known for a in read(body) if a.array == "a"] == [False, False]
    body = "int k = b[0]; a[k] = 1;"
    assert [a.known for a in read(body, constant=["b"]) if a.array == "a"] == [True]


# ---- beside kernels that run ------------------------------------------------------------------


@dataclass
class Run:
    """A kernel as text, and as functions that run it for one thread: what it touches is noted."""

    thread: int
    env: dict[str, int]
    touched: list[tuple[str, int, bool]] = field(default_factory=list)
    steps: int = 0


class Stop(Exception):
    """`return`."""


def expression(depth: int):
    """(text, function of a Run) pairs."""
    leaves = st.one_of(
        st.integers(0, 4).map(lambda v: (str(v), lambda run: v)),
        st.sampled_from("ijknm").map(lambda name: (name, lambda run: run.env[name])),
        st.just(("(int)threadIdx.x", lambda run: run.thread)),
    )
    if depth == 0:
        return leaves
    inner = expression(depth - 1)

    def both(parts):
        (left, one), operator, (right, other) = parts
        apply = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[operator]
        return f"({left} {operator} {right})", lambda run: apply(one(run), other(run))

    return st.one_of(leaves, st.tuples(inner, st.sampled_from("+-*"), inner).map(both))


def condition():
    def compare(parts):
        (left, one), operator, (right, other), turned = parts
        apply = {"<": int.__lt__, ">=": int.__ge__, "==": int.__eq__, "!=": int.__ne__}[operator]
        text = f"{left} {operator} {right}"
        if turned:
            return f"!({text})", lambda run: not apply(one(run), other(run))
        return text, lambda run: apply(one(run), other(run))

    parts = st.tuples(expression(1), st.sampled_from(["<", ">=", "==", "!="]), expression(1), st.booleans())
    return parts.map(compare)


def statements(depth: int):
    inner = statements(depth - 1) if depth else None
    kinds = [assignments(), stores(), pointers()]
    if inner is not None:
        kinds += [branches(inner).map(looked_at), loops(inner).map(looked_at)]
    body = st.lists(st.one_of(*kinds), min_size=1, max_size=4).map(sequence)
    return body if depth == 3 else st.one_of(body, body, body, st.just(("return;", stop)))


def sequence(parts):
    return " ".join(text for text, _ in parts), lambda run: [do(run) for _, do in parts]


def looked_at(part):
    """Behind a branch or a loop, every variable is an index."""
    return sequence([part, *all_variables()])


def stop(run):
    raise Stop


def assignments():
    def make(parts):
        name, operator, (text, value) = parts

        def do(run):
            run.env[name] = value(run) if operator == "=" else run.env[name] + value(run)

        return f"{name} {operator} {text};", do

    return st.tuples(st.sampled_from("ijk"), st.sampled_from(["=", "+="]), expression(1)).map(make)


SITES = count()  # each store has an array of its own, so that each is looked at alone


def store_at(index):
    text, value = index
    name = f"s{next(SITES)}"
    return f"{name}[{text}] = 1;", lambda run: run.touched.append((name, value(run), True))


def stores():
    return expression(2).map(store_at)


def all_variables():
    """Every variable is an index."""
    return [store_at((name, lambda run, name=name: run.env[name])) for name in "ijk"]


def pointers():
    def store(run):
        run.touched.append(("q", run.env["p"], True))

    def bump(run):
        run.env["p"] += 2

    def both(run):
        store(run)
        run.env["p"] += 1

    return st.sampled_from([("p[0] = 1;", store), ("p += 2;", bump), ("*p++ = 1;", both)])


def branches(inner):
    def make(parts):
        (test, holds), (then, one), other = parts
        text = f"if ({test}) {{ {then} }}" + (f" else {{ {other[0]} }}" if other else "")

        def do(run):
            if holds(run):
                one(run)
            elif other:
                other[1](run)

        return text, do

    return st.tuples(condition(), inner, st.none() | inner).map(make)


BOUNDS = st.sampled_from(
    [("n", lambda run: N), ("m + 1", lambda run: M + 1), ("4", lambda run: 4), ("k", lambda run: run.env["k"])]
)


def loops(inner):
    def make(parts):
        name, own, (first, start), (last, bound), step, inside, beside = parts
        beside = beside if beside != name else ""
        text, body = sequence([*all_variables(), inside])

        def do(run):
            hidden = run.env[name]
            run.env[name] = start(run)
            while run.env[name] < bound(run):
                run.steps += 1
                if run.steps > 300:
                    raise Stop
                body(run)
                run.env[name] += step
                if beside:
                    run.env[beside] += 2
            if own:
                run.env[name] = hidden

        increment = f"++{name}" if step == 1 else f"{name} += {step}"
        increment += f", {beside} += 2" if beside else ""
        return f"for ({'int ' * own}{name} = {first}; {name} < {last}; {increment}) {{ {text} }}", do

    names, beside = st.sampled_from("ijk"), st.sampled_from(["", "i", "j", "k", "p"])
    return st.tuples(names, st.booleans(), expression(0), BOUNDS, st.sampled_from([1, 2]), inner, beside).map(make)


def addresses(access: MemoryAccess, thread: int) -> set[int] | None:
    """All that an access may touch in a thread; None: that is not known."""
    if not access.known:
        return None
    known = {symbol(T): thread, symbol("n"): N, symbol("m"): M}
    places = [known]
    for loop in access.loops:
        more = []
        for place in places:
            trips, first, step = (sp.sympify(e).subs(place) for e in (loop.trips, loop.first, loop.step))
            if not (trips.is_Integer and first.is_Integer):
                return None
            more += [{**place, loop.counter: first + number * step} for number in range(int(trips))]
        places = more
    found = {access.address.subs(place) for place in places}
    return {int(f) for f in found} if all(f.is_Integer for f in found) else None


@settings(max_examples=examples(50))
@given(statements(3))
def test_all_that_a_kernel_touches_was_read_from_its_text(kernel):
    text, run_it = kernel
    body = "int i = 0, j = 1, k = 2; float *p = q; " + text
    arrays = dict.fromkeys(["q", *re.findall(r"\bs\d+", text)], 4)
    read_from_it = accesses_of(body, arrays, {"n": symbol("n"), "m": symbol("m")}).accesses
    for thread in range(3):
        run = Run(thread, {"i": 0, "j": 1, "k": 2, "n": N, "m": M, "p": 0})
        with suppress(Stop):
            run_it(run)
        may = {
            array: [addresses(a, thread) for a in read_from_it if a.array == array and a.store]
            for array in {array for array, _, _ in run.touched}
        }
        for array, index, _ in run.touched:
            assert any(found is None or index in found for found in may[array]), (body, array, index, thread)

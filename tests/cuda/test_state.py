"""Variables that code uses beside its arguments, read from its text."""

import pytest

from dagc.cuda.state import Definitions


def used(text: str, body: str, *bound: str) -> dict[str, bool]:
    """Whether the body of a kernel writes each of the variables that it uses."""
    out: dict[str, bool] = {}
    for use in Definitions({"a.cu": text}).uses("k", body, bound, (), "k"):
        out[use.variable.name] = out.get(use.variable.name, False) or use.written
    return out


HITS = "__device__ int hits; __device__ float sums[64]; __constant__ float c[8]; __managed__ double m;\n"


@pytest.mark.parametrize(
    ("text", "body", "expected"),
    [
        ("", "hits = 0;", {"hits": True}),
        ("", "x[0] = hits;", {"hits": False}),
        ("", "x[0] = hits + sums[i] * m;", {"hits": False, "sums": False, "m": False}),
        ("", "sums[threadIdx.x] += 1;", {"sums": True}),
        ("", "++hits; m--;", {"hits": True, "m": True}),
        ("", "atomicAdd(&hits, 1);", {"hits": True}),
        ("", "atomicAdd(sums + i, 1);", {"sums": True}),
        ("", "atomicAdd(&sums[i], 1);", {"sums": True}),
        ("", "int* p = &hits; *p = 1;", {"hits": True}),
        ("", "*(sums + 1) = 2;", {"sums": True}),
        ("", "((float2*)sums)[1].x = 2;", {"sums": True}),
        ("", "*reinterpret_cast<float2*>(&sums[2]) = x[0];", {"sums": True}),
        ("", "*&hits = 1; float* const q = sums;", {"hits": True, "sums": True}),
        ("", "cudaGetSymbolAddress((void**)&p, hits);", {"hits": True}),
        ("", "modf(x[0], &sums[1]); mine(hits);", {"sums": True, "hits": True}),
        ("float f(const float* p) { return *p; }", "x[0] = f(sums) + f(&sums[1]) + __ldg(sums + i);", {"sums": False}),
        ("", "const float* q = &sums[1]; const float4 v = *(float4*)sums;", {"sums": False}),
        ("", "x[0] = (i ? sums : sums + 4)[*(sums + 1)];", {"sums": False}),
        ("", "x[0] = sqrtf(hits) + fminf(m, x[1]) + int2{m, m}.x; atomicAdd(x, m);", {"hits": False, "m": False}),
        ("", "x[0] = float(hits);", {"hits": False}),
        ("__device__ void k() { hits = 1; }", "k();", {"hits": True}),  # the kernel's own name
        ("", "int& r = hits; r = 1;", {"hits": True}),
        ("", "const int& r = hits; x[0] = r;", {"hits": False}),
        ("", "float* p = sums; p[3] = 1;", {"sums": True}),
        ("", "auto f = [&](int i) { sums[i] = 1; }; f(2);", {"sums": True}),
        ("", "x[hits] = c[hits];", {"hits": False, "c": False}),
        ("", "x[0] = __ldg(&sums[1]);", {"sums": False}),
        ("", 'printf("%d", hits);', {"hits": False}),
        ("", "if (hits > 2 && m < 3) return;", {"hits": False, "m": False}),
        ("", 'asm volatile("st.global.u32 [hits], 1;");', {"hits": True}),
        ("", "std::swap(hits, x);", {"hits": True}),
        ("", "x = static_cast<float>(hits);", {"hits": False}),
        ("", "static_cast<int&>(hits) = 1;", {"hits": True}),
        ("", "int hits = 0; hits = 1;", {}),
        ("", "{ int hits = 0; hits = 1; } hits = 2;", {"hits": True}),
        ("", "p.hits = 1; p->hits = 2;", {}),
        ("", "// hits = 1;", {}),
        ("", 'x = "hits";', {}),
        ("", "::hits = 1;", {"hits": True}),
        ("namespace n { __device__ int w; }", "n::w = 1;", {"w": True}),
        ("__device__ void f() { hits = 1; }", "f();", {"hits": True}),
        ("__device__ int f() { return hits; }", "x = f();", {"hits": False}),
        ("__device__ int& f() { return hits; }", "f() = 1;", {"hits": True}),
        ("__device__ int* f() { return &hits; }", "*f() = 1;", {"hits": True}),
        ("__device__ void g() { hits = 1; } __device__ void f() { g(); }", "f();", {"hits": True}),
        ("__device__ void f(int* p) { *p = 1; }", "f(&hits);", {"hits": True}),
        ("__device__ void f(int& p) { p = 1; }", "f(hits);", {"hits": True}),
        ("__device__ int f(int p) { return p; }", "f(hits);", {"hits": False}),
        ("__device__ int f(const float* p) { return p[0]; }", "f(sums);", {"sums": False}),
        ("__device__ int f(float p[]) { return p[0]; }", "f(sums);", {"sums": True}),
        ("template <class T> __device__ void f(T x) { hits = x; }", "f<int>(1);", {"hits": True}),
        ("template <int* P> __device__ void f() { *P = 1; }", "f<&hits>();", {"hits": True}),
        ("template <class T> __device__ T acc;", "acc<int> = 1;", {"acc": True}),
        ("#define COUNT atomicAdd(&hits, 1)", "COUNT;", {"hits": True}),
        ("#define COUNT(v) (v)++", "COUNT(hits);", {"hits": True}),
        ("#define JOIN(a, b) a##b", "JOIN(hi, ts) = 1;", {"hits": True}),
        ("#define A B\n#define B C(hits)\n#define C(x) x = 1", "A;", {"hits": True}),
        ("#define DECLARE(n) __device__ int n##_total\nDECLARE(w);", "w_total = 1;", {"w_total": True}),
        ("#define DEV __device__\nDEV int w;", "w = 1;", {"w": True}),
        ("#ifdef X\n__device__ int w;\n#endif", "w = 1;", {"w": True}),
        ("#if 0\n__device__ int w;\n#endif", "w = 1;", {}),
        ("__device__ int* q = &hits;", "*q = 1;", {"q": True, "hits": True}),
        ("static __device__ int w;", "w = 1;", {"w": True}),
        ("extern __device__ int w;", "w = 1;", {"w": True}),
        ("__device__ __align__(16) float4 w[2];", "w[0].x = 1;", {"w": True}),
        ("struct P { int a; float b[3]; }; __device__ P w;", "w.b[1] = 1;", {"w": True}),
        ("struct P { int a; float b[3]; }; __device__ P w;", "x = w.b[1] + w.a;", {"w": False}),
        ("struct S { static int n; void up() { n++; } };", "S s; s.up();", {"n": True}),
        ("struct S { int hits; void up() { hits++; } };", "S s; s.up();", {}),
        ("struct S { static int n; };", "S s; s.n++;", {"n": True}),
        ("struct S { S() { hits++; } };", "S s;", {"hits": True}),
        ("struct S { ~S(); }; S::~S() { hits++; }", "S s;", {"hits": True}),
        ("struct S { void operator+=(int x) { hits += x; } };", "S s; s += 1;", {"hits": True}),
        ("struct S { void up(); }; void S::up() { hits++; }", "S().up();", {"hits": True}),
        ("using F = void (*)(); void g() { hits++; } __device__ F f = g;", "f();", {"f": True, "hits": True}),
        ("__device__ const float t[2] = {1, 2};", "x = t[1];", {}),
        ("constexpr int n = 3; const double d = 2;", "x = n + d;", {}),
        ("__shared__ extern float s[];", "s[0] = 1;", {}),
        ("", "static int n; n++;", {"k::n": True}),
        ("", "static const int n = 3; x = n;", {}),
        ("", "static __shared__ float s[3]; s[0] = 1;", {}),
        ("__device__ int next() { static int n; return n++; }", "next();", {"next::n": True}),
        ("int host; void f() { host = 1; }", "f();", {"host": True}),
        ("thread_local int host;", "host = 1;", {"host": True}),
        ("#include <vector>\nstd::vector<int> v;", "v.push_back(1);", {"v": True}),
        ("#include <vector>\nstd::vector<int> v;", "for (int i = 0; i < v.size(); ++i) x += v[i];", {"v": False}),
        ("void f(const float* p) { cudaMemcpyToSymbol(c, p, 4); }", "f(x);", {"c": True}),
        ("", "cudaMemcpyToSymbolAsync(c, p, 4, 0, cudaMemcpyHostToDevice, stream);", {"c": True}),
        ("", "cudaMemcpyFromSymbol(p, c, 4);", {"c": False}),
        ("", "void* p; cudaGetSymbolAddress(&p, sums);", {"sums": True}),
        ("__global__ void g(int* p) { hits = *p; }", "g<<<1, 1, 0, stream>>>(x);", {"hits": True}),
        ("int known() { static std::mutex m; static int n; std::lock_guard l(m); return n++; }", "known();", {}),
        ("__device__ int w) ( broken;\n__device__ int v[3];", "v[0] = 1;", {"v": True}),
    ],
)  # fmt: skip
def test_uses(text: str, body: str, expected: dict[str, bool]) -> None:
    assert used(HITS + text, body, "x", "p", "i", "stream") == expected


@pytest.mark.parametrize(
    ("body", "kept"),
    [("saved = x;", True), ("float* q = x + 3; saved = &q[1];", True), ("saved = &x[2];", True),
     ("saved[0] = x[1];", False), ("hits = x[0];", False), ("saved = nullptr;", False)],
)  # fmt: skip
def test_a_kept_address(body: str, kept: bool) -> None:
    uses = Definitions({"a.cu": HITS + "__device__ float* saved;"}).uses("k", body, ("x",), (), "k")
    assert any(use.keeps for use in uses) is kept

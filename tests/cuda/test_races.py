"""Races within one launch, read from the text of a kernel."""

from __future__ import annotations

import pytest

from dagc.cuda.races import UNKNOWN, ElementPlace, LaunchOf, Value, between_blocks, between_lanes, elements_named
from dagc.cuda.state import Definitions

GID = "int tid = threadIdx.x, gid = blockIdx.x * blockDim.x + threadIdx.x;"
FILE = """
#define MINE blockIdx.x
constexpr int kHalf = 16;
__device__ float sum(const float* p, int i, int n) { return i < n ? p[i] : 0; }
__device__ int here() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ int around(int i, int n) { return i >= n ? i - n : i; }
__device__ volatile int arrived;
__device__ void meet(int all) {
  if (!threadIdx.x) { atomicAdd((int*)&arrived, 1); while (arrived != all) {} }
  __syncthreads();
}
__device__ void set(float* p, int i) { p[i] = 1; }
__device__ void set(float* p, int i, int by) { p[i + by] = p[i]; }
template <int W> __device__ void lanes(volatile float* s, int t) {
  if (W >= 32) s[t] += s[t + kHalf];
  s[t] += s[t + 8];
}
"""

NEXT = ("x[gid]", "x[gid + 1]")


def launch(text: str, grid: tuple[int, int, int] = (3, 1, 1), block: tuple[int, int, int] = (128, 1, 1)) -> LaunchOf:
    definitions = Definitions({"a.cu": FILE})
    names: dict[str, Value] = {n: ElementPlace(n, 0, view="4") for n in ("x", "y", "col")}
    names |= {"n": 4096, "k": 1, "v": UNKNOWN, **definitions.numbers()}
    return LaunchOf(definitions.block(text), names, grid, block, definitions.functions)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{GID} float s = gid < n ? x[gid] : 0; if (tid == 0) x[blockIdx.x] = s;", ("x[blockIdx.x]", "x[gid]")),
        (f"{GID} float s = sum(x, gid, n); if (!tid) x[MINE] = s;", ("x[blockIdx.x]", "p[i]")),
        (f"{GID} for (int i = gid; i < n; i += 512) v += x[i]; float* p = x + MINE; if (!tid) *p = v;", ("*p", "x[i]")),
        (f"{GID} x[gid] = x[gid + 1];", ("x[gid]", "x[gid + 1]")),
        (f"{GID} if (gid > 0) x[gid] += *(x + gid - 1);", ("x[gid]", "*(x + gid - 1)")),
        (f"{GID} if (gid == 130) atomicAdd(&x[0], x[gid]); else y[gid] = x[gid];", ("&x[0]", "x[gid]")),
        (f"{GID} if (tid >= 1) return; x[blockIdx.x] = x[blockIdx.x * 2];", ("x[blockIdx.x]", "x[blockIdx.x * 2]")),
        ("int i = here(); x[i] = x[i + 1];", ("x[i]", "x[i + 1]")),
        (f"{GID} x[gid] += x[around(gid + 1, n)];", ("x[gid]", "x[around(gid + 1, n)]")),
        (f"{GID} int e = gridDim.x * 128 - 1; x[e - gid] = x[gid];", ("x[e - gid]", "x[gid]")),
        (f"{GID} float4* p = (float4*)x; p[gid] = p[gid + 1];", ("p[gid]", "p[gid + 1]")),
        (f"{GID} for (int d = -1; d < 2; d++) v += x[gid + 1 + d]; x[gid + 1] = v;", ("x[gid + 1]", "x[gid + 1 + d]")),
        (f"{GID} v = x[gid]; if (tid % 32 == 0) x[gid / 32] = v;", ("x[gid / 32]", "x[gid]")),
        (f"{GID} set(x, gid, 1);", ("p[i + by]", "p[i]")),
        (f"{GID} float4* p = (float4*)x; p[gid] = f(x[4 * gid], x[4 * gid + 3]);", None),
        (f"{GID} x[gid] = v; meet(gridDim.x); y[gid] = x[gid + 1];", None),  # waits for the other blocks
        (f"{GID} if (!tid && gid) {{ while (atomicAdd(&y[blockIdx.x], 0) == 0); x[gid] += x[gid - 128]; }}", None),
        (f"{GID} int f; do {{ f = y[gid]; }} while (f == 0); x[gid] = x[gid + 1];", None),
        (f"{GID} int k = 0; while (y[gid] == 0) k++; x[gid] = x[gid + 1];", None),
        (f"{GID} if (tid == 77) while (!y[gid]); __syncthreads(); x[gid] = x[gid + 1];", None),  # a thread not executed
        (f"{GID} int o = v, a; do {{ a = o; o = atomicCAS(y, a, 2); }} while (a != o); x[gid] = x[gid + 1];", NEXT),
        (f"{GID} int l = 0; while (l < v) {{ int m = l + 1; l = m; }} x[gid] = x[gid + 1];", NEXT),
        (f"{GID} do {{ x[gid] = x[gid + 1]; }} while (0);", NEXT),
        (f"{GID} x[gid] = 2 * x[gid];", None),
        (f"{GID} for (int i = gid; i < n; i += gridDim.x * blockDim.x) x[i] += y[i];", None),
        (f"{GID} y[blockIdx.x] = x[gid];", None),
        (f"{GID} if ((gid & 1) == k) x[gid] = x[gid - 1] + x[gid + 1];", None),  # red and black
        (f"{GID} int j = gid ^ k; if (j > gid) {{ float t = x[gid]; x[gid] = x[j]; x[j] = t; }}", None),  # bitonic
        (f"{GID} if (y[gid] > 0) x[blockIdx.x] = x[gid];", None),  # what is loaded decides
        (f"{GID} x[col[gid]] += x[gid];", None),
        (f"{GID} atomicAdd(&x[gid % 3], 1);", None),
        (f"{GID} int i = blockIdx.x; x[i * n + tid] = fminf(x[i * n + tid], x[i * n + k]);", None),
        (f"{GID} auto g = cooperative_groups::this_grid(); float s = x[gid]; g.sync(); x[blockIdx.x] = s;", None),
        ("for (;;) x[0] = 1;", None),
    ],
)  # fmt: skip
def test_between_blocks(text: str, expected: tuple[str, str] | None) -> None:
    found = between_blocks(launch(text), ("x", "y"))
    assert [(race.write, race.read) for race in found] == ([expected] if expected else [])


def test_mirrored_elements_of_a_large_grid() -> None:
    assert between_blocks(launch(f"{GID} x[n - 1 - gid] = x[gid];", grid=(32, 1, 1)), ("x",))


def test_one_block_does_not_race_with_another() -> None:
    assert not between_blocks(launch(f"{GID} x[gid] = x[gid + 1];", grid=(1, 1, 1)), ("x",))


SHARED = "__shared__ float s[128]; int t = threadIdx.x; s[t] = v; __syncthreads();"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{SHARED} if (t < 32) {{ s[t] += s[t + 16]; s[t] += s[t + 8]; }}", True),
        (f"{SHARED} if (t < 32) lanes<32>(s, t);", True),
        (f"{SHARED} volatile float* w = s; if (t < 32) {{ w[t] += w[t + 4]; w[t] += w[t + 2]; }}", True),
        (
            "__shared__ float s[4][33]; int t = threadIdx.x; s[t / 32][t % 32] = v; x[t] = s[t / 32][(t + 1) % 32];",
            True,
        ),
        (f"{SHARED} for (int d = 64; d > 32; d /= 2) {{ if (t < d) s[t] += s[t + d]; __syncthreads(); }}", False),
        (f"{SHARED} for (int d = 32; d; d /= 2) {{ if (t < d) s[t] += s[t + d]; __syncthreads(); }}", False),
        (f"{SHARED} if (t < 32) {{ float a = s[t + 16]; __syncwarp(); s[t] += a; __syncwarp(); }}", False),
        (f"{SHARED} float a = s[t]; a += __shfl_down_sync(~0u, a, 16); s[t] = a;", False),
        ("__shared__ float s[4][33]; int t = threadIdx.x; s[t / 32][t % 32] = v; x[t] = s[t / 32][t % 32];", False),
        ("__shared__ float one; if (threadIdx.x == 0) one = v; __syncthreads(); x[threadIdx.x] = one;", False),
        ("__shared__ float one; if (threadIdx.x == 0) one = v; x[threadIdx.x] = one;", True),
    ],
)
def test_between_lanes(text: str, expected: bool) -> None:
    assert bool(between_lanes(launch(text))) is expected


def test_elements_named() -> None:
    assert elements_named("x[i * n] = x[ i*n ] + ax[3] + a.x[4];", "x") == {"i*n"}
    assert elements_named("f(x); x[y[i]] = 1;", "x") == {"", "y[i]"}

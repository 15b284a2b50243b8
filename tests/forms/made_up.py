"""Made-up kernels that write each of n * n elements once, by grids, guards, loops and shared memory of many kinds."""

from __future__ import annotations

from random import Random

HELPER = """
cuda \"\"\"
__device__ inline float mixed(float a, float b) {
  if (a < b) return 0.5f * a + b;
  return a - 0.25f * b;
}
\"\"\"
"""


def made_up(name: str, random: Random) -> str:
    """The text of a kernel `name(y: out, x: in, n)`."""
    launch, index, axis = _grid(random)
    meets = random.random() < 0.4  # threads of a block
    lines = [*index, *_head(random, meets), *_loop(random, meets)]
    if meets:
        lines += _shared(random)
    if random.random() < 0.5:
        lines.append(f"v += 3 * gridDim.{axis} + blockIdx.{axis};")
    lines += ["if (in) y[i] = v;" if meets or random.random() < 0.3 else "y[i] = v;"]
    if "y[i] = v;" in lines and not any("return" in line for line in lines):
        lines[-1] = "if (in) y[i] = v;"
    if random.random() < 0.3:  # a parameter that changes
        lines = [line.replace("y[i] = v;", "*y = v;") for line in lines]
        lines.insert(len(index), "y += i;")
    body = "\n      ".join(lines)
    return (
        f"kernel {name}(y: out f32[n * n], x: in f32[(n + 2) * (n + 2)], n: i64) {{\n  gpu {{\n    launch {launch}\n"
        f'    cuda """\n      {body}\n    """\n  }}\n}}\n'
    )


def _grid(random: Random) -> tuple[str, list[str], str]:
    """The launch, the lines of the element `i` and of whether it is one, and the axis of the blocks that are joined."""
    block = random.choice((16, 32, 33))
    kind = random.choice(("ceil", "floor", "planes", "rows", "strips"))
    at = f"blockIdx.x * {block} + threadIdx.x"
    if kind in ("ceil", "floor"):
        grid = f"ceil(n * n / {block})" if kind == "ceil" else f"floor((n * n + {block - 1}) / {block})"
        return f"grid({grid}) block({block})", [f"const long i = {at};", "const bool in = i < n * n;"], "x"
    if kind == "rows":
        index = ["const long r = blockIdx.y;", f"const long c = {at};", "const long i = r * n + c;"]
        return f"grid(ceil(n / {block}), n) block({block})", [*index, "const bool in = c < n;"], "y"
    if kind == "planes":
        index = ["const long r = blockIdx.z;", f"const long c = {at};", "const long i = r * n + c;"]
        return f"grid(ceil(n / {block}), 1, n) block({block})", [*index, "const bool in = c < n;"], "z"
    index = ["const long r = blockIdx.y * 4 + threadIdx.y;", "const long c = blockIdx.x * 8 + threadIdx.x;"]
    index += ["const long i = r * n + c;", "const bool in = r < n && c < n;"]
    return "grid(ceil(n / 8), ceil(n / 4)) block(8, 4)", index, "y"


def _head(random: Random, meets: bool) -> list[str]:
    """The value of the element; of a thread without one 0, or it leaves."""
    if meets:
        return ["float v = in ? x[i] : 0.0f;"]
    return [
        random.choice(("if (!in) return;", "if (!in) { return; }", "if (!(in)) { /* no return; */ return; }")),
        "float v = x[i];",
    ]


def _loop(random: Random, meets: bool) -> list[str]:
    if random.random() < 0.3:
        return ["v = mixed(v, x[0]);"]
    leaving = ["if (v > 0.9f) break;", "if (k % 3 == 1) continue;"]
    if not meets:
        leaving.append("if (v < -0.7f) {\n          y[i] = -k;\n          return;\n        }")
    head = f"for (int k = 0; k < {random.randint(1, 6)}; ++k) {{"
    return [head, f"  {random.choice(leaving)}", f"  v = mixed(0.5f * v, x[k + {random.randint(0, 3)}]);", "}"]


def _shared(random: Random) -> list[str]:
    """Threads exchange values through shared memory, which the next block of a thread uses again."""
    place = "threadIdx.y * blockDim.x + threadIdx.x"
    lines = ["__shared__ float of_block[64];", f"of_block[{place}] = v;", "__syncthreads();"]
    lines.append(f"v += of_block[({place} + {random.randint(1, 7)}) % (blockDim.x * blockDim.y)];")
    return [*lines, "__syncthreads();"] if random.random() < 0.5 else lines

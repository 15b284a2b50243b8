"""Functions of cuBLAS that a program calls on arrays: the names of their parameters, and what they touch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dagc.record.log import Pieces

HEADER = "cublas_v2.h"

# Parameters after the handle. `x[n]`: a vector of n elements and its increment; `A[m, n]`: a matrix and its leading
# dimension; `[a | b : flag]`: b if the flag is not 0.
ROUTINES = {
    name: tuple(re.findall(r"(\w+)(?:\[([^\]]*)\])?", text))
    for name, text in {
        "axpy": "n alpha x[n] y[n]",
        "scal": "n alpha x[n]",
        "copy": "n x[n] y[n]",
        "swap": "n x[n] y[n]",
        "dot": "n x[n] y[n] result",
        "nrm2": "n x[n] result",
        "asum": "n x[n] result",
        "amax": "n x[n] result",
        "gemv": "trans m n alpha A[m, n] x[n | m : trans] beta y[m | n : trans]",
        "symv": "uplo n alpha A[n, n] x[n] beta y[n]",
        "ger": "m n alpha x[m] y[n] A[m, n]",
        "gemm": "transa transb m n k alpha A[m, k | k, m : transa] B[k, n | n, k : transb] beta C[m, n]",
        "geam": "transa transb m n alpha A[m, n | n, m : transa] beta B[m, n | n, m : transb] C[m, n]",
        "dgmm": "side m n A[m, n] x[m | n : side] C[m, n]",
    }.items()
}
_ROUTINE = re.compile(r"cublas(?:[SDCZHI][a-z]+(?:3m)?(?:Strided)?(?:Batched)?(?:Ex)?(?:_64)?|Gemm\w+)")
_OTHERS = ("cublasCreate", "cublasDestroy", "cublasInit", "cublasShutdown")
_NAME = re.compile(r"cublas(?:[SD]|I[sd](?=amax))(\w+)")


@dataclass(frozen=True, slots=True)
class LibraryFunction:
    """`arrays`: by the positions of pointers, their sizes; the parameter behind a pointer is its increment, or its
    leading dimension."""

    parameters: tuple[str, ...]
    arrays: Mapping[int, str]

    def touched(self, values: Mapping[str, int], index: int, width: int) -> Pieces:
        """Bytes from a pointer that a call with these numbers may touch; `width`: of an element. A result has one."""
        size, step = self.arrays.get(index), values.get(self.parameters[min(index + 1, len(self.parameters) - 1)], 0)
        if size is None:
            return ((0, width),)
        both, _, flag = size.partition(":")
        one = both.split("|")[bool(flag and values[flag.strip()])]
        sizes = [values[word.strip()] for word in one.split(",")]
        if min(sizes) <= 0:
            return ()
        if len(sizes) == 1:
            return ((0, (1 + (sizes[0] - 1) * abs(step)) * width),)
        rows, columns = sizes
        return ((0, ((columns - 1) * step + rows) * width),)


def lacks(name: str) -> bool:
    """Whether it is a function of cuBLAS that works on arrays, and that no program calls."""
    return _ROUTINE.fullmatch(name) is not None and name not in _OTHERS and library_function(name) is None


def library_function(name: str) -> LibraryFunction | None:
    """None for a function that no program calls."""
    found = _NAME.fullmatch(name)
    routine = ROUTINES.get(found[1]) if found is not None else None
    return None if routine is None else _function(routine)


def _function(routine: Sequence[tuple[str, str]]) -> LibraryFunction:
    names, arrays = list[str](), {}
    for name, size in routine:
        if size:
            arrays[len(names)] = size
        names += [name, f"{'ld' if ',' in size else 'inc'}{name.lower()}"] if size else [name]
    return LibraryFunction(tuple(names), arrays)


# ---- calls ----

START = """#include <cublas_v2.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace {

void must(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "cuBLAS: %s\\n", cublasGetStatusString(status));
  std::abort();
}

// Of a stream: a handle, and memory of the GPU for numbers that a call reads there. The handle has a workspace: without
// one a captured call allocates memory in the graph, whose edges cannot be changed then.
struct OfStream {
  cublasHandle_t handle = nullptr;
  char* numbers = nullptr;
};
constexpr std::size_t kNumber = 16, kWorkspace = std::size_t(32) << 20;  // bytes of the largest; for an H100 or later

OfStream& of_stream(cudaStream_t stream, cublasPointerMode_t mode) {
  static std::mutex mutex;
  static auto& all = *new std::map<cudaStream_t, OfStream>;  // never destroyed: the GPU may be released before
  const std::lock_guard<std::mutex> lock(mutex);
  OfStream& one = all[stream];
  if (one.handle == nullptr) {
    must(cublasCreate(&one.handle));
    must(cublasSetStream(one.handle, stream));
    char* workspace = nullptr;
    const bool good = cudaMalloc(&workspace, kWorkspace + 4 * kNumber) == cudaSuccess;
    must(good ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED);
    must(cublasSetWorkspace(one.handle, workspace, kWorkspace));
    one.numbers = workspace + kWorkspace;
  }
  must(cublasSetPointerMode(one.handle, mode));
  return one;
}

template <class T>
__global__ void store(T* to, T value) {
  *to = value;
}
template <class T>
const T* stored(const OfStream& of, int place, T value, cudaStream_t stream) {
  T* to = reinterpret_cast<T*>(of.numbers + place * kNumber);
  store<<<1, 1, 0, stream>>>(to, value);
  return to;
}

}  // namespace

"""


@dataclass(frozen=True, slots=True)
class FunctionArgument:
    """`type`: in C++, of what the function gets; `number`: whether cuBLAS gets a pointer to it; `computed`: whether it
    is in memory of the GPU; `cast`: the type of an enumerator."""

    name: str
    type: str
    number: bool = False
    computed: bool = False
    cast: str = ""


def function_text(function: str, arguments: Sequence[FunctionArgument]) -> str:
    """A function that calls one of cuBLAS on a stream, from its parameters on. Numbers are the host's, unless one is in
    memory of the GPU: then all are."""
    on_host = any(one.number for one in arguments) and not any(one.computed for one in arguments)
    parameters = [f"{one.type} {one.name}" for one in arguments]
    words = ", ".join(["of.handle", *_passed(arguments, on_host)])
    return (
        f"({', '.join([*parameters, 'cudaStream_t stream'])}) {{\n"
        f"  const OfStream& of = of_stream(stream, CUBLAS_POINTER_MODE_{'HOST' if on_host else 'DEVICE'});\n"
        f"  must({function}({words}));\n}}\n"
    )


def _passed(arguments: Sequence[FunctionArgument], on_host: bool) -> Iterator[str]:
    place = 0
    for one in arguments:
        if not one.number or one.computed:
            yield f"static_cast<{one.cast}>({one.name})" if one.cast else one.name
        elif on_host:
            yield f"&{one.name}"
        else:
            yield f"stored(of, {place}, {one.name}, stream)"
            place += 1

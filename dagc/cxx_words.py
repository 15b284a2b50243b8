"""Words of C++ and CUDA that nothing in a program's code may be named after."""

from __future__ import annotations

KEYWORDS = frozenset(
    """alignas alignof and asm auto bitand bitor bool break case catch char class compl concept const consteval
    constexpr constinit continue co_await co_return co_yield decltype default delete do double dynamic_cast else enum
    explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not nullptr
    operator or private protected public register reinterpret_cast requires return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union
    unsigned using virtual void volatile wchar_t while xor NULL""".split()
)
# What CUDA defines in every kernel.
VARIABLES = frozenset("threadIdx blockIdx blockDim gridDim warpSize".split())

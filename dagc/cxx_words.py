"""Words of C++ and CUDA that nothing in a program's code may be named after."""

from __future__ import annotations

import re

# The words of C++20, and what compilers add to them without an underscore: `typeof`, and macros of g++ in GNU modes.
KEYWORDS = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class
    compl concept const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int
    long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template
    this thread_local throw true try typedef typeid typename typeof union unsigned using virtual void volatile
    wchar_t while xor xor_eq NULL linux unix""".split()
)
# What CUDA defines in every kernel.
VARIABLES = frozenset("threadIdx blockIdx blockDim gridDim warpSize".split())
# Reserved by the standard for the compiler and its library: `_Complex`, `__int128`, `__restrict`, `__global__`,
# `_Pragma`, builtin macros such as `__FILE__`. No list of them is complete, so none of the class names anything.
_RESERVED = re.compile(r"__|_[A-Z]")


def is_reserved(name: str) -> bool:
    """Whether C++ reserves this name for the implementation in every scope (C++17, 5.10 [lex.name])."""
    return _RESERVED.match(name) is not None

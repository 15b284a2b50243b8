"""Functions of the application with which its host may compute a number: called, in a process of their own, with what
the host read."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dagc.base import children
from dagc.base.errors import BuildFailed
from dagc.base.python import np
from dagc.cuda.syntax import Declarator, bare_type, field_of, in_scopes, parsable, specifiers, text_of, tree_of
from dagc.cuda.text import signatures_of

_SECONDS = 20.0  # for all calls of all functions
_FLOATING = frozenset(("float", "double"))
# Builds a program of a text that includes a file of the application by its path there.
Builder = Callable[[str, str], Path]


@dataclass(frozen=True, slots=True)
class NumberFunction:
    """Of `arity` floating-point numbers, which gives one. `file`: that defines it."""

    name: str
    file: str
    arity: int


def functions_in(file: str, text: str) -> Iterator[NumberFunction]:
    """Those that the host may call, of one or two numbers, and that the file calls: others may do anything."""
    for node, template in in_scopes(tree_of(parsable(text).encode())):
        if node.type != "function_definition" or template:
            continue
        name = Declarator.of(field_of(node, "declarator")).name
        given, words = field_of(node, "type"), specifiers(node)
        signatures = signatures_of(text, name) if name and given is not None and text_of(given) in _FLOATING else ()
        on_gpu = "__global__" in words or ("__device__" in words and "__host__" not in words)
        if on_gpu or len(signatures) != 1 or len(re.findall(rf"\b{re.escape(name)}\s*\(", text)) < 2:
            continue
        types = signatures[0].types
        if len(types) in (1, 2) and all("*" not in t and "&" not in t and bare_type(t) in _FLOATING for t in types):
            yield NumberFunction(name, file, len(types))


class CallableFunctions:
    """The functions of an application. `build`: None: none can be called."""

    def __init__(self, texts: Mapping[str, str], build: Builder | None) -> None:
        self._texts, self._build, self._left = texts, build, _SECONDS

    @cached_property
    def _programs(self) -> dict[str, tuple[tuple[NumberFunction, ...], Path]]:
        out: dict[str, tuple[tuple[NumberFunction, ...], Path]] = {}
        for file, text in self._texts.items():
            found = tuple(functions_in(file, text))
            if found and self._build is not None:
                with suppress(BuildFailed):  # it needs another file: its functions are not tried
                    out[file] = found, self._build(_program(file, found), file)
        return out

    def __iter__(self) -> Iterator[NumberFunction]:
        return (function for functions, _ in self._programs.values() for function in functions)

    def values(self, function: NumberFunction, arguments: Sequence[np.ndarray]) -> np.ndarray | None:
        """What it gives for each row of `arguments`, each of its `arity`; None if it fails, takes too long, or gives
        something else when it is called again: it counts its calls."""
        functions, program = self._programs[function.file]
        columns = [column.astype(np.float64) for column in (*arguments, *arguments[:1])[:2]]
        rows = [*zip(*(column.ravel() for column in columns), strict=True)]
        number = functions.index(function)
        asked = "".join(f"{number} {float(a).hex()} {float(b).hex()}\n" for a, b in (*rows[::-1], *rows))
        begun = time.monotonic()
        try:
            done = children.run([program], seconds=max(self._left, 0.1), text=asked)
        except (OSError, subprocess.TimeoutExpired):
            return None
        finally:
            self._left -= time.monotonic() - begun
        answers = done.stdout.split()
        first, second = answers[: len(rows)], answers[len(rows) :]
        if done.returncode != 0 or first[::-1] != second:
            return None
        return np.array([float.fromhex(answer) for answer in second]).reshape(columns[0].shape)


def _program(file: str, functions: Sequence[NumberFunction]) -> str:
    """A program that calls them: a number of a function and two numbers a line. What they print is dropped."""
    calls = "".join(
        f'    case {n}: std::fprintf(answers, "%a\\n", (double){f.name}({"a, b"[: 3 * f.arity - 2]})); break;\n'
        for n, f in enumerate(functions)
    )
    return (
        f'#define main main_of_the_application\n#include "{file}"\n#undef main\n#include <cstdio>\n'
        "#include <unistd.h>\nint main() {\n"
        '  FILE* answers = fdopen(dup(1), "w");\n  if (!answers || !std::freopen("/dev/null", "w", stdout)) return 1;\n'
        '  int n = 0;\n  double a = 0, b = 0;\n  while (std::scanf("%d %la %la", &n, &a, &b) == 3) switch (n) {\n'
        f"{calls}    default: return 1;\n  }}\n}}\n"
    )

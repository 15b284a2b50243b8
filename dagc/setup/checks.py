"""Does what a set-up or a reference returned fit the declarations? Names, types, shapes, ranges."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dagc.base.errors import Diagnostic
from dagc.base.source import Span
from dagc.ir.enums import ElementType, Role
from dagc.ir.program import Array, Program, Scalar, regions
from dagc.ir.sym import Number, Sym, UnboundName, evaluate, free, show

if TYPE_CHECKING:
    import numpy as np

SET_ROLES = (Role.CONST, Role.IN, Role.INOUT)


def dtype(element: ElementType) -> np.dtype[Any]:
    """NumPy's type of an element type."""
    import numpy as np

    return np.dtype("?" if element is ElementType.BOOL else f"{element.value[0]}{element.size}")


def wanted(program: Program) -> tuple[str, ...]:
    """What a set-up gives: every per-rank scalar and every array that is set before the run."""
    arrays = (a.name for a in program.arrays if a.role in SET_ROLES)
    return (*(s.name for s in program.scalars), *arrays)


class Checker:
    """Checks the values of one rank; `diagnostics` collects what does not fit, all pointing at `span`."""

    def __init__(self, program: Program, rank: int, ranks: int, span: Span, giver: str) -> None:
        """`giver` names the function in messages."""
        self._program = program
        self._span = span
        self._giver = giver
        self._rank = rank
        self.env: dict[str, Number] = {"rank": rank, "ranks": ranks}
        self.diagnostics: list[Diagnostic] = []

    def names(self, returned: Iterable[str], needed: Iterable[str]) -> None:
        """The same names, no more and no fewer."""
        returned, needed = list(returned), list(needed)
        declared = {a.name: a for a in self._program.arrays}
        for name in needed:
            if name not in returned:
                near = difflib.get_close_matches(name, [g for g in returned if g not in needed], 1)
                help = f"`{near[0]}` is spelled `{name}`" if near else f"add {name!r} to the dict"
                self._add("setup-missing", f"does not return `{name}`", help)
        for name in returned:
            if name in needed:
                continue
            if name in declared:
                role = declared[name].role
                message = f"returns `{name}`, which is {role.value if role else 'scratch'}"
                self._add("setup-extra", message, "leave it out, or declare it in or inout")
            else:
                near = difflib.get_close_matches(name, needed, 1)
                help = f"did you mean `{near[0]}`" if near else "leave it out, or declare it"
                self._add("setup-extra", f"returns `{name}`, which is not declared", help)

    def scalar(self, scalar: Scalar, value: Any) -> Any:
        """The value as NumPy's scalar of the declared type; None where it does not fit."""
        import numpy as np

        kind = scalar.type.value
        array = np.asarray(value)
        plain = array.item() if array.ndim == 0 and array.dtype.kind in "iufb" else None
        if plain is None:
            self._add("setup-type", f"returns {_describe(value)} for the scalar `{scalar.name}`", f"give one {kind}")
            return None
        is_float, is_bool = kind[0] == "f", scalar.type is ElementType.BOOL
        if isinstance(plain, bool) != is_bool or (isinstance(plain, float) and not is_float):
            self._add("setup-type", f"returns {plain!r} for `{scalar.name}`", f"give one {kind}")
            return None
        if not is_float and not is_bool:
            bounds = np.iinfo(dtype(scalar.type))
            if not bounds.min <= plain <= bounds.max:
                help = f"it must be in {bounds.min} .. {bounds.max}, or declare a larger type"
                self._add("setup-range", f"returns {plain} for `{scalar.name}`, which is {kind}", help)
                return None
        self.env[scalar.name] = plain
        return dtype(scalar.type).type(plain)

    def array(self, array: Array, value: Any) -> Any:
        """The value as a C-ordered array of the declared type and shape; None where it does not fit."""
        import numpy as np

        want = dtype(array.type)
        if not isinstance(value, np.ndarray):
            help = f"give np.array(..., np.{want.name})"
            self._add("setup-type", f"returns {_describe(value)} for the array `{array.name}`", help)
            return None
        if value.dtype != want:
            message = f"returns type {value.dtype} for `{array.name}`, which is {array.type.value}"
            self._add("setup-type", message, f"give {array.name}.astype(np.{want.name})")
            return None
        shape = self.shape(array)
        if shape is None:
            return None
        fits = len(shape) == value.ndim and all(s is None or s == v for s, v in zip(shape, value.shape, strict=True))
        if not fits:
            message = f"returns shape {_shape(value.shape)} for `{array.name}`, expected {_shape(shape)}"
            self._add("setup-shape", message, "change the array, or the sizes in its declaration")
            return None
        return np.ascontiguousarray(value)

    def shape(self, array: Array) -> tuple[int | None, ...] | None:
        """Sizes on this rank, None where declared `*`; None as a whole where they cannot be had (reported)."""
        out: list[int | None] = []
        for number, dim in enumerate(array.dims, 1):
            if dim is None:
                out.append(None)
                continue
            size = self.size(dim, f"size {number} of `{array.name}`")
            if size is None:
                return None
            out.append(size)
        return tuple(out)

    def conditions(self) -> None:
        """The `require`s left for run time, and the slices of ops. What names the hardware waits for the run."""
        for condition in self._program.requires:
            if self._evaluated(condition) is False:
                values = ", ".join(f"{name} = {self.env[name]}" for name in sorted(free(condition)))
                self._add("setup-require", f"breaks `require {show(condition)}`: {values}", "change these values")
        for region in dict.fromkeys(r for op in self._program.ops for r in regions(op)):
            array = next(a for a in self._program.arrays if a.name == region.array)
            bounds = (region.start, region.stop, array.dims[0] if array.dims else None)
            start, stop, length = (None if b is None else self._evaluated(b) for b in bounds)
            if start is None or stop is None:
                continue
            if not 0 <= start <= stop or (length is not None and stop > length):  # type: ignore[operator]
                within = f" within 0 .. {length}" if length is not None else ""
                message = f"makes `{region.array}[{start} .. {stop}]` of a slice, which is none{within}"
                self._add("setup-require", message, "change the scalars that it depends on")

    def _evaluated(self, expr: Sym) -> Number | None:
        try:
            return evaluate(expr, self.env)
        except (UnboundName, ZeroDivisionError, ValueError, TypeError):
            return None

    def size(self, expr: Sym, what: str) -> int | None:
        """A whole number, 0 or more; None where it is not (reported) or depends on a value already found wrong."""
        try:
            value = evaluate(expr, self.env)
        except UnboundName as error:
            # A scalar that was missing or wrong has been reported already.
            if not any(s.name == error.args[0] for s in self._program.scalars):
                self._add("setup-size", f"needs {what}, which depends on `{error.args[0]}`", "use per-rank scalars")
            return None
        except (ZeroDivisionError, ValueError, TypeError) as error:
            self._add("setup-size", f"makes {what} meaningless: {error}", "change the scalars it depends on")
            return None
        if isinstance(value, (str, bool)) or value < 0 or value != int(value):
            shown = f"{float(value):g}" if isinstance(value, Fraction) else value
            self._add("setup-size", f"makes {what} {shown}", "it must be a whole number, 0 or more")
            return None
        return int(value)

    def _add(self, code: str, message: str, help: str) -> None:
        self.diagnostics.append(Diagnostic(code, f"`{self._giver}` {message} (rank {self._rank})", self._span, help))


def environment(program: Program, data: Mapping[str, Any], rank: int, ranks: int) -> dict[str, Number]:
    """Per-rank values for `evaluate`, from data that was checked."""
    env: dict[str, Number] = {"rank": rank, "ranks": ranks}
    return env | {s.name: data[s.name].item() for s in program.scalars}


def _describe(value: Any) -> str:
    shape = getattr(value, "shape", None)
    kind = type(value).__name__
    return f"{kind} of shape {_shape(shape)}" if shape is not None else kind


def _shape(shape: Iterable[int | None]) -> str:
    sizes = ["*" if s is None else str(s) for s in shape]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

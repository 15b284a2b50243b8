"""Choosers: which setting of a unit at which size. One decision rule, in Python and in C.

A chooser has a model (a rational program that gives the time of a launch), measured bests, or both:

  model alone     the setting that the model says is fastest; the first in the list (the default before all) wins ties
  measured bests  at a size that was measured, the best there; elsewhere the best of the nearest measured size, or the
                  first setting that can be launched where that cannot
  both            the same, unless the model says that another setting is faster by more than MARGIN at that size
  a selector      at a size that was measured, the best there; elsewhere what the selector has learned, or the first
                  setting that can be launched where its choice cannot

The distance of two sizes is the product over the data of the larger over the smaller value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dagc.base.resources import names_in
from dagc.choice.extent import C_BEYOND, Extent
from dagc.choice.legal import block_of, op_of
from dagc.choice.models import MODELS, doubts, ranking_model, why
from dagc.choice.types import Settings, Unit
from dagc.cuda.ptx import ASSUMED, Resources
from dagc.cuda.text import NotUnderstood
from dagc.ir.plan import Chooser, ChooserCall
from dagc.ir.program import Graph, Program
from dagc.ir.sym import Const, Sym, Var
from dagc.perf.counted import Fitted
from dagc.perf.cprint import BATCH_HELPERS, HELPERS, batch_to_c, padded_count, split, to_c
from dagc.perf.evaluate import Evaluator, evaluate_all
from dagc.perf.geometry import launchable_program
from dagc.perf.hardware import Hardware
from dagc.perf.program import ParameterKind, RationalProgram

if TYPE_CHECKING:
    from dagc.choice.selector import Selector


# ---- in C99 ----

C_HEAD = (
    "/* Launch configurations, chosen for the sizes at hand. Written by dagc tune. */\n"
    + HELPERS
    + BATCH_HELPERS
    + """\
#ifndef DAGC_THREAD
#define DAGC_THREAD __thread
#endif
/* How far apart two sizes are: the larger over the smaller. */
static inline double dagc_apart(int64_t a, int64_t b) {
  const int64_t low = a < b ? a : b, high = a < b ? b : a;
  return low > 0 ? (double)high / (double)low : (double)(high > 1 ? high : 1);
}
"""
    + C_BEYOND
)


def function_name(op: str) -> str:
    """Of the C function that chooses for `op`."""
    return f"dagc_choose_{_identifier(op)}"


def outside_name(op: str) -> str:
    """Of the C function that says how far sizes lie outside of those that were measured for `op`."""
    return f"dagc_outside_{_identifier(op)}"


def chooser_c(chooser: UnitChooser, margin: float) -> str:
    """C99: `static inline void dagc_choose_OP(int64_t <data>..., int64_t* <tunable>...)`; C_HEAD goes before it.

    Asked again for the sizes of the last call, it answers from memory. `margin`: how much faster the model must find
    another setting than the best of the nearest measured size, as a share.
    """
    name, n = _identifier(chooser.op), len(chooser.settings)
    tunables = [t for t, _ in chooser.settings[0]]
    out = []
    if chooser.model is not None:
        out.append(to_c(chooser.model, f"dagc_time_{name}"))
    if chooser.launchable is not None:
        out.append(to_c(chooser.launchable, f"dagc_launchable_{name}"))
    if chooser.selector is not None:
        out.append(chooser.selector.c_text(f"dagc_select_{name}"))
    rows = ", ".join("{" + ", ".join(str(v) for _, v in s) + "}" for s in chooser.settings)
    out.append(f"static const int32_t dagc_settings_{name}[{n}][{len(tunables)}] = {{{rows}}};\n")
    for column, values in chooser.columns:
        numbers = ", ".join(_number(v) for v in values)
        out.append(f"static const {_column_type(column)} dagc_{column}_{name}[{n}] = {{{numbers}}};\n")
    if chooser.anchors:
        rows = ", ".join("{" + ", ".join(f"INT64_C({v})" for v in (*a.data, a.chosen)) + "}" for a in chooser.anchors)
        shape = f"[{len(chooser.anchors)}][{len(chooser.data) + 1}]"
        out.append(f"static const int64_t dagc_measured_{name}{shape} = {{{rows}}};\n")
    if chooser.model is not None:
        out.append(_times(chooser, chooser.model, name))
    args = ", ".join([f"int64_t {_identifier(d)}" for d in chooser.data] + [f"int64_t* {t}_" for t in tunables])
    out.append(f"static inline void {function_name(chooser.op)}({args or 'void'}) {{\n{_body(chooser, name, margin)}")
    out += [f"  *{t}_ = dagc_settings_{name}[chosen][{i}];\n" for i, t in enumerate(tunables)]
    out.append("}\n")
    if chooser.extent.ranges:
        out.append(chooser.extent.c_text(outside_name(chooser.op)))
    return "".join(out)


def _body(chooser: UnitChooser, name: str, margin: float) -> str:
    data = [_identifier(d) for d in chooser.data]
    same = " && ".join(["known", *(f"last[{i}] == {d}" for i, d in enumerate(data))])
    lines = [
        f"  static DAGC_THREAD int64_t last[{max(1, len(data))}];",
        "  static DAGC_THREAD int known, chosen;",
        f"  if (!({same})) {{",
    ]
    nearest = bool(chooser.anchors)
    if nearest:
        distance = " * ".join(f"dagc_apart(dagc_measured_{name}[i][{k}], {d})" for k, d in enumerate(data)) or "1.0"
        exact = " && ".join(f"dagc_measured_{name}[near][{k}] == {d}" for k, d in enumerate(data)) or "1"
        lines += [
            "    int near = 0;",
            "    double least = 0;",
            f"    for (int i = 0; i < {len(chooser.anchors)}; ++i) {{",
            f"      const double apart = {distance};",
            "      if (i == 0 || apart < least) least = apart, near = i;",
            "    }",
            f"    chosen = (int)dagc_measured_{name}[near][{len(data)}];",
        ]
    else:
        lines.append("    chosen = 0;")
    if chooser.selector is not None:
        lines += [f"    if (!({exact})) {{"] if nearest else ["    {"]
        lines += [*_selected(chooser, chooser.selector, name), "    }"]
    elif chooser.model is not None:
        lines += [f"    if (!({exact})) {{"] if nearest else ["    {"]
        arguments = "".join(f"{d}, " for d in data)
        better = "times[best] < INFINITY"
        if nearest:
            better += f" && !(times[chosen] <= {1 + margin!r} * times[best])"
        lines += [
            f"      double times[{padded_count(len(chooser.settings))}];",
            "      int best = 0;",
            f"      dagc_times_{name}({arguments}times);",
            f"      for (int i = 1; i < {len(chooser.settings)}; ++i) {{",
            "        if (times[i] < times[best]) best = i;",
            "      }",
            f"      if ({better}) chosen = best;",
            "    }",
        ]
    elif chooser.launchable is not None:
        lines += ["    {", *_launchable_or_first(chooser, name), "    }"]
    lines += [*(f"    last[{i}] = {d};" for i, d in enumerate(data)), "    known = 1;", "  }"]
    return "\n".join(lines) + "\n"


def _selected(chooser: UnitChooser, selector: Selector, name: str) -> list[str]:
    """The selector's choice; the first that can be launched where it cannot."""
    asked = f"      chosen = dagc_select_{name}({', '.join(_identifier(d) for d in selector.data)});"
    return [asked, *_launchable_or_first(chooser, name)]


def _launchable_or_first(chooser: UnitChooser, name: str) -> list[str]:
    """What was chosen, or the first that can be launched where it cannot."""
    if chooser.launchable is None:
        return []
    return [
        f"      for (int k = -1, wanted = chosen; k < {len(chooser.settings)}; ++k) {{",
        "        const int i = k < 0 ? wanted : k;",
        f"        if (!{_call(chooser, 'launchable', chooser.launchable, name)}) continue;",
        "        chosen = i;",
        "        break;",
        "      }",
    ]


def _times(chooser: UnitChooser, model: RationalProgram, name: str) -> str:
    """The model's time of each setting, infinite where it cannot be launched."""
    data = [_identifier(d) for d in chooser.data]
    out = []
    lines = [f"static inline void dagc_times_{name}({''.join(f'int64_t {d}, ' for d in data)}double* times) {{"]
    programs = [model] if chooser.launchable is None else [model, chooser.launchable]
    batch = split(programs, dict(chooser.columns))
    if batch is not None:
        out.append("/* The same for all settings at once. What depends on them alone is in tables. */\n")
        out.append(batch_to_c(batch, f"dagc_batch_{name}", data, len(chooser.settings)))
        known = " && ".join(["DAGC_IEEE", *(f"{d} >= 1 && {d} <= {batch.limit}" for d in data)])
        lines += [
            f"  if ({known}) {{",
            f"    dagc_batch_{name}({''.join(f'{d}, ' for d in data)}times);",
            "    return;",
            "  }",
        ]
    time = _call(chooser, "time", model, name)
    if chooser.launchable is not None:
        time = f"{_call(chooser, 'launchable', chooser.launchable, name)} ? {time} : INFINITY"
    lines.append(f"  for (int i = 0; i < {len(chooser.settings)}; ++i) times[i] = {time};")
    return "".join(out) + "\n".join([*lines, "}"]) + "\n"


def _call(chooser: UnitChooser, what: str, program: RationalProgram, name: str) -> str:
    columns = {c for c, _ in chooser.columns}
    args = [f"dagc_{p.name}_{name}[i]" if p.name in columns else _identifier(p.name) for p in program.parameters]
    return f"dagc_{what}_{name}({', '.join(args)})"


def _column_type(column: str) -> str:
    return "double" if column == "log2_threads" else "int64_t"


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


# ---- in Python ----


# Found on the oracle of an H200: with the best of one size kept unless the model gains 5 %, the mean regret is least.
MARGIN = 0.05


def worth_measuring(top: int, legal: int) -> int:
    """How many of a ranking are measured: `top`, but at most half of the legal ones, so that it always costs less than
    measuring all."""
    return min(top, (legal + 1) // 2)


@lru_cache(maxsize=64)
def _over_settings(program: RationalProgram, columns: tuple[tuple[str, tuple[float, ...]], ...]) -> Evaluator:
    """A model over all settings; what depends on these alone is computed once."""
    import numpy as np

    names = {p.name for p in program.parameters}
    return Evaluator(program, {n: np.array(v) for n, v in columns if n in names})


@dataclass(frozen=True, slots=True)
class Anchor:
    """At these sizes (in the order of the chooser's data), this setting was the best of those measured."""

    data: tuple[int, ...]
    chosen: int


@dataclass(frozen=True, slots=True)
class UnitChooser:
    """`data` names the per-rank scalars that it asks for, and parameters of which measured sizes differ; `constants`
    are the values of these in its program. `settings[0]` is the default.

    `model` gives the time of a launch in cycles, all but sizes and the block put in; None: measured bests only.
    `selector` answers with indices of `settings` where nothing was measured; there is no model beside it.
    """

    op: str
    settings: tuple[Settings, ...]
    data: tuple[str, ...]
    columns: tuple[tuple[str, tuple[float, ...]], ...]  # program parameters of the model -> a value for each setting
    model: RationalProgram | None
    launchable: RationalProgram | None
    anchors: tuple[Anchor, ...] = ()
    note: str = ""
    selector: Selector | None = None
    constants: tuple[tuple[str, int], ...] = ()

    @property
    def extent(self) -> Extent:
        """Of the measured sizes; without any, nothing."""
        return Extent.of(dict(zip(self.data, anchor.data, strict=True)) for anchor in self.anchors)

    # ---- in Python ----------------------------------------------------------------------------

    def times(self, sizes: Mapping[str, int]) -> list[float]:
        """The model's time of each setting in cycles; infinite where it cannot be launched."""
        import numpy as np

        assert self.model is not None
        times = np.broadcast_to(_over_settings(self.model, self.columns)(sizes), len(self.settings))
        return [float(t) if good else float("inf") for t, good in zip(times, self.can_launch(sizes), strict=True)]

    def can_launch(self, sizes: Mapping[str, int]) -> list[bool]:
        """Whether each setting can be launched at the sizes; all can where nothing is known about it."""
        import numpy as np

        if self.launchable is None:
            return [True] * len(self.settings)
        good = _over_settings(self.launchable, self.columns)(sizes)
        return [bool(g == 1) for g in np.broadcast_to(good, len(self.settings))]

    def choose(self, sizes: Mapping[str, int]) -> int:
        """Index of the chosen setting."""
        sizes = {**sizes, **dict(self.constants)}
        here = tuple(int(sizes[n]) for n in self.data)
        nearest = self._nearest(here)
        if nearest is not None and nearest.data == here:
            return nearest.chosen
        if self.selector is not None or self.model is None:
            wanted = nearest.chosen if nearest is not None else 0
            if self.selector is not None:
                wanted = self.selector.choose([int(sizes[n]) for n in self.selector.data])
            good = self.can_launch(sizes)
            return next((i for i in (wanted, *range(len(self.settings))) if good[i]), wanted)
        times = self.times(sizes)
        best = min(range(len(times)), key=lambda i: times[i])
        if nearest is not None and times[nearest.chosen] <= (1 + MARGIN) * times[best]:
            return nearest.chosen
        return best

    def ranked(self, sizes: Mapping[str, int]) -> list[int]:
        """Indices of the settings that can be launched, fastest first by the model; by the list without one."""
        if self.model is None:
            return list(range(len(self.settings)))
        times = self.times(sizes)
        return sorted((i for i in range(len(times)) if times[i] < float("inf")), key=lambda i: times[i])

    def why(self, sizes: Mapping[str, int], chosen: int) -> str:
        """The largest term of the model's time: what limits the launch; what a selector has learned."""
        if self.selector is not None:
            return self.selector.text
        if self.model is None:
            return "measured"
        values = {n: v[chosen] for n, v in self._model_columns(self.model).items()}
        return why(
            {n: float(v) for n, v in evaluate_all(self.model, {**values, **self._sizes(self.model, sizes)}).items()}
        )

    def _model_columns(self, program: RationalProgram) -> dict[str, Any]:
        import numpy as np

        names = {p.name for p in program.parameters}
        return {n: np.array(v) for n, v in self.columns if n in names}

    @staticmethod
    def _sizes(program: RationalProgram, sizes: Mapping[str, int]) -> dict[str, int]:
        return {p.name: int(sizes[p.name]) for p in program.parameters if p.name in sizes}

    def _nearest(self, here: tuple[int, ...]) -> Anchor | None:
        best, least = None, 0.0
        for anchor in self.anchors:
            distance = 1.0
            for a, b in zip(anchor.data, here, strict=True):
                distance *= (float(max(a, b)) / float(min(a, b))) if min(a, b) > 0 else float(max(a, b, 1))
            if best is None or distance < least:
                best, least = anchor, distance
        return best

    # ---- in C ---------------------------------------------------------------------------------

    @property
    def function(self) -> str:
        return function_name(self.op)

    def c_text(self) -> str:
        """`dagc.choice.choose.chooser_c` of this chooser."""
        return chooser_c(self, MARGIN)


def compiled_chooser(choosers: Sequence[UnitChooser]) -> Chooser:
    """What a program takes in: all choosers as one C text, and the calls."""
    calls = tuple(
        ChooserCall(
            c.function, c.op, tuple(_argument(c, d) for d in c.data), tuple(t for t, _ in c.settings[0]),
            outside_name(c.op) if c.extent.ranges else "", c.extent.text,
        )
        for c in choosers
    )  # fmt: skip
    return Chooser(C_HEAD + "\n" + "\n".join(c.c_text() for c in choosers), calls)


def _argument(chooser: UnitChooser, name: str) -> Sym:
    constants = dict(chooser.constants)
    return Const(constants[name]) if name in constants else Var(name)


def constants_of(program: Program, names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Of the names, the whole parameters of a program, with their values."""
    values = {p.name: p.value for p in program.params}
    return tuple((n, value) for n in names if type(value := values.get(n)) is int)


def unit_chooser(
    graph: Graph,
    unit: Unit,
    settings: Sequence[Settings],
    hardware: Hardware,
    *,
    resources: Resources = ASSUMED,
    anchors: Sequence[tuple[Mapping[str, int], Settings]] = (),
    calibration: Mapping[str, float] | None = None,
    method: str = "volume",
    fits: Mapping[str, Fitted] | None = None,
    selector: Selector | None = None,
) -> UnitChooser:
    """The chooser of a unit. `anchors`: scalars at a measured size, and the setting that was the best there.
    `taken`: what the compiled kernel takes.
    `method`: one of `dagc.choice.models.MODELS`, any other has no model. `fits`: counts that were fitted to hardware
    counters. `selector`: its data are per-rank scalars, its labels indices of `settings`.

    Where the kernel's text cannot be read, the chooser has no model and its `note` says why.
    """
    op, program = op_of(graph, unit), graph.program
    blocks = [block_of(program, op, s) for s in settings]
    columns = {
        "blockDim_x": [float(b[0]) for b in blocks],
        "blockDim_y": [float(b[1]) for b in blocks],
        "log2_threads": [math.log2(b[0] * b[1] * b[2]) for b in blocks],
    }
    model = launchable = None
    note = ""
    try:
        launchable = launchable_program(program, op)
        if method in MODELS:
            model = ranking_model(graph, unit, method, hardware, resources, calibration, fits)
            tie = "the model sees the block only: settings that share a block tie"
            notes = [tie] if any(t.axis == "" for t in unit.tunables) else []
            note = "; ".join((*notes, *(() if fits else doubts(graph, unit))))
    except NotUnderstood as error:
        note = f"no model: {error.message}"
    data = sorted(
        {
            p.name
            for made in (model, launchable)
            if made is not None
            for p in made.parameters
            if p.kind is ParameterKind.DATA
        }
        | set(selector.data if selector is not None else ())
        | {n for n, _ in constants_of(program, {n for sizes, _ in anchors for n in sizes})}
        or {n for sizes, _ in anchors for n in sizes}
    )
    used = {p.name for made in (model, launchable) if made is not None for p in made.parameters}
    placed = tuple(Anchor(tuple(int(sizes[d]) for d in data), list(settings).index(best)) for sizes, best in anchors)
    return UnitChooser(
        unit.op, tuple(settings), tuple(data), tuple((n, tuple(v)) for n, v in columns.items() if n in used), model,
        launchable if launchable is not None and launchable.parameters else None, tuple(dict.fromkeys(placed)), note,
        selector, constants_of(program, data),
    )  # fmt: skip


def chooser_of(
    graph: Graph,
    unit: Unit,
    settings: Sequence[Settings],
    hardware: Hardware,
    *,
    anchors: Sequence[tuple[Mapping[str, int], Settings]] = (),
    selector: Selector | None = None,
    method: str = "volume",
    **options: Any,
) -> UnitChooser:
    """`dagc.choice.choose.unit_chooser`; `exhaustive`, as every strategy, has the volume model beside what it measured.

    If the model, or the limits of the grid, depend on what is neither a size nor known of a setting (a tunable in the
    grid's size, a block's third dimension), or where the kernel's text is nested too deeply to be read, the chooser has
    neither."""
    from dagc.choice.choose import unit_chooser  # loads numpy, sympy

    model = "volume" if method in names_in("lab/strategies") else method
    try:
        chooser = unit_chooser(
            graph, unit, settings, hardware, anchors=anchors, selector=selector, method=model, **options
        )
    except RecursionError:
        return _without(graph, unit, settings, anchors, selector, "its text is nested too deeply to be read")
    except KeyError as error:  # an anchor has no value for what the model takes for a size
        return _without(graph, unit, settings, anchors, selector, f"it depends on {error.args[0]}, which it cannot see")
    known = {s.name for s in graph.program.scalars} | {name for name, _ in chooser.columns} | {"rank", "ranks"}
    programs = [p for p in (chooser.model, chooser.launchable) if p is not None]
    unknown = sorted({parameter.name for p in programs for parameter in p.parameters} - known)
    if unknown:
        return _without(
            graph, unit, settings, anchors, selector, f"it depends on {', '.join(unknown)}, which it cannot see"
        )
    return chooser


def _without(
    graph: Graph,
    unit: Unit,
    settings: Sequence[Settings],
    anchors: Sequence[tuple[Mapping[str, int], Settings]],
    selector: Selector | None,
    why: str,
) -> UnitChooser:
    from dagc.choice.choose import Anchor, UnitChooser, constants_of  # loads numpy, sympy

    data = tuple(
        sorted({n for sizes, _ in anchors for n in sizes} | set(selector.data if selector is not None else ()))
    )
    remaining = tuple(Anchor(tuple(int(sizes[d]) for d in data), list(settings).index(best)) for sizes, best in anchors)
    note = f"no model: {why}"
    return UnitChooser(
        unit.op,
        tuple(settings),
        data,
        (),
        None,
        None,
        tuple(dict.fromkeys(remaining)),
        note,
        selector,
        constants_of(graph.program, data),
    )

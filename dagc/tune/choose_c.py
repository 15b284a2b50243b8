"""Choosers as C99: one function a unit, without libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagc.rational.cprint import BATCH_HELPERS, HELPERS, batch_to_c, padded_count, to_c
from dagc.rational.partial import split
from dagc.rational.program import RationalProgram
from dagc.tune.extent import C_BEYOND

if TYPE_CHECKING:
    from dagc.select.selector import Selector
    from dagc.tune.choose import UnitChooser

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
        out.append("/* The same for all settings at once. What hangs on them alone is in tables. */\n")
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

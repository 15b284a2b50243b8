"""The stages of lowering one file: values, kernels, graph, the world outside, checks, decisions."""

from __future__ import annotations

from dataclasses import dataclass, field

from dagc import ir
from dagc.errors import UsageError
from dagc.lang import ast
from dagc.lang.check_program import check_reads, check_unreachable, check_unused, check_unused_values
from dagc.lang.lower_any import insert_copies
from dagc.lang.lower_calls import stream_choice
from dagc.lang.lower_context import PREDEFINED, STAGINGS, TRANSPORTS, Context
from dagc.lang.lower_count import refuse_too_many
from dagc.lang.lower_decls import Declared, Declarer
from dagc.lang.lower_edges import lower_edges
from dagc.lang.lower_eval import Evaluator
from dagc.lang.lower_expand import branch, turns
from dagc.lang.lower_features import feature, select
from dagc.lang.lower_frames import Frame, GraphOut, OpScope
from dagc.lang.lower_graph import lower_items
from dagc.lang.lower_kernels import code_text, lower_kernel, wrong_place
from dagc.lang.lower_report import did_you_mean, listing
from dagc.lang.lower_requires import OtherChoices, satisfy
from dagc.lang.lower_scope import refuse_reserved
from dagc.lang.lower_values import Kind
from dagc.lang.lower_world import setup, until, verify
from dagc.source import Source, Span
from dagc.sym import Sym

__all__ = ["Lowering", "OtherChoices"]


@dataclass(slots=True)
class _Collected:
    """Items that wait until all values are known, with the evaluator of their place."""

    kernels: dict[str, ast.Kernel] = field(default_factory=dict)
    dags: dict[str, ast.SubDag] = field(default_factory=dict)
    mains: list[ast.MainDag] = field(default_factory=list)
    setups: list[tuple[ast.Setup, Evaluator]] = field(default_factory=list)
    verifies: list[tuple[ast.Verify, Evaluator]] = field(default_factory=list)
    selects: list[tuple[ast.Select, Evaluator]] = field(default_factory=list)
    features: list[ir.Feature] = field(default_factory=list)
    codes: list[ir.CodeText] = field(default_factory=list)


class Lowering:
    """One lowering, with one value for every decision."""

    def __init__(self, ctx: Context, module: ast.Module, source: Source) -> None:
        self.ctx = ctx
        self.module = module
        self.source = source
        self.declared = Declared()
        self.found = _Collected()
        self.ev = Evaluator(ctx, ctx.program)

    def run(self, items: tuple[ast.Item, ...]) -> ir.Program | None:
        """The program; None where there are errors. Raises `OtherChoices`, `Stop`, `UsageError`."""
        report = self.ctx.report
        self._values(self.ev, items)
        requires = satisfy(self.ctx, self.declared.requires)
        self.ctx.facts = ir.facts(self.declared.scalars, requires)
        kernels = {n: lower_kernel(self.ctx, k) for n, k in self.found.kernels.items()}
        out = GraphOut(kernels, self.found.dags)
        main = self._main(out)
        edges = lower_edges(out)
        repeat, stop = self._repeat(out, main)
        set_up = self._setup()
        verifies = self._verifies(out, set_up is not None)
        selects = self._selects()
        self._checks(out, verifies, stop)
        if report.failed:
            return None
        decisions = self._decisions(out)
        d = self.declared
        return ir.Program(
            name=self.module.program or "",
            path=self.source.path,
            params=tuple(d.params),
            lets=tuple(d.lets),
            enums=tuple(d.enums),
            scalars=tuple(d.scalars),
            arrays=tuple(d.arrays),
            parts=tuple(d.parts),
            kernels=tuple(kernels.values()),
            code=tuple(self.found.codes),
            features=tuple(self.found.features),
            selects=(*selects, *out.selects),
            requires=requires,
            decisions=decisions,
            ops=insert_copies(out.ops, d.arrays),
            edges=edges,
            explicit=out.explicit is not None,
            repeat=repeat,
            until=stop,
            setup=set_up,
            verifies=verifies,
            sources=dict(self.ctx.sources),
        )

    # ---- values -------------------------------------------------------------------------------

    def _values(self, ev: Evaluator, items: tuple[ast.Item, ...]) -> None:
        """Declare all values in text order; keep the rest."""
        for item in items:
            with self.ctx.report.guard():
                if isinstance(item, ast.For):
                    for inner in turns(ev, item):
                        self._values(inner, item.items)
                elif isinstance(item, ast.If):
                    self._values(ev, branch(ev, item))
                elif not Declarer(ev, self.declared).declare(item):
                    self._collect(ev, item)

    def _collect(self, ev: Evaluator, item: ast.Item) -> None:
        found = self.found
        if isinstance(item, (ast.Kernel, ast.SubDag)):
            self._callable(item)
        elif isinstance(item, ast.MainDag):
            if found.mains:
                at = ((_head(found.mains[0].span, 3), "the first is here"),)
                help = "give one of them a name: `dag name(...)`"
                self.ctx.report.fail("two-main-dags", "a second main dag", _head(item.span, 3), help, at)
            found.mains.append(item)
        elif isinstance(item, ast.Setup):
            if found.setups:
                at = ((found.setups[0][0].span, "the first is here"),)
                self.ctx.report.fail("duplicate-item", "a second set-up", item.span, "drop one", at)
            found.setups.append((item, ev))
        elif isinstance(item, ast.Verify):
            found.verifies.append((item, ev))
        elif isinstance(item, ast.Select):
            found.selects.append((item, ev))
        elif isinstance(item, ast.Feature):
            found.features.append(feature(ev, item))
        elif isinstance(item, ast.Code):
            if item.file is not None:
                help = "name it in an implementation"
                self.ctx.report.fail(
                    "wrong-place-of-item", "a function of a file cannot stand in the program", item.span, help
                )
            found.codes.append(code_text(self.ctx, item))
        else:
            wrong_place(self.ctx.report, item, "at program level")

    def _callable(self, item: ast.Kernel | ast.SubDag) -> None:
        """Kernels and named dags share one namespace."""
        report, found = self.ctx.report, self.found
        if item.name == "copy":
            help = "choose another name"
            report.fail("reserved-name", "`copy` is the device copy", item.name_span, help)
        refuse_reserved(report, item.name, item.name_span)
        known: dict[str, ast.Kernel | ast.SubDag] = {**found.kernels, **found.dags}
        if item.name in known:
            at = ((known[item.name].name_span, "first declared here"),)
            message = f"there is already a kernel or dag `{item.name}`"
            report.fail("duplicate-name", message, item.name_span, "choose another name", at)
        if isinstance(item, ast.Kernel):
            found.kernels[item.name] = item
        else:
            found.dags[item.name] = item

    # ---- graph ----------------------------------------------------------------------------------

    def _main(self, out: GraphOut) -> ast.MainDag | None:
        report = self.ctx.report
        if self.module.program is None:
            span = _head(self.module.items[0].span, 1) if self.module.items else Span(0, 0, self.source.path)
            report.error(
                "no-program-name", "the file does not begin with a program's name", span, "write `program name`"
            )
        if not self.found.mains:
            span = _head(self.module.span, len(f"program {self.module.program or ''}"))
            report.error("no-main-dag", "the program has no main dag", span, "add `dag { ... }`")
            return None
        main = self.found.mains[0]
        refuse_too_many(self.ev, self.found.dags, main)
        frame = Frame(self.ev, self.declared, OpScope())
        lower_items(out, frame, main.items, main=True)
        if not out.ops and not report.failed:
            report.error("empty-dag", "the main dag has no op", _head(main.span, 3), "add one")
        if out.explicit is not None:
            self._refuse_any(out.explicit)
        return main

    def _refuse_any(self, explicit: ast.EdgesExplicit) -> None:
        """Copies of `on any` arrays follow text order, which means nothing here."""
        for array in self.declared.arrays:
            if array.place is ast.Place.ANY and array.name in self.ctx.used:
                self.ctx.report.error(
                    "explicit-any",
                    f"`{array.name}` is `on any`, whose copies follow text order",
                    explicit.span,
                    "drop `edges explicit`",
                    ((array.span, "declared here"),),
                )
                return

    def _repeat(self, out: GraphOut, main: ast.MainDag | None) -> tuple[Sym | None, str | None]:
        repeat: Sym | None = None
        stop: str | None = None
        if main is not None and main.repeat is not None:
            with self.ctx.report.guard():
                repeat = self.ev.settled(main.repeat, (Kind.INT,))
        if main is not None and main.until is not None:
            with self.ctx.report.guard():
                stop = until(self.ev, out, main.until)
                self.ctx.not_used_yet("`until`", main.until.span, "the program repeats the full number of times")
        return repeat, stop

    # ---- the world outside ------------------------------------------------------------------------

    def _setup(self) -> ir.Setup | None:
        for item, ev in self.found.setups:
            with self.ctx.report.guard():
                return setup(ev, item)
        return None

    def _verifies(self, out: GraphOut, has_setup: bool) -> tuple[ir.Verify, ...]:
        found: list[ir.Verify] = []
        for item, ev in self.found.verifies:
            with self.ctx.report.guard():
                found.append(verify(ev, out, item, has_setup or bool(self.found.setups)))
        return tuple(found)

    def _selects(self) -> tuple[ir.Select, ...]:
        names = {n.split("[")[0] for n in self.ctx.choices if "." not in n}
        made = (select(ev, item, "", names) for item, ev in self.found.selects)
        return tuple(s for s in made if s is not None)

    # ---- checks and decisions -----------------------------------------------------------------------

    def _checks(self, out: GraphOut, verifies: tuple[ir.Verify, ...], stop: str | None) -> None:
        report = self.ctx.report
        check_reads(report, out.uses, out.explicit is not None, out.doubtful)
        if report.failed:
            return  # what an op in error would have used is unknown
        check_unused(self.ctx, self.found.kernels, self.declared, out)
        codes = [*self.found.codes, *(i.code for k in out.kernels.values() for i in k.impls if i.code)]
        features = [f for k in out.kernels.values() for f in k.features] + self.found.features
        codes += [f.value for f in features if isinstance(f.value, ir.CodeText)]
        check_unused_values(self.ctx, self.declared, codes)
        live = {v.region.array for v in verifies} | ({stop} if stop else set())
        live |= {a.name for a in self.declared.arrays if a.role in (ast.Role.OUT, ast.Role.INOUT)}
        check_unreachable(report, out.ops, out, live)

    def _decisions(self, out: GraphOut) -> tuple[ir.Decision, ...]:
        """transport, staging and streams always, then the others as they came up."""
        ctx = self.ctx
        messages = any(isinstance(op, (ir.ExchangeOp, ir.CollectiveOp)) for op in out.ops)
        if "transport" not in ctx.choices:
            ctx.choose("transport", TRANSPORTS, self.module.span, fixed=not messages)
        if "staging" not in ctx.choices:
            ctx.choose("staging", STAGINGS, self.module.span, fixed=not messages)
        stream_choice(ctx, self.module.span)
        if "capture" not in ctx.choices and "capture" in ctx.defines:
            ctx.choose("capture", PREDEFINED["capture"], self.module.span, fixed=True)
        for name in ("transport", "staging"):
            ctx.choices[name].structural = True
        self._refuse_unknown_defines()
        first = [n for n in PREDEFINED if n in ctx.choices]
        return tuple(ctx.choices[n].decision() for n in (*first, *(n for n in ctx.choices if n not in first)))

    def _refuse_unknown_defines(self) -> None:
        for name in self.ctx.defines:
            if name not in self.ctx.defined:
                known = [p.name for p in self.declared.params] + list(self.ctx.choices)
                help = did_you_mean(name, known, f"choose from {listing(known, 30)}")
                raise UsageError(f"-D {name}: the program has no param or decision of this name", help)


def _head(span: Span, length: int) -> Span:
    """The first words of a long item."""
    return Span(span.start, min(span.end, span.start + length), span.file)

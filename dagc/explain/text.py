"""Explanations as text, Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from dagc.errors import UsageError
from dagc.explain.edits import Edit
from dagc.explain.pairs import Paired, Verdict
from dagc.rules import Rule


@dataclass(frozen=True, slots=True)
class Explained:
    """One rule: its edits with their texts and times, cheapest first. Empty where no implementation breaks it."""

    rule: Rule
    edits: tuple[tuple[Edit, str, Paired], ...]

    @property
    def cheapest(self) -> Paired | None:
        """What breaking the rule costs at least: if one way to break it costs nothing, the rule is not the cause."""
        timed = [paired for _, _, paired in self.edits if not paired.failure]
        return min(timed, key=lambda p: p.ratio, default=None)

    @property
    def verdict(self) -> Verdict:
        return self.cheapest.verdict if self.cheapest is not None else Verdict.UNKNOWN


@dataclass(frozen=True, slots=True)
class Explanation:
    """`traversal` and `seconds` of the original; `noise`: relative standard deviation of a single measurement."""

    configuration: str
    traversal: str
    seconds: float
    noise: float
    rules: tuple[Explained, ...]


def render(found: Explanation, form: str = "text") -> str:
    """The explanation as `text`, `md` or `json`. Raises UsageError for another form."""
    forms = {"text": _text, "md": _markdown, "json": _json}
    if form not in forms:
        raise UsageError(f"there is no format `{form}`", f"one of: {', '.join(forms)}")
    return forms[form](found)


def _sorted(found: Explanation) -> list[Explained]:
    """The most expensive rule first."""
    return sorted(found.rules, key=lambda e: (-(e.cheapest.ratio if e.cheapest else 0.0), e.rule))


def _cost(paired: Paired) -> str:
    percent = [100 * (value - 1) for value in (paired.ratio, paired.low, paired.high)]
    return (
        f"{percent[0]:+.1f} % (95%: {percent[1]:+.1f} to {percent[2]:+.1f}), {paired.seconds * 1e6:+.2f} us,"
        f" {paired.pairs} pairs"
    )


_WORDS = {
    Verdict.COSTS: "costs",
    Verdict.NOTHING: "correlation: costs nothing",
    Verdict.GAINS: "gains: faster without it",
    Verdict.UNKNOWN: "not measured",
}


def _text(found: Explanation) -> str:
    out = [
        f"fastest    {found.seconds * 1e6:.2f} us, noise of a measurement {100 * found.noise:.1f} %",
        f"           {found.configuration}",
        f"           {found.traversal}",
        "",
        "what breaking one rule alone costs (of several ways to break it the cheapest):",
    ]
    for explained in _sorted(found):
        out += ["", f"  {explained.rule.text}: {_WORDS[explained.verdict]}"]
        if not explained.edits:
            out.append("      no implementation breaks it")
        for edit, text, paired in explained.edits:
            out.append(f"      {paired.failure or _cost(paired)}")
            if edit.also:
                out.append(f"        breaks with it: {', '.join(rule.text for rule in edit.also)}")
            out.append(f"        {difference(found.traversal.split(), text.split())}")
    return "\n".join(out) + "\n"


def _markdown(found: Explanation) -> str:
    out = [
        f"Fastest: {found.seconds * 1e6:.2f} us; {found.configuration}; `{found.traversal}`",
        "",
        "| rule | what breaking it does | cost | pairs | edit |",
        "|---|---|---|---|---|",
    ]
    for explained in _sorted(found):
        for edit, text, paired in explained.edits or ((None, "", None),):
            if edit is None or paired is None:
                out.append(f"| {explained.rule.text} | no implementation breaks it | | | |")
                continue
            cost = paired.failure or _cost(paired).rsplit(",", 1)[0]
            changed = difference(found.traversal.split(), text.split())
            out.append(f"| {explained.rule.text} | {paired.verdict.value} | {cost} | {paired.pairs} | `{changed}` |")
    return "\n".join(out) + "\n"


def _json(found: Explanation) -> str:
    def edit(edit_: Edit, text: str, paired: Paired) -> dict[str, Any]:
        return {
            "traversal": text, "distance": edit_.distance, "also": [r.text for r in edit_.also],
            "ratio": paired.ratio, "low": paired.low, "high": paired.high, "seconds": paired.seconds,
            "pairs": paired.pairs, "verdict": paired.verdict.value, "failure": paired.failure,
        }  # fmt: skip

    record = {
        "configuration": found.configuration, "traversal": found.traversal, "seconds": found.seconds,
        "noise": found.noise,
        "rules": [
            {"rule": e.rule.text, "verdict": e.verdict.value, "edits": [edit(*one) for one in e.edits]}
            for e in _sorted(found)
        ],
    }  # fmt: skip
    return json.dumps(record, indent=1) + "\n"


def difference(before: Sequence[str], after: Sequence[str]) -> str:
    """What changes between two traversals: `... [-yl@s1-] sync(e0) {+yl@s1+} ...`."""
    out: list[str] = []
    for what, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if what == "equal":
            kept = list(before[i:j])
            if len(kept) > 4:
                kept = [kept[0], "...", kept[-1]]
            out += kept
            continue
        if j > i:
            out.append(f"[-{' '.join(before[i:j])}-]")
        if m > k:
            out.append(f"{{+{' '.join(after[k:m])}+}}")
    return " ".join(out)

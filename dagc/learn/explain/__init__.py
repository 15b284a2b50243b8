"""Causal rules: the measured cost of breaking a single rule of the fastest implementation."""

from dagc.learn.explain.edits import questions
from dagc.learn.explain.explain import Answers, Asked, answer, ask, explanation
from dagc.learn.explain.pairs import (
    Answer,
    Edit,
    EditView,
    Explanation,
    Finding,
    Options,
    Question,
    Timing,
    Verdict,
    differing,
    time_pairs,
)
from dagc.learn.explain.text import as_json, render
from dagc.learn.rules.text import FORMATS

__all__ = [
    "FORMATS", "Answer", "Answers", "Asked", "Edit", "EditView", "Explanation", "Finding", "Options", "Question",
    "Timing", "Verdict", "answer", "as_json", "ask", "differing", "explanation", "questions", "render", "time_pairs",
]  # fmt: skip

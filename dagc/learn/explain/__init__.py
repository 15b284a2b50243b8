"""Causal rules: the measured cost of breaking a single rule of the fastest implementation."""

from dagc.learn.explain.edits import questions
from dagc.learn.explain.explain import Answers, Inquiry, answer, as_json, ask, explanation, render
from dagc.learn.explain.pairs import (
    AnsweredQuestion,
    Edit,
    EditView,
    Explanation,
    Finding,
    PairTiming,
    Question,
    TimingOptions,
    Verdict,
    differing,
    time_pairs,
)
from dagc.learn.rules.text import FORMATS

__all__ = [
    "FORMATS",
    "AnsweredQuestion",
    "Answers",
    "Edit",
    "EditView",
    "Explanation",
    "Finding",
    "Inquiry",
    "PairTiming",
    "Question",
    "TimingOptions",
    "Verdict",
    "answer",
    "as_json",
    "ask",
    "differing",
    "explanation",
    "questions",
    "render",
    "time_pairs",
]  # fmt: skip

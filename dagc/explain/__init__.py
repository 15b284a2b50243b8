"""Causal rules: what breaking one rule of the fastest implementation alone costs, measured."""

from dagc.explain.edits import Edit, edits_of
from dagc.explain.pairs import Paired, Verdict, time_pairs
from dagc.explain.text import Explained, Explanation, render

__all__ = ["Edit", "Explained", "Explanation", "Paired", "Verdict", "edits_of", "render", "time_pairs"]

"""Design rules: what the fast implementations of a program have in common (Tenzing, section IV)."""

from dagc.learn.rules.across import AcrossRules, Claim, Condition, Group, Input, LeftOut, Loss, across, claim_of
from dagc.learn.rules.across_text import render_across
from dagc.learn.rules.features import Samples
from dagc.learn.rules.judging import (
    FEWEST,
    Accuracy,
    CheckedRuleSet,
    ClassAccuracy,
    Estimates,
    Verdict,
    accuracy,
    check,
    estimate,
    in_order,
)
from dagc.learn.rules.labels import Outliers, Repeats, classify_times, noise_of
from dagc.learn.rules.text import FORMATS, Findings, render, why_no_rules
from dagc.learn.rules.tree import HeldOut, LearnedRules, classes_of, held_out, learn, paths
from dagc.learn.rules.types import (
    Boundary,
    Classes,
    Feature,
    FeatureKind,
    Node,
    PerformanceClass,
    Rule,
    RuleSet,
    Sample,
    Tree,
)

__all__ = [
    "FEWEST", "FORMATS", "Accuracy", "AcrossRules", "Boundary", "CheckedRuleSet", "Claim", "ClassAccuracy", "Classes",
    "Condition", "Estimates", "Feature", "FeatureKind", "Findings", "Group", "HeldOut", "Input", "LearnedRules",
    "LeftOut", "Loss", "Node", "Outliers", "PerformanceClass", "Repeats", "Rule", "RuleSet", "Sample", "Samples",
    "Tree", "Verdict", "accuracy", "across", "check", "claim_of", "classes_of", "classify_times", "estimate",
    "held_out", "in_order", "learn", "noise_of", "paths", "render", "render_across", "why_no_rules",
]  # fmt: skip

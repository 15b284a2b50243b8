"""Lines of dagc/ by feature and by room, counted like `wc -l`, at a revision and at the revisions to compare with.

    python -m benchmarks.lines                         # HEAD beside the revisions of SINCE
    python -m benchmarks.lines REVISION [BEFORE ...]

It reads the files from git, so changes that are not committed are not counted.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatch

from dagc.base.errors import UsageError

SINCE = ("424b1ea7", "99f1f3cf", "6ef4c3fa")  # before the goal was set; before and after the modules were rearranged

# Modules that serve one feature alone, so that they would go with it. The first pattern that matches counts.
FEATURES: Mapping[str, tuple[str, ...]] = {
    "language server and other services of editors": ("editor/*",),
    "formatter": ("lang/fmt.py",),
    "Python driver (`--as driver`)": ("emit/driver.py",),
    "library (`--as library`), iterations that overlap": ("emit/library.py", "space/enqueue.py"),
    "loops that stay loops": ("passes/loops.py", "space/loops.py"),
    "proof of bounds and order by linear inequalities": ("ir/linear.py", "passes/edges.py"),
    "set-ups in processes ahead of their use": ("setup/prefetch.py",),
    "access analysis of CUDA code": ("cuda/accesses.py", "cuda/expressions.py"),
    "variables beside the arguments, races within a launch": (
        "cuda/state.py", "cuda/races.py", "lang/code.py",
    ),
    "advice for all open values": ("passes/cases.py",),
    "forms of kernels": ("forms/*", "lang/fusion.py"),
    "lower bounds": ("perf/bound.py", "perf/footprint.py", "study/limits.py", "report/limits.py"),
    "performance models as rational programs": ("perf/*", "choice/models.py"),
    "selectors: learners and their C": ("choice/learners/*", "choice/nodes.py", "choice/trends.py"),
    "fewer labels (`--active`, `--incremental`, `--cut`, `--replay`)": (
        "study/sampling.py", "study/expected.py", "study/replay.py",
    ),
    "devices: ops placed together": ("choice/placement.py", "study/placed.py"),
    "tuning over inputs, evaluation": (
        "study/inputs.py", "study/costs.py", "study/evaluate.py", "study/move.py", "study/report.py",
        "study/cases.py", "study/judge.py", "study/held_out.py", "report/variants.py",
    ),
    "tuning of whole programs": ("study/programs.py", "study/plans.py"),
    "launch settings searched across sizes, pre-trained": (
        "choice/surface.py", "choice/residual.py", "lab/across.py",
    ),
    "simulation as the cost model of searches": ("lab/model/*", "lab/strategies/model.py"),
    "design rules": (
        "learn/types.py", "learn/classes.py", "learn/features.py", "learn/tree.py", "learn/judging.py", "learn/text.py",
        "learn/across.py", "learn/fast.py", "learn/kinds.py", "study/following.py",
        "recipes/rules.py",
    ),
    "`dagc record`": ("record/*", "recipes/record.py"),
    "times of more ranks by SimGrid": ("study/simulated.py", "study/traced.py"),
    "`explain`": (
        "learn/bundles.py", "learn/edits.py", "learn/pairs.py", "learn/explain.py", "recipes/explain.py",
        "lab/neighbours.py",
    ),
    "tables, pictures and pages": ("report/*",),
    "merge and export of records": (
        "store/merge.py", "store/export.py", "study/merged.py", "recipes/files.py",
    ),
}  # fmt: skip
# Modules of earlier revisions that have other names now.
EARLIER = {
    "design rules": ("learn/rules/*", "learn/conjunction.py"),
    "`explain`": ("learn/explain/*",),
    "tuning of whole programs": ("recipes/tune_programs.py", "recipes/plans.py", "lab/plans.py"),
    "launch settings searched across sizes, pre-trained": ("study/priors.py",),
    "performance models as rational programs": ("choice/terms.py",),
    "lower bounds": ("perf/copies.py",),
    "merge and export of records": ("recipes/merge.py", "recipes/export.py"),
}
REST = "the rest: language, plans, emitted code, building, measuring, search"


def lines_at(revision: str) -> dict[str, int]:
    """Lines of each module, by its path in dagc/. Raises UsageError for an unknown revision."""
    done = subprocess.run(
        ["git", "grep", "-c", "", revision, "--", "dagc/*.py"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UsageError(f"no modules of dagc at {revision}: {done.stderr.strip()}", "name a revision of a full clone")
    rows = (line.removeprefix(f"{revision}:dagc/").rpartition(":") for line in done.stdout.splitlines())
    return {path: int(number) for path, _, number in rows}


def feature_of(path: str) -> str:
    return next(
        (name for name, now in FEATURES.items() if any(fnmatch(path, p) for p in (*now, *EARLIER.get(name, ())))), REST
    )


def by_feature(modules: Mapping[str, int]) -> Counter[str]:
    """Lines of each feature."""
    out: Counter[str] = Counter()
    for path, number in modules.items():
        out[feature_of(path)] += number
    return out


def room_of(path: str) -> str:
    return path.partition("/")[0] if "/" in path else "at the top"


def kinds_at(revision: str, paths: Mapping[str, int]) -> Counter[str]:
    """Lines that are blank, in docstrings, only a comment, or code."""
    out: Counter[str] = Counter()
    for path in paths:
        text = subprocess.run(
            ["git", "show", f"{revision}:dagc/{path}"], capture_output=True, text=True, check=True
        ).stdout
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        docstrings = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
                docstrings |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
        for number, line in enumerate(text.splitlines(), 1):
            stripped = line.strip()
            kind = "docstrings" if number in docstrings else "comments" if stripped.startswith("#") else "code"
            out[kind if stripped or number in docstrings else "blank"] += 1
    return out


def table(heads: list[str], rows: list[list[str]]) -> str:
    """In Markdown, numbers right-aligned."""
    rule = ["---"] + ["---:"] * (len(heads) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, rule, *rows))


def report(revision: str, before: list[str]) -> str:
    now = lines_at(revision)
    counts = {r: lines_at(r) for r in before}
    kinds = kinds_at(revision, now)
    modules = Counter(map(feature_of, now))
    then, lines = by_feature(counts[before[-1]]), by_feature(now)
    features = [[name, str(modules[name]), str(then[name]), str(lines[name])] for name in (*FEATURES, REST)]
    totals = [[r, str(len(c)), str(sum(c.values()))] for r, c in {**counts, revision: now}.items()]
    rooms = []
    for room in sorted({room_of(p) for p in now}):
        every = (c for c in (*counts.values(), now))
        rooms.append([room, *(str(sum(n for p, n in c.items() if room_of(p) == room) or "") for c in every)])
    return "\n\n".join((
        table(["revision", "modules", "lines"], totals),
        f"Of {revision}: " + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common()),
        table(["feature", "modules", f"lines at {before[-1]}", "lines"], features),
        table(["room", *before, revision], rooms),
    ))  # fmt: skip


if __name__ == "__main__":
    arguments = sys.argv[1:]
    print(report(arguments[0] if arguments else "HEAD", arguments[1:] or list(SINCE)))

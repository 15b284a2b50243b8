"""docs/architecture.md says which files a new transport, sync op, model, strategy, learner or metric touches.

Each list is compared with the code; where one file is enough, a copy of dagc gets that file and uses it.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from dagc.store.records import load
from tests.imports import ROOT, modules
from tests.measure.conftest import can_run

PAGE = (ROOT / "docs/architecture.md").read_text()
LEARNER = """
from dagc.choice.learners import knn

SUMMARY, Row, read = "one neighbour", knn.Row, knn.read


def fit(examples, seed=0):
    return knn.nearest(examples.data, examples.rows, examples.labels)
"""
FEATURE = """
from dagc.choice.feature import SelectorFeature
from dagc.ir.sym import Apply, Const, Fn, Var


def offer(context):
    for scalar in context.program.scalars:
        yield SelectorFeature(f"half_{scalar.name}", Apply(Fn.DIV, (Var(scalar.name), Const(2))))
"""
STRATEGY = """
class Strategy:
    summary = "in the order of IDs"

    def __init__(self, domain, seed):
        self.left = iter(domain)

    def propose(self):
        return next(self.left, None)

    def observe(self, candidate, outcome):
        pass
"""
METRIC = """
import platform, os, time
from dagc.measure.metrics import Amount

AMOUNT = Amount.SUM
SUMMARY, UNIT, SECONDS, combine = "CPU seconds of the busiest rank", "s", 0.0, max


def why_not(target, program):
    return None if target == "host" else ("it is an example", "use the host target")


class Observer:
    def start(self):
        self.begin = time.process_time()

    def stop(self):
        return {f"{platform.node()} {os.getpid()}": time.process_time() - self.begin}
"""

OPTION = """    pauses: int = option("--pauses N", "seconds between two settings", natural, default=3, only="--until")
"""
LEVEL = """
from dagc.measure.metrics import Amount

SUMMARY, UNIT, SECONDS, AMOUNT, combine = "a level", "m", 0.0, Amount.PEAK, max


def why_not(target, program):
    return None


class Observer:
    def start(self):
        pass

    def stop(self):
        return {"here": 7.0}
"""


def _listed(title: str) -> set[str]:
    """The files of the list under a heading."""
    section = PAGE.partition(f"### {title}\n")[2].partition("\n#")[0]
    return set(re.findall(r"^- `([^`]+)`", section, flags=re.M))


def _code(path: Path) -> Iterator[ast.AST]:
    """The nodes of a file, without its docstrings."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            body[0].value.value = None
    yield from ast.walk(tree)


@cache
def _said() -> dict[str, set[tuple[str, str]]]:
    """What each module says: names, attributes, texts and their words, and what it imports from which module."""
    said: dict[str, set[tuple[str, str]]] = {}
    for path in modules().values():
        words = said.setdefault(str(path.relative_to(ROOT)), set())
        for node in _code(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words.add(("value", node.value))
                words.update(("text", word) for word in re.split(r"\W+", node.value))
            elif isinstance(node, ast.Attribute):
                words.add(("attribute", node.attr))
            elif isinstance(node, ast.Name):
                words.add(("name", node.id))
            elif isinstance(node, ast.ImportFrom):
                words.update((f"from {node.module}", alias.name) for alias in node.names)
    return said


def _files(*words: tuple[str, str]) -> set[str]:
    """The modules that say one of these."""
    return {file for file, said in _said().items() if not said.isdisjoint(words)}


def test_files_of_a_transport() -> None:
    texts = (".hpp", ".cuh", ".j2", ".py")
    templates = (path for path in (ROOT / "templates").rglob("*") if path.suffix in texts)
    # The other end of a message is called `peer`, too, in code that is emitted and in messages.
    in_templates = {str(p.relative_to(ROOT)) for p in templates if re.search(r"(?i)\btransport peer\b", p.read_text())}
    assert _files(("value", "peer"), ("attribute", "PEER")) | in_templates == _listed("A transport")


def test_files_of_a_sync_op() -> None:
    """Those that make or tell apart entries of a traversal beside the issues of ops, or their rows."""
    imported = [("from dagc.ir.traversal", name) for name in ("Record", "Wait")]
    assert _files(*imported, ("attribute", "RECORD")) == _listed("A sync op")


def test_files_of_a_performance_model() -> None:
    assert _files(("name", "volume_program"), ("name", "op_program")) <= _listed("A performance model")


@pytest.mark.parametrize("title", ["A transport", "A sync op", "A performance model"])
def test_the_table_has_as_many_files_as_the_list(title: str) -> None:
    (row,) = re.findall(rf"^\| {title.lower()} \|.*\| (\d+) \|$", PAGE, flags=re.M)
    assert int(row) == len(_listed(title))


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a dagc with a strategy, a learner, a kind of feature, a metric and an option more, each in one
    file."""
    root = tmp_path_factory.mktemp("extended")
    for name in ("dagc", "grammar", "templates"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "dagc/lab/strategies/in_order.py").write_text(STRATEGY)
    (root / "dagc/choice/learners/one.py").write_text(LEARNER)
    (root / "dagc/choice/features/half.py").write_text(FEATURE)
    (root / "dagc/measure/metrics/busiest.py").write_text(METRIC)
    (root / "dagc/measure/metrics/level.py").write_text(LEVEL)
    options = root / "dagc/stages/options.py"
    options.write_text(
        options.read_text().replace("    top: int | None = option(", f"{OPTION}    top: int | None = option(")
    )
    return {**os.environ, "PYTHONPATH": str(root)}


def _run(environment: dict[str, str], *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dagc", *words], env=environment, capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_strategy_is_one_file(extended: dict[str, str]) -> None:
    assert "in-order     in the order of IDs\n" in _run(extended, "explore", "--strategy", "help")
    code = (
        "import sys\nfrom dagc.lab.strategy import find\n"
        "from dagc.lab.orders import domain_of\n"
        "from dagc.lab.configurations import configuration_of\n"
        "from dagc.api import load_graph\n"
        "graph = load_graph(sys.argv[1], {'transport': 'mpi_cuda'})\n"
        "domain = domain_of([(configuration_of(graph), graph)])\n"
        "strategy = find('in-order')(domain, 0)\n"
        "print([strategy.propose() == domain.at(i) for i in range(3)])\n"
    )
    spmv = str(ROOT / "samples/spmv/spmv.dag")
    done = subprocess.run([sys.executable, "-c", code, spmv], env=extended, capture_output=True, text=True, cwd="/")
    assert done.stdout == "[True, True, True]\n", done.stderr


def test_a_learner_is_one_file(extended: dict[str, str], tmp_path: Path) -> None:
    assert "elsewhere one neighbour, trained on the measured sizes\n" in _run(extended, "tune", "--method", "help")
    code = (
        "from dagc.choice.methods import fit, from_json\n"
        "selector = fit('one', ['n'], [[10], [100], [1000]], [0, 1, 1])\n"
        "print(selector.choose([12]), selector.choose([500]), from_json(selector.to_json()) == selector)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=extended, capture_output=True, text=True, cwd="/")
    assert done.stdout == "0 1 True\n", done.stderr
    program = tmp_path / "a.dag"
    program.write_text(
        "program a\nscalar n : i64\narray x : f32[n] out\n"
        "kernel k(x: out f32[*], n: i64) {\n  tune bx in {32, 64}\n  select bx with one(n)\n"
        '  gpu { launch grid(ceil(n / bx)) block(bx) cuda """ """ }\n}\ndag { a : gpu k(x, n) }\n'
    )
    assert "select" not in _run(extended, "check", str(program))  # no note that it has no effect


def test_a_kind_of_feature_is_one_file(extended: dict[str, str]) -> None:
    """What is offered is chosen by, in Python and in the emitted program."""
    code = (
        "import sys\nfrom dagc.choice.choose import Chooser\nfrom dagc.choice.feature import offered\n"
        "from dagc.choice.learners.knn import nearest\nfrom dagc.choice.types import Site, SiteKind\n"
        "from dagc.api import load_graph\n"
        "half = offered(load_graph(sys.argv[1]).program)['half_n']\n"
        "site = Site(SiteKind.PLAN, 'program', ((('m', 4),), (('m', 8),)))\n"
        "chooser = Chooser(site, (half,), selector=nearest(['half_n'], [[10.0], [1000.0]], [0, 1]))\n"
        "print(chooser.choose({'n': 50}), chooser.choose({'n': 5000}), chooser.choice.features[0])\n"
    )
    tridiag = str(ROOT / "samples/tridiag/tridiag.dag")
    done = subprocess.run([sys.executable, "-c", code, tridiag], env=extended, capture_output=True, text=True, cwd="/")
    assert done.stdout.startswith("0 1 Apply(fn=<Fn.DIV: '/'>"), done.stderr


@pytest.mark.mpi
@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
@pytest.mark.usefixtures("unoptimised")
def test_a_metric_is_one_file(extended: dict[str, str], tmp_path: Path) -> None:
    assert "busiest      s    CPU seconds of the busiest rank\n" in _run(extended, "explore", "--objective", "help")
    file, spmv = str(tmp_path / "r.db"), str(ROOT / "samples/spmv/spmv.dag")
    words = "--target host -n 2 -D rows=2000 --transport mpi_host --seconds 5e-4 --budget 3 --confirm 0 --quiet"
    words += " --only orders"
    environment = {**extended, "DAGC_CXXFLAGS": os.environ["DAGC_CXXFLAGS"]}
    said = _run(environment, "explore", spmv, "-o", file, *words.split(), "--objective", "busiest * level")
    assert re.search(r"^best +\S+ busiest \* level \(", said, flags=re.M)
    assert " us busiest (" in _run(environment, "best", file, "--plan", "--objective", "busiest")
    busiest = load(file, "busiest")  # by a dagc that does not have the metric
    assert all(m.value > 0 for i in busiest.implementations for m in i.measurements)
    # The first is divided by the iterations, the second is the same for any number of them.
    assert {m.value for i in load(file, "level").implementations for m in i.measurements} == {7.0}
    assert all(m.value < 1 for i in busiest.implementations for m in i.measurements)


def test_an_option_is_one_declaration(extended: dict[str, str]) -> None:
    """The help, the value for the recipe with its default, and the check of what it belongs to."""
    assert "  --pauses N            seconds between two settings (default: 3)\n" in _run(extended, "tune", "--help")
    code = (
        "from argparse import ArgumentParser\nfrom dagc.cli.main import command\n"
        "from dagc.cli.parser import options_from\nfrom dagc.stages.options import TuneOptions\n"
        "tune, parser = command('tune'), ArgumentParser()\ntune.fill(parser)\n"
        "for words in ('a.dag', 'a.dag --until 1% --pauses 5', 'a.dag --pauses 5'):\n"
        "    print(options_from(tune.arguments(parser.parse_args(words.split())), TuneOptions, defines={}).pauses)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=extended, capture_output=True, text=True, cwd="/")
    assert done.stdout == "3\n5\n", done.stderr
    assert "UsageError: --pauses belongs to --until" in done.stderr

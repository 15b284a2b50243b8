"""docs/architecture.md says how many files each addition touches. A copy of dagc gets one of each, which is used.

An addition touches the files that name an existing one of its kind (EXISTING), the ones that are written here (ADDED),
and those of the page: the three are compared.
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
from typing import NamedTuple

import pytest

from dagc.store.records import load
from tests.imports import ROOT, modules
from tests.measure.conftest import can_run
from tests.precompiled import by_clang

PAGE = (ROOT / "docs/architecture.md").read_text()
LEARNER = """
from dataclasses import dataclass
from typing import ClassVar

from dagc.choice.nodes import Label, Real, SelectorRow
from dagc.choice.selector import Selector

SUMMARY = "the closest size"


@dataclass(frozen=True)
class Closest(Selector):
    method: ClassVar[str] = "closest"
    data: tuple
    scales: tuple
    points: tuple
    labels: tuple
    least_sure: float = 0.0

    @property
    def text(self):
        return f"closest of {len(self.points)}"

    @property
    def answers(self):
        return frozenset(self.labels)

    def view(self):
        return {"points": self.points, "labels": self.labels, "answers": sorted(self.answers)}

    def to_json(self):
        return {**self.common_json(), "points": self.points, "labels": self.labels}


def fit(examples, seed=0):
    return Closest(examples.data, examples.scales, examples.rows, examples.labels)


class Row(SelectorRow, tag="closest", frozen=True, kw_only=True):
    points: tuple[tuple[Real, ...], ...]
    labels: tuple[Label, ...]


def read(row):
    return Closest(row.data, row.read_scales(), row.points, row.labels)
"""
LEARNER_IN_C = """
static inline int dagc_select_{{ site }}(const double* x, double* sure) {
  static const double points[][{{ points[0] | length }}] = {
{% for point in points %}
      { {%- for v in point %}{{ ', ' if not loop.first }}{{ v | c_double }}{% endfor -%} },
{% endfor %}
  };
  static const int labels[] = { {{- labels | join(', ') -}} };
  double least = INFINITY;
  int best = 0;
  for (int i = 0; i < {{ points | length }}; ++i) {
    double apart = 0;
    for (int k = 0; k < {{ points[0] | length }}; ++k)
      apart += fabs(x[k] - points[i][k]) / (1 + fabs(x[k]) + fabs(points[i][k]));
    if (apart < least) {
      least = apart;
      best = i;
    }
  }
  *sure = 1;
  return labels[best];
}
{% if ranked %}
static inline int dagc_preferred_{{ site }}(const double* x, int* order) {
  static const int answers[] = { {{- answers | join(', ') -}} };
  double sure;
  int n = 1;
  order[0] = dagc_select_{{ site }}(x, &sure);
  for (int i = 0; i < {{ answers | length }}; ++i)
    if (answers[i] != order[0]) order[n++] = answers[i];
  return n;
}
{% endif %}
{% if asked %}
static inline void dagc_votes_{{ site }}(const double* x, double* votes) {
  double sure;
  votes[dagc_select_{{ site }}(x, &sure)] = 1;
}
{% endif %}
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
PEAK = """
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
TRANSPORT = """// Transport mail: a stub.
#pragma once
#include "dagc/group.hpp"
namespace dagc {
struct MailComm {};
struct MailGroup {};
}  // namespace dagc
"""


FORM = """
from dataclasses import replace

from dagc.forms.types import Form, Refusal


def legal(kernel, impl, around):
    return (1, 2) if "gridDim" not in impl.code.text else Refusal("it asks for the grid")


def rewritten(kernel, impl, around, value):
    return replace(impl.code, text=impl.code.text.replace("blockIdx.y", "(gridDim.y - 1 - blockIdx.y)"))


BACKWARDS = Form("backwards", "the last row first", (1, 2), legal, rewritten, lambda launch, value: launch)
"""
MODEL = """    if inputs.method == "copied":
        return replace(volume_program(graph.program, op), name="copied")
"""


class Insertion(NamedTuple):
    """A text that is added to a file, before another."""

    text: str
    before: str


OPTION = '    pauses: int = option("--pauses N", "seconds between two settings", natural, default=3, only="--until")\n'
ADDED: dict[str, dict[str, str | Insertion]] = {
    "a strategy": {"dagc/lab/strategies/in_order.py": STRATEGY},
    "a learner": {"dagc/choice/learners/closest.py": LEARNER, "templates/choice/closest.h.j2": LEARNER_IN_C},
    "a kind of feature": {"dagc/choice/features/half.py": FEATURE},
    "a metric": {"dagc/measure/metrics/busiest.py": METRIC},
    "a metric that is a peak": {"dagc/measure/metrics/level.py": PEAK},
    "an option that a recipe takes": {"dagc/stages/options.py": Insertion(OPTION, "    top: int | None = option(")},
    "a form of kernels": {
        "dagc/forms/backwards.py": FORM,
        "dagc/forms/__init__.py": Insertion(
            "from dagc.forms.backwards import BACKWARDS\n", "from dagc.forms.coarsen import"
        ),
    },
    "a performance model": {
        "dagc/choice/models.py": Insertion(MODEL, '    if inputs.method == "volume":\n'),
        "dagc/choice/types.py": Insertion('"copied", ', '"rational")  # methods'),
        "dagc/lang/declarations.py": Insertion('"copied", ', '"rational", *_LEARNED)'),
        "dagc/stages/options.py": Insertion('    "copied": "the volume model again",\n', '    "rational": "MWP-CWP'),
    },
    "a transport": {
        "dagc/ir/enums.py": Insertion('    MAIL = "mail"\n', '    NCCL = "nccl"\n'),
        "templates/runtime/dagc/group_host.hpp": Insertion(
            "using MailComm = HostComm;\nusing MailGroup = HostGroup;\n", "using PeerComm = HostComm;"
        ),
        "templates/runtime/dagc/group_mail.hpp": TRANSPORT,
    },
}
# The second places in the same files.
GROUPED = Insertion("Transport.MAIL, ", "Transport.NCCL, Transport.PEER, ")
IN_TABLE = Insertion("BACKWARDS, ", "COARSEN, STRIDED, PERSIST, INDEX")


@cache
def _said() -> dict[str, set[tuple[str, str]]]:
    """What each module says: names, attributes, texts and their words, and what it imports from which module."""
    said: dict[str, set[tuple[str, str]]] = {}
    for path in modules().values():
        words = said.setdefault(str(path.relative_to(ROOT)), set())
        for node in _code(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words.add(("value", node.value))
                words.update(("word", word) for word in re.split(r"[^\w-]+", node.value))
            elif isinstance(node, ast.Attribute):
                words.add(("attribute", node.attr))
            elif isinstance(node, ast.Name):
                words.add(("name", node.id))
            elif isinstance(node, ast.ImportFrom):
                words.update((f"from {node.module}", alias.name) for alias in node.names)
    return said


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


def _files(*words: tuple[str, str]) -> set[str]:
    """The modules that say one of these."""
    return {file for file, said in _said().items() if not said.isdisjoint(words)}


def _templates(pattern: str) -> set[str]:
    """The templates and headers of the runtime whose text has this pattern."""
    texts = (".hpp", ".cuh", ".j2", ".py")
    templates = (path for path in (ROOT / "templates").rglob("*") if path.suffix in texts)
    return {str(path.relative_to(ROOT)) for path in templates if re.search(pattern, path.read_text())}


@cache
def _existing() -> dict[str, tuple[str, str, set[str]]]:
    """An existing one of each kind: its name in names of files, that of the added one, and all files that name it."""
    of_feature = _files(
        *((word, "scalar") for word in ("from dagc.choice.features", "from dagc.choice.features.scalar"))
    )
    # The other end of a message is called `peer`, too, in code that is emitted and in messages.
    of_peer = _files(("value", "peer"), ("attribute", "PEER")) | _templates(r"(?i)\btransport peer\b|\bPeerGroup\b")
    of_counts = {"dagc/study/sizes.py"}
    svm = _files(("word", "svm")) | _templates(r"\bsvm\b")
    return {
        "a strategy": ("mcts", "in_order", _files(("word", "mcts")) | {"dagc/lab/strategies/mcts.py"}),
        "a learner": ("svm", "closest", svm | {"dagc/choice/learners/svm.py", "templates/choice/svm.h.j2"}),
        "a kind of feature": ("scalar", "half", of_feature | {"dagc/choice/features/scalar.py"}),
        "a metric": ("energy", "busiest", _files(("value", "energy")) | {"dagc/measure/metrics/energy.py"}),
        "a metric that is a peak": ("memory", "level", {"dagc/measure/metrics/memory.py"}),
        "an option that a recipe takes": ("top", "pauses", {"dagc/stages/options.py"}),
        "a form of kernels": ("coarsen", "backwards", _files(("name", "COARSEN")) | {"dagc/forms/__init__.py"}),
        "a performance model": ("rational", "copied", _files(("value", "rational")) - of_counts),
        "a transport": ("peer", "mail", of_peer),
    }


def _listed(title: str) -> set[str]:
    """The files of the list under a heading."""
    section = PAGE.partition(f"### {title}\n")[2].partition("\n#")[0]
    return set(re.findall(r"^- `([^`]+)`", section, flags=re.M))


@pytest.mark.parametrize("kind", ADDED)
def test_an_addition_touches_the_files_that_name_an_existing_one_of_its_kind(kind: str) -> None:
    name, added, files = _existing()[kind]
    assert all((ROOT / file).exists() for file in files)
    assert {file.replace(name, added) for file in files} == set(ADDED[kind])
    (row,) = re.findall(rf"^\| {kind}(?:,[^|]*)? \|[^|]*\| (\d+)\b", PAGE, flags=re.M)
    assert int(row) == len(files), "the table of the page"


def test_files_of_a_transport() -> None:
    assert _existing()["a transport"][2] == _listed("A transport")


def test_files_of_a_sync_op() -> None:
    """Those that make or tell apart entries of a traversal beside the issues of ops, or their rows."""
    imported = [("from dagc.ir.traversal", name) for name in ("Record", "Wait")]
    assert _files(*imported, ("attribute", "RECORD")) == _listed("A sync op")

    assert f"| a sync op | 16 | {len(_listed('A sync op'))} |" in PAGE


def test_files_of_a_performance_model() -> None:
    """Two of them are those of a model that needs counts of its own."""
    assert _files(("value", "rational")) == _listed("A performance model")
    assert f"; {len(_listed('A performance model'))} if it needs counts of its own |" in PAGE


def _add(root: Path, file: str, change: str | Insertion) -> None:
    """A file more, or a text more in one place of a file."""
    path = root / file
    if isinstance(change, str):
        assert not path.exists()
        path.write_text(change)
        return
    before, found, after = path.read_text().partition(change.before)
    assert found
    path.write_text(f"{before}{change.text}{found}{after}")


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of dagc with all of ADDED."""
    root = tmp_path_factory.mktemp("extended")
    for name in ("dagc", "grammar", "templates"):
        shutil.copytree(ROOT / name, root / name)  # with what is compiled of it
    for changes in ADDED.values():
        for file, change in changes.items():
            _add(root, file, change)
    _add(root, "dagc/ir/enums.py", GROUPED)
    _add(root, "dagc/forms/__init__.py", IN_TABLE)
    return root


def _python(extended: Path, *words: str, cwd: str | Path = "/") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(extended)}
    return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, cwd=cwd)


def _run(extended: Path, *words: str) -> str:
    done = _python(extended, "-m", "dagc", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_strategy_is_one_file(extended: Path) -> None:
    assert "in-order     in the order of IDs\n" in _run(extended, "explore", "--strategy", "help")
    code = (
        "import sys\nfrom dagc.lab.strategy import find\n"
        "from dagc.lab.orders import domain_of\n"
        "from dagc.ir.constraints import configuration_of\n"
        "from dagc.api import load_graph\n"
        "graph = load_graph(sys.argv[1], {'transport': 'mpi_cuda'})\n"
        "domain = domain_of([(configuration_of(graph), graph)])\n"
        "strategy = find('in-order')(domain, 0)\n"
        "print([strategy.propose() == domain.at(i) for i in range(3)])\n"
    )
    done = _python(extended, "-c", code, str(ROOT / "samples/spmv/spmv.dag"))
    assert done.stdout == "[True, True, True]\n", done.stderr


def test_a_learner_is_its_training_and_its_c(extended: Path, tmp_path: Path) -> None:
    assert "elsewhere the closest size, trained on the measured sizes\n" in _run(extended, "tune", "--method", "help")
    program = tmp_path / "a.dag"
    program.write_text(
        "program a\nscalar n : i64\narray x : f32[n] out\n"
        "kernel k(x: out f32[*], n: i64) {\n  tune bx in {32, 64}\n  select bx with closest(n)\n"
        '  gpu { launch grid(ceil(n / bx)) block(bx) cuda """ """ }\n}\ndag { a : gpu k(x, n) }\n'
    )
    assert "select" not in _run(extended, "check", str(program))  # no note that it has no effect


def test_a_learner_is_tested_by_the_tests_that_exist(extended: Path) -> None:
    """It adds cases to tests that take what they find, and changes none."""
    tests = [file for file in (ROOT / "tests/choice").glob("test_*.py") if "LEARNED" in file.read_text()]
    tests.append(ROOT / "tests/lang/test_broken.py")
    broken = (ROOT / "tests/lang/broken").glob("unknown-name.method.*")
    for file in (*tests, *broken, *(ROOT / "tests").glob("[!t]*.py"), ROOT / "tests/tiers.py", ROOT / "pyproject.toml"):
        copied = extended / file.relative_to(ROOT)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copied)
    (extended / "samples").symlink_to(ROOT / "samples")
    chosen = ("-k", "closest or method")
    done = _python(extended, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", *chosen, cwd=extended)
    assert re.search(r"^1[0-9] passed", done.stdout, flags=re.M), done.stdout[-2000:]


def test_a_kind_of_feature_is_one_file(extended: Path) -> None:
    """What is offered is chosen by, in Python and in the emitted program."""
    code = (
        "import sys\nfrom dagc.choice.choose import Chooser\nfrom dagc.choice.feature import offered\n"
        "from dagc.choice.learners.knn import nearest\nfrom dagc.choice.types import Site\n"
        "from dagc.ir.choice import Choice\n"
        "from dagc.api import load_graph\n"
        "half = offered(load_graph(sys.argv[1]).program)['half_n']\n"
        "site = Site('program', (Choice((('m', 4),)), Choice((('m', 8),))))\n"
        "chooser = Chooser(site, (half,), selector=nearest(['half_n'], [[10.0], [1000.0]], [0, 1]))\n"
        "print(chooser.choose({'n': 50}), chooser.choose({'n': 5000}), chooser.choice.features[0])\n"
    )
    done = _python(extended, "-c", code, str(ROOT / "samples/tridiag/tridiag.dag"))
    assert done.stdout.startswith("0 1 Apply(fn=<Fn.DIV: '/'>"), done.stderr


def test_a_performance_model_chooses(extended: Path) -> None:
    assert "copied      the volume model again\n" in _run(extended, "tune", "--method", "help")
    code = (
        "import sys\nfrom dagc.api import load_graph\n"
        "from dagc.choice.legal import legal_settings, open_sites\n"
        "from dagc.choice.models import ModelInputs, site_chooser\n"
        "from dagc.perf.hardware import load_hardware\n"
        "graph = load_graph(sys.argv[1])\nsite = open_sites(graph)[0]\n"
        "settings = list(legal_settings(graph, site, {'max_threads_per_block': 1024}))[:3]\n"
        "made = site_chooser(graph, site, settings, load_hardware('h200'), model=ModelInputs('copied'))\n"
        "print(made.model.name, made.choose({'ni': 1000, 'nj': 1000}) in range(3))\n"
    )
    done = _python(extended, "-c", code, str(ROOT / "samples/polybench/syrk.dag"))
    assert done.stdout == "copied True\n", done.stderr


@pytest.mark.mpi
@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
def test_a_form_of_kernels_is_one_file_and_its_entry(
    extended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is listed, and a program runs with it, together with another form."""
    monkeypatch.setenv("DAGC_CXXFLAGS", " ".join(("-O0", *by_clang())))
    jacobi = str(ROOT / "samples/jacobi/jacobi.dag")
    assert "  backwards 1, 2         the last row first\n" in _run(extended, "show", "--forms", "stencil", jacobi)
    words = "--target host --run -n 1 -D rows=9 -D nx=20 -D steps=2 -D inner.form.backwards=2 -D inner.form.coarsen=4"
    out = ("-o", str(tmp_path / "out"), "--seconds", "1e-4", "--repeats", "1")
    assert "results agree with the reference" in _run(extended, "compile", jacobi, *words.split(), *out)
    assert "blocks_y - 1 - block_y" in (tmp_path / "out/kernels.cu").read_text()


def _by_mail(folder: Path) -> str:
    """The sample SpMV, which lists its transports, with one more."""
    spmv = folder / "spmv"
    shutil.copytree(ROOT / "samples/spmv", spmv)
    program = spmv / "spmv.dag"
    program.write_text(program.read_text().replace("nccl, peer}", "nccl, peer, mail}"))
    return str(program)


def test_a_transport_is_its_name_and_its_group(extended: Path, tmp_path: Path) -> None:
    """The host target has its own group for each, with which the metrics below run it."""
    words = ("--transport", "mail", "--target", "cuda", "--no-build")
    _run(extended, "compile", _by_mail(tmp_path), *words, "-o", str(tmp_path / "out"))
    assert (tmp_path / "out/include/dagc/group_mail.hpp").read_text() == TRANSPORT
    assert "dagc::MailGroup" in (tmp_path / "out/program.hpp").read_text()


@pytest.mark.mpi
@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
def test_a_search_uses_the_strategy_the_transport_and_both_metrics(
    extended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGC_CXXFLAGS", " ".join(("-O0", *by_clang())))
    assert "busiest      s    CPU seconds of the busiest rank\n" in _run(extended, "explore", "--objective", "help")
    file, spmv = str(tmp_path / "r.db"), _by_mail(tmp_path)
    words = "--target host -n 2 -D rows=2000 --transport mail --seconds 5e-4 --budget 3 --confirm 0 --quiet"
    words += " --only orders --strategy in-order"
    said = _run(extended, "explore", spmv, "-o", file, *words.split(), "--objective", "busiest * level")
    assert re.search(r"^best +\S+ busiest \* level \(", said, flags=re.M)
    assert " us busiest (" in _run(extended, "best", file, "--plan", "--objective", "busiest")
    busiest = load(file, "busiest")  # by a dagc that does not have the metric
    assert all(m.value > 0 for i in busiest.implementations for m in i.samples)
    # The first is divided by the iterations, the second is the same for any number of them.
    assert {m.value for i in load(file, "level").implementations for m in i.samples} == {7.0}
    assert all(m.value < 1 for i in busiest.implementations for m in i.samples)


def test_an_option_is_one_declaration(extended: Path) -> None:
    """The help, the value for the recipe with its default, and the check of what it belongs to."""
    assert "  --pauses N            seconds between two settings (default: 3)\n" in _run(extended, "tune", "--help")
    code = (
        "from argparse import ArgumentParser\nfrom dagc.cli.main import command\n"
        "from dagc.cli.parser import options_from\nfrom dagc.stages.options import TuneOptions\n"
        "tune, parser = command('tune'), ArgumentParser()\ntune.fill(parser)\n"
        "for words in ('a.dag', 'a.dag --until 1% --pauses 5', 'a.dag --pauses 5'):\n"
        "    print(options_from(tune.arguments(parser.parse_args(words.split())), TuneOptions, defines={}).pauses)\n"
    )
    done = _python(extended, "-c", code)
    assert done.stdout == "3\n5\n", done.stderr
    assert "UsageError: --pauses belongs to --until" in done.stderr

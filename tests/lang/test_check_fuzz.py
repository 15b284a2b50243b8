"""Whatever the program, checking it gives diagnostics that can be shown, in the time of a breath, and no traceback."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings

from dagc.base.errors import ProgramError
from dagc.base.source import Source
from dagc.lang.lower import analyse, parse_with_includes
from dagc.passes import graph_with_diagnostics
from tests.lang.printer import print_module
from tests.strategies.dag_text import MODULES, loosened, mutants

SAMPLES = sorted((Path(__file__).parents[2] / "samples").glob("*/*.dag"))
BROKEN = sorted((Path(__file__).parent / "broken").glob("*.dag"))
TEXTS = [path.read_text(encoding="utf-8") for path in (*SAMPLES, *BROKEN) if path.stem != "too-many-ops"]
many = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def check(text: str) -> None:
    source = Source("fuzz.dag", text)
    try:
        parsed = parse_with_includes(source)
    except ProgramError:
        return
    lowered = analyse(parsed)
    found = list(lowered.diagnostics)
    if lowered.program is not None:
        found += graph_with_diagnostics(lowered.program)[1]
    for d in found:
        assert 0 <= d.span.start <= d.span.end <= len(text) or d.span.file != source.path
        assert d.help
        assert d.render(dict(lowered.sources)).startswith("fuzz.dag:")
    assert lowered.program is not None or found


@many
@given(mutants(TEXTS))
def test_mutants(text: str) -> None:
    check(text)


@many
@given(loosened(TEXTS))
def test_loosened(text: str) -> None:
    check(text)


@many
@given(MODULES.map(print_module))
def test_random_modules(text: str) -> None:
    check(text)

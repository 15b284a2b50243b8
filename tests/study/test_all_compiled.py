"""All that `explore` compiles for a GPU by itself, with launch settings and forms open, can be emitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dagc.build.toolchain import TargetChoice
from dagc.cuda.ptx import Resources
from dagc.emit import emit
from dagc.ir.plan import Target
from dagc.lab.configurations import in_library
from dagc.setup import run_setup
from dagc.stages.options import ExploreOptions
from dagc.stages.program import read
from dagc.study import decisions, launch
from dagc.study.decisions import SEARCH, SearchRequest, configured, domain_of
from dagc.study.launch import launch_sites, predicted
from dagc.study.runners import runner_plan
from tests.measure.conftest import SAMPLES
from tests.tiers import representatives

GPU = TargetChoice(Target.CUDA, "sm_90", "")
ADD = Path(__file__).parents[2] / "benchmarks/corpus/stream/add.dag"


@pytest.mark.parametrize(
    ("sample", "defines"),
    representatives(
        [("jacobi", {"steps": "2"}), ("spmv", {}), ("cg", {}), ("halo3d", {})], ("jacobi", {"steps": "2"}), ("spmv", {})
    ),
)
def test_each_configuration_is_emitted(sample: str, defines: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "compilers", lambda: 32)  # which opens as much as there ever is
    options = ExploreOptions(ranks=2, launch=SEARCH)
    text = replace(read(SAMPLES / sample / f"{sample}.dag", defines, folds=True), forms=True)
    _, every, _ = configured(text, options, True)
    sites = launch_sites(SearchRequest(text, options, GPU), every, None)
    assert len(every) > 4
    programs = {frozenset(filter(in_library, one.configuration.decisions)): one for one in every}
    for one in programs.values():
        emit(runner_plan(one, GPU, sites.get(one.configuration, ())))


def test_forms_that_spill_are_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of which nvcc reports it, with a note for each."""
    options = ExploreOptions(ranks=1, launch=SEARCH)
    text = replace(read(ADD, {"NI": 8, "NJ": 8, "add.bx": 32}, folds=True), forms=True)
    _, every, _ = configured(text, options, True)
    request = SearchRequest(text, options, GPU)
    run_setup(text.program(), ADD.parent, 1, 0, tmp_path)
    sites = launch_sites(request, every, tmp_path)
    spilling = {"add": Resources(spills=0), "add_bx32_wide4": Resources(spills=8)}
    monkeypatch.setattr(launch, "compiled_resources", lambda *_: spilling)
    found, notes = predicted(request, domain_of(every, options, sites).spaces, tmp_path, lambda _: None)
    assert [n for n in notes if "spills" in n] == [
        "without add form.wide=4: a thread spills 8 bytes of registers, as written 0"
    ]
    for configuration, (after,) in found.items():
        (before,) = sites[configuration]
        left = tuple(c for c in before.choices if c.own["form.wide"] != 4 or c.formed != ("add.form.wide",))
        assert after.choices == left
        assert len(after.prior) == len(left) < len(before.choices)

"""All that `explore` compiles for a GPU by itself, with launch settings and forms open, can be emitted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dagc.build.toolchain import TargetChoice
from dagc.emit import emit
from dagc.ir.plan import Target
from dagc.lab.configurations import in_library
from dagc.stages.options import ExploreOptions
from dagc.stages.program import read
from dagc.study import decisions
from dagc.study.decisions import SEARCH, SearchRequest, configured
from dagc.study.launch import launch_sites
from dagc.study.runners import runner_plan
from tests.measure.conftest import SAMPLES

GPU = TargetChoice(Target.CUDA, "sm_90", "")


@pytest.mark.parametrize(
    ("sample", "defines"),
    [("jacobi", {"steps": "2"}), ("spmv", {}), ("cg", {}), pytest.param("halo3d", {}, marks=pytest.mark.thorough)],
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

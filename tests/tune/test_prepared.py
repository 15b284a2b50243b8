"""Conversions while variants are tuned: only the chosen one is made, and timed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc import api
from dagc.lab.launches import Launches, Timing, verify
from dagc.measure.link import WorkerLink
from dagc.measure.service import Service
from dagc.recipes.tune_measure import sized_program
from dagc.recipes.tune_prepare import prepare, tuning_task
from tests.emit.test_prepare import PREPARED

VARIANTS = {"csr": 0, "ell": 1}


@pytest.mark.mpi
@pytest.mark.usefixtures("unoptimised")
def test_what_is_chosen_is_prepared_and_timed(tmp_path: Path) -> None:
    ready = prepare(tuning_task(api.read(PREPARED), target="host", ranks=2), tmp_path)
    program = sized_program(ready, ready.task.check_at)
    base = [("first.variant", 0), ("second.variant", 0)]
    with Service(WorkerLink(2)) as service:
        machine = Launches(
            service, program, program.ops[1], base, lambda s: [(f"second.{n}", VARIANTS[str(v)]) for n, v in s],
            timing=Timing(seconds=0.01), rtol=1e-3,
        )  # fmt: skip
        assert machine.measure((("variant", "csr"),)).value > 0
        ask = {"do": "preparations", "limit": 10.0}
        assert service.ask(program.library, **ask)["seconds"] == {"first ell": 0, "second ell": 0}
        assert machine.measure((("variant", "ell"),)).value > 0
        taken = service.ask(program.library, **ask)["seconds"]
        assert taken["first ell"] == 0
        assert 0 < taken["second ell"] < 10
        assert verify(service, program, base, [("first.variant", 1), ("second.variant", 0)]) == ""

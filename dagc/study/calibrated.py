"""`explore --simulate --calibrate`: the factors of the simulation that explain a few measured times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dagc.base.errors import UsageError, counted
from dagc.base.python import Array
from dagc.ir.program import Program
from dagc.lab.candidate import Candidate
from dagc.lab.orders import Orders, candidate_of
from dagc.store.results import Results
from dagc.study.decisions import SearchRequest
from dagc.study.simulated import Factors, SimulatedMachine, simulated

MOST = 12  # implementations
DEVIATION = 0.04  # relative standard deviation of a measurement and of the simulation
SPREADS = (0.7, 0.3, 1.2)  # of the logarithms of the factors: traces say more of work than of calls, a ping-pong little
STEPS, DIFFERENCE, LONGEST = 5, 0.05, 1.0  # of the fit (logarithms)


@dataclass(frozen=True, slots=True)
class CalibratedFactors:
    """The factors, and the implementations that chose them."""

    factors: Factors
    candidates: tuple[Candidate, ...]

    def on(self, platform: str, calibrated: str) -> Factors:
        """Those for a platform: what messages take belongs to the one that was `calibrated`."""
        same = Path(platform).resolve() == Path(calibrated).resolve()
        return self.factors if same else self.factors._replace(messages=1.0)

    @property
    def text(self) -> str:
        """For a note."""
        calls, work, messages = self.factors
        return (
            f"{counted(len(self.candidates), 'measured implementation')} take what is predicted with calls x"
            f" {calls:.2f} and work x {work:.2f} of what traces say, messages x {messages:.2f} of what the platform"
            " says"
        )


def calibration(
    request: SearchRequest, program: Program, domain: Orders, results: Results, scratch: Path
) -> CalibratedFactors:
    """Of the ranks that the results are of, on `--calibrate`. Raises as `simulated`, and UsageError without measured
    implementations that can be simulated."""
    options = request.options
    there = replace(options, simulate=options.calibrate, ranks=results.runs[-1].ranks)
    machine = simulated(replace(request, options=there), program, domain, results, scratch)
    known = {candidate_of(domain, one): one.value(results.reference) for one in results.measured()}
    times = {one: time for one, time in known.items() if one is not None and one.space not in machine.missing}
    if not times:
        raise UsageError("--calibrate: no implementation of the results can be simulated", "drop --calibrate")
    every = list(times)  # the fastest first
    chosen = [every[n] for n in sorted({*np.linspace(0, len(every) - 1, MOST).astype(int).tolist()})]
    return CalibratedFactors(fitted(machine, chosen, np.array([times[one] for one in chosen])), tuple(chosen))


def fitted(machine: SimulatedMachine, candidates: Sequence[Candidate], measured: Array) -> Factors:
    """Gauss and Newton's steps to the largest posterior density; of each, halved up to three times, the best."""
    lines, spread = [machine.line(one) for one in candidates], np.array(SPREADS)

    def off(*logs: Array) -> Array:
        """Of each: how far the times are from the measured ones, in standard deviations."""
        found = machine.run(lines, [Factors(*np.exp(one)) for one in logs])
        return np.asarray(np.log(np.reshape(found, (len(logs), -1)) / measured) / DEVIATION)

    def misfit(logs: Array, far: Array) -> float:
        return float((far**2).sum() + ((logs / spread) ** 2).sum())

    logs = np.zeros(len(spread))
    for _ in range(STEPS):
        here, *beside = off(logs, *(logs + DIFFERENCE * np.eye(len(spread))))
        table = (np.array(beside) - here) / DIFFERENCE
        normal = table @ table.T + np.diag(spread**-2.0)
        step = np.clip(np.linalg.solve(normal, -table @ here - logs / spread**2), -LONGEST, LONGEST)
        tried = [logs + step / 2**n for n in range(4)]
        judged = [misfit(one, far) for one, far in zip(tried, off(*tried), strict=True)]
        if min(judged) >= misfit(logs, here):
            break
        logs = tried[int(np.argmin(judged))]
    return Factors(*np.exp(logs).round(3).tolist())

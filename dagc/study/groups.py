"""Groups of ranks that measure side by side, for one search with one results file.

Each group is a run of the file beside that of the first one. All time the same drift reference, so the speed of a
group, which is that of its hosts, is divided out of its times like drift.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from statistics import median_low
from typing import TYPE_CHECKING

from dagc.base.errors import RunFailed, counted
from dagc.lab.candidate import Candidate
from dagc.lab.engine import FIRST, MeasuringPlace, Summary
from dagc.lab.live import LiveMachine
from dagc.lab.orders import OrderStore
from dagc.measure.service import RankLink
from dagc.store.results import GROUP, MOST_DRIFT, Run

if TYPE_CHECKING:
    from dagc.store.records import Records

SLOW = 0.1  # share by which the drift reference of a slow group takes longer than the low median of all


@dataclass(frozen=True, slots=True)
class RankGroup:
    """A group of ranks, with the run that keeps its measurements. `hosts`: where they run."""

    name: str
    machine: LiveMachine
    store: OrderStore
    records: Records
    hosts: tuple[str, ...]

    @property
    def place(self) -> MeasuringPlace[Candidate]:
        return MeasuringPlace(self.machine, self.store, self.name)


def groups_of(
    machine: LiveMachine, store: OrderStore, links: Sequence[RankLink], records: Records, run: Run, notes: list[str]
) -> list[RankGroup]:
    """The first group, and those of `links`, whose ranks are started at the same time. `machine` has timed the drift
    reference; `store`, `records` and `run` are of the first. A group that cannot be started is left out, with a
    note."""
    groups = [RankGroup(FIRST, machine, store, records, run.machine.hosts)]
    machines = [machine.beside(link) for link in links]
    with ThreadPoolExecutor(max(1, len(machines))) as pool:
        started = list(pool.map(_hosts, machines))
    for number, (other, hosts) in enumerate(zip(machines, started, strict=True), 2):
        if isinstance(hosts, RunFailed):
            notes.append(f"group {number} is left out: {hosts.first}")
            continue
        options = run.options | {GROUP: number}
        of_group = replace(run, machine=replace(run.machine, hosts=hosts), noise=math.nan, options=options)
        kept = records.beside(of_group)
        name = f"group {number} ({', '.join(hosts)})"
        groups.append(RankGroup(name, other, OrderStore(store.domain, kept), kept, hosts))
    if len(groups) > 1:
        for group in groups:  # they measure in other threads, and one thread writes the file
            group.machine.on_reference = group.store.reference
    return groups


def _hosts(machine: LiveMachine) -> tuple[str, ...] | RunFailed:
    try:
        return tuple(sorted({*machine.start()["hosts"]}))
    except RunFailed as why:
        return why


def group_left(groups: Sequence[RankGroup], done: Summary[Candidate], notes: list[str]) -> RankGroup:
    """The first group that is left after a search, for what follows. Notes name those that were lost, and slow ones."""
    notes += [f"{name} was lost: {why}; what it measured was measured by another group" for name, why in done.lost]
    usual = median_low(done.references.values()) if done.references else math.nan
    if len(groups) > 1:
        factors = [seconds / usual for seconds in done.references.values()]
        times = f"{min(factors, default=1.0):.2f} to {max(factors, default=1.0):.2f} times the median"
        hosts = {host for group in groups for host in group.hosts}
        notes.append(f"{len(groups)} groups on {counted(len(hosts), 'host')}; drift reference {times}, divided out")
    for name, seconds in done.references.items() if len(groups) > 1 else ():
        if seconds > (1 + SLOW) * usual:
            beyond = f", of which {MOST_DRIFT:g} is divided out at most" if seconds > MOST_DRIFT * usual else ""
            notes.append(f"{name} is slow: its drift reference takes {seconds / usual:.2f} times the median{beyond}")
    for group in groups:
        group.store.write_references()
        group.machine.on_reference = group.records.reference
    gone = dict(done.lost)
    return next(group for group in groups if group.name not in gone)

"""Groups of ranks that measure side by side, for one search with one results file.

Each group is a run of the file beside that of the first one. All time the same drift reference, so the speed of a
group, which is that of its hosts, is divided out of its times like drift.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from statistics import median_low
from typing import TYPE_CHECKING

from dagc.base.errors import RunFailed, counted
from dagc.lab.candidate import Candidate
from dagc.lab.engine import FIRST, MeasuringPlace, Summary
from dagc.lab.live import LiveMachine
from dagc.lab.orders import OrderStore
from dagc.measure.service import RankLink
from dagc.store.results import GROUP, MOST_DRIFT, MachineRecord, Run, of_hosts, unlike

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


class RankGroups:
    """The first group, and others that measure beside it as soon as their ranks have started."""

    def __init__(
        self, machine: LiveMachine, store: OrderStore, links: Sequence[RankLink], records: Records, run: Run,
        hosts: Sequence[MachineRecord], notes: list[str],
    ) -> None:  # fmt: skip
        """`links`: those of the other groups. `machine` has timed the drift reference; `store`, `records`, `run` and
        `hosts` are of the first group. Waits until the others have started, unless they are in a queue."""
        self.groups = [RankGroup(FIRST, machine, store, records, run.machine.hosts)]
        self._run, self._records, self._notes = run, records, notes
        self._machines = list(hosts)
        self._pool = ThreadPoolExecutor(max(1, len(links)))
        self._starting = {
            self._pool.submit(_hosts, other, run.machine): (number, other)
            for number, other in enumerate([machine.beside(link) for link in links], 2)
        }
        if not any(link.in_queue for link in links):
            wait(self._starting)
        if links:  # they measure in other threads, and one thread writes the file
            machine.on_reference = store.reference

    def joined(self, waiting: bool = False) -> list[MeasuringPlace[Candidate]]:
        """The places of groups that have started since the last call. A group that cannot be started is left out, with
        a note. `waiting`: until one has started, or none is to come."""
        came: list[MeasuringPlace[Candidate]] = []
        while True:
            for started in [one for one in self._starting if one.done()]:
                group = self._joining(*self._starting.pop(started), started.result())
                came += [group.place] if group is not None else []
            if came or not waiting or not self._starting:
                return came
            wait(self._starting, return_when=FIRST_COMPLETED)

    def _joining(
        self, number: int, machine: LiveMachine, hosts: tuple[MachineRecord, ...] | RunFailed
    ) -> RankGroup | None:
        if isinstance(hosts, RunFailed):
            self._notes.append(f"group {number} is left out: {hosts.first}")
            return None
        self._machines += hosts
        names = of_hosts(hosts).hosts
        options = self._run.options | {GROUP: number}
        of_group = replace(
            self._run, machine=replace(self._run.machine, hosts=names), noise=math.nan, options=options
        )  # fmt: skip
        kept, store = self._records.beside(of_group), self.groups[0].store
        group = RankGroup(f"group {number} ({', '.join(names)})", machine, OrderStore(store.domain, kept), kept, names)
        machine.on_reference = group.store.reference
        self.groups.append(group)
        return group

    def left(self, done: Summary[Candidate]) -> RankGroup:
        """The first group that is left after a search, for what follows. Notes name those that were lost, slow ones,
        and what differs between their hosts."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._starting:
            self._notes.append(f"{counted(len(self._starting), 'group')} had not started when the search ended")
        self._notes += unlike(self._machines)
        return group_left(self.groups, done, self._notes)


def _hosts(machine: LiveMachine, first: MachineRecord) -> tuple[MachineRecord, ...] | RunFailed:
    try:
        return machine.hosts(first.target, first.arch)
    except RunFailed as why:
        return why


def group_left(groups: Sequence[RankGroup], done: Summary[Candidate], notes: list[str]) -> RankGroup:
    """The first group that is left after a search, for what follows. Notes name those that were lost, and slow ones."""
    notes += [f"{name} was lost: {why}; what it measured was measured by another group" for name, why in done.lost]
    names = {FIRST: f"{FIRST} ({', '.join(groups[0].hosts)})"}  # the others have theirs
    usual = median_low(done.references.values()) if done.references else math.nan
    of_usual = "that of the faster" if len(groups) == 2 else "the median"
    if len(groups) > 1:
        factors = [seconds / usual for seconds in done.references.values()]
        times = f"{min(factors, default=1.0):.2f} to {max(factors, default=1.0):.2f} times {of_usual}"
        hosts = {host for group in groups for host in group.hosts}
        notes.append(f"{len(groups)} groups on {counted(len(hosts), 'host')}; drift reference {times}, divided out")
    for name, seconds in done.references.items() if len(groups) > 1 else ():
        if seconds > (1 + SLOW) * usual:
            beyond = f", of which {MOST_DRIFT:g} is divided out at most" if seconds > MOST_DRIFT * usual else ""
            took = f"its drift reference takes {seconds / usual:.2f} times {of_usual}{beyond}"
            notes.append(f"{names.get(name, name)} is slow: {took}")
    for name, factor in done.effects.items():
        if max(factor, 1 / factor) > 1 + SLOW:
            times = f"its times are {factor:.2f} times those of {names[FIRST]}, beyond the drift reference"
            notes.append(f"{name} is {'slow' if factor > 1 else 'fast'}: {times}; divided out")
    for group in groups:
        group.store.write_references()
        group.machine.on_reference = group.records.reference
    gone = dict(done.lost)
    return next(group for group in groups if group.name not in gone)

"""Service on the ranks for the laboratory: opens libraries when needed, and counts deaths in one place.

One protocol (the commands of `dagc.measure.executor`) isolates crashes, hangs and wrong results: the ranks end, the
next command starts them again, and libraries are opened again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dagc.measure.link import RankLink, RanksDied

OPEN_SECONDS = 300.0  # loading arrays, and connecting GPUs
GIVE_UP = 3  # deaths in one place without a success


@dataclass(frozen=True, slots=True)
class RunnerLibrary:
    """A runner library with its arrays (the directory that `dagc setup` wrote).

    `device_pointers`: the user asserts that this MPI accepts them.
    """

    path: Path
    data: Path
    device_pointers: bool = False

    @property
    def key(self) -> str:
        """Its name among the ranks."""
        return f"{self.path.absolute()} {self.data.absolute()} {self.device_pointers}"


class Deaths:
    """The number of deaths of the ranks in each place, and the places that were given up: each death costs a
    restart."""

    def __init__(self) -> None:
        self._succeeded: set[Hashable] = set()
        self._count: Counter[Hashable] = Counter()
        self._given_up: dict[Hashable, str] = {}

    def success(self, place: Hashable) -> None:
        self._succeeded.add(place)

    def death(self, place: Hashable, failure: str) -> str:
        """Count a death; returns `failure` as reported."""
        self._count[place] += 1
        if place not in self._succeeded and self._count[place] >= GIVE_UP:
            self._given_up[place] = f"{failure} (given up after {GIVE_UP} such failures)"
        return failure

    def given_up(self, place: Hashable) -> str:
        """The reason why a place was given up; "" if it was not."""
        return self._given_up.get(place, "")

    def forget(self) -> None:
        """Forget all places: their names change meaning."""
        self._succeeded.clear()
        self._count.clear()
        self._given_up.clear()


class Service:
    """Libraries on ranks. Commands and answers are those of `dagc.measure.executor`."""

    def __init__(self, link: RankLink, *, watchdog: float = 20.0) -> None:
        """`watchdog`: seconds allowed for opening a library, at least."""
        self._link, self._watchdog = link, watchdog
        self._open: dict[str, RunnerLibrary] = {}
        self.deaths = Deaths()
        self.died = 0  # deaths of the ranks so far; each loses their state
        self.placed: object = None  # the owner of the data from the last run up to an op
        self.on_death: Callable[[str], None] | None = None  # called with the reason of each death

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()

    def ask(self, library: RunnerLibrary, **command: Any) -> dict[str, Any]:
        """Execute a command with the library open, and return its answer. Raises RanksDied.

        Raises RunFailed if the ranks cannot be started at all, MissingTool without mpi4py.
        """
        answer = self.open(library)
        if "error" in answer:
            return answer
        return self.send({**command, "key": library.key})

    def close(self, library: RunnerLibrary, limit: float = OPEN_SECONDS) -> None:
        """Free the library's arrays, if it is open."""
        if library.key in self._open:
            del self._open[library.key]
            self.send({"do": "close", "key": library.key, "limit": limit})

    def open(self, library: RunnerLibrary) -> dict[str, Any]:
        """Open a library unless it is open: an answer, which may have an `error`. Raises as `ask`."""
        if library.key in self._open:
            return {}
        command = {
            "do": "open", "key": library.key, "library": str(library.path.absolute()),
            "data": str(library.data.absolute()), "device_pointers": library.device_pointers,
            "limit": max(OPEN_SECONDS, self._watchdog),
        }  # fmt: skip
        alone = not self._open
        try:
            answer = self.send(command)
        except RanksDied:
            if alone:
                raise
            answer = self.send(command)  # memory may have been exhausted by other open libraries
        if "error" not in answer:
            # A library has one set of arrays: these have replaced others.
            self._open = {key: other for key, other in self._open.items() if other.path != library.path}
            self._open[library.key] = library
        return answer

    def insist(self, place: Hashable, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The answer to a command that must succeed before anything else can be measured. It is tried GIVE_UP times if
        the ranks die, but once if they hang, since each hang takes its limit; and not again in a place that was given
        up. The answer then has an `error`."""
        failure = self.deaths.given_up(place)
        for _ in range(0 if failure else GIVE_UP):
            try:
                answer = ask()
            except RanksDied as death:
                failure = self.deaths.death(place, one_line(str(death)).removeprefix("run failed: "))
                if failure.startswith("hang"):
                    break
                continue
            if "error" not in answer:
                self.deaths.success(place)
            return answer
        return {"error": self.deaths.given_up(place) or failure}

    def send(self, command: dict[str, Any]) -> dict[str, Any]:
        """A command that needs no library. Raises RanksDied."""
        try:
            return self._link.ask(command)
        except RanksDied as death:
            self._open.clear()
            self.died += 1
            if self.on_death is not None:
                self.on_death(one_line(str(death)))
            raise


def one_line(text: str) -> str:
    return " ".join(text.split())

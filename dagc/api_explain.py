"""The recipe of `dagc explain`: rules of the fastest implementation -> edits -> timed pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from dagc import __version__
from dagc.api_results import Loaded, learn, ranking
from dagc.errors import UsageError

if TYPE_CHECKING:
    from dagc.explain import Edit, Explanation
    from dagc.results import Implementation
    from dagc.rules import Rule
    from dagc.run.link import Link
    from dagc.search.domain import Candidate, Domain
    from dagc.search.engine import Machine


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """What the command line gives. `seconds` and `watchdog` are in seconds."""

    replay: str | None = None
    variants: int = 3
    pairs: int = 30
    seconds: float = 0.01
    data: str | None = None
    seed: int = 0
    watchdog: float = 20.0
    other_machine: bool = False
    mpi_takes_device_pointers: bool = False


def explain(path: str | Path, options: ExplainOptions, form: str = "text") -> str:
    """For each rule of the fastest implementation: what breaking it alone costs, measured in interleaved pairs.

    Measures on this machine, or with `replay` takes times from a results file. "" on ranks but the first, where the
    user started several. Raises DagcErrors.
    """
    from dagc.explain import render

    loaded = Loaded(path)
    if options.replay is not None:
        return render(_replayed(loaded, options), form)
    from dagc.run.link import link_ranks

    ranks = loaded.results.runs[-1].ranks
    link = link_ranks(ranks)
    if link is None:
        return ""
    with link:
        return render(_measured(loaded, options, link, ranks), form)


def _question(loaded: Loaded, options: ExplainOptions) -> tuple[Domain, Candidate, dict[Rule, tuple[Edit, ...]]]:
    """The domain, the fastest implementation, and its edits."""
    from dagc.explain import edits_of
    from dagc.rules import Sample
    from dagc.search.domain import COUNTABLE_STATES, Arm, Candidate, Domain
    from dagc.space import Space
    from dagc.text import parse_traversal

    ranked = ranking(loaded.results)
    if not ranked:
        raise UsageError(f"{loaded.path} has no measurements", "run `dagc explore` first, or go on with --resume")
    domain = Domain([Arm(c, Space(g, limit=COUNTABLE_STATES)) for c, g in loaded.graphs.items()])

    def candidate(found: Implementation) -> Candidate:
        arm = domain.number(found.configuration)
        assert arm is not None
        return Candidate(arm, parse_traversal(found.traversal, domain.arms[arm].space.graph, loaded.path))

    best = candidate(ranked[0])
    arm = domain.arms[best.arm]
    learned = learn(loaded)
    rules = learned.satisfied(Sample(arm.space.graph, arm.configuration, best.traversal, 0.0)).rules
    # The fastest of each other configuration: where a rule is about a choice, it is broken by another configuration.
    fastest = {i.configuration: i for i in reversed(ranked) if i.configuration != arm.configuration}
    more = [candidate(i) for _, i in sorted(fastest.items())]
    return domain, best, edits_of(domain, best, rules, options.variants, options.seed, more)


def _explanation(
    loaded: Loaded,
    domain: Domain,
    best: Candidate,
    edits: Mapping[Rule, tuple[Edit, ...]],
    machine: Machine,
    pairs: Callable[[Candidate], int],
    keep: Callable[[Candidate, float], None] | None,
) -> Explanation:
    from dagc.explain import Explained, Explanation, time_pairs
    from dagc.text import traversal_text

    def text(candidate: Candidate) -> str:
        return traversal_text(candidate.traversal, domain.arms[candidate.arm].space.graph)

    explained = []
    for rule, found in edits.items():
        timed = [
            (e, text(e.candidate), time_pairs(machine, best, e.candidate, pairs(e.candidate), keep)) for e in found
        ]
        explained.append(Explained(rule, tuple(sorted(timed, key=lambda t: (t[2].ratio, t[0].distance)))))
    results = loaded.results
    chosen = domain.arms[best.arm].configuration
    known = next(i for i in results.implementations if i.configuration == chosen and i.traversal == text(best))
    return Explanation(chosen.text, known.traversal, known.seconds(results.reference), results.noise, tuple(explained))


def _replayed(loaded: Loaded, options: ExplainOptions) -> Explanation:
    from dagc.records import load
    from dagc.search.replay import ReplayMachine

    assert options.replay is not None
    recorded = load(options.replay)
    if recorded.program.hash != loaded.results.program.hash:
        raise UsageError(
            f"{options.replay} holds results of another program ({recorded.program.hash}, not"
            f" {loaded.results.program.hash})",
            "replay an exploration of the same text and parameters",
        )
    domain, best, edits = _question(loaded, options)
    machine = ReplayMachine(recorded, domain, options.seed)
    # A recorded pass is used once in each comparison: more pairs than passes would only look like more knowledge.
    return _explanation(
        loaded, domain, best, edits, machine,
        lambda edit: max(1, min(options.pairs, machine.passes(best), machine.passes(edit))), None,
    )  # fmt: skip


def _measured(loaded: Loaded, options: ExplainOptions, link: Link, ranks: int) -> Explanation:
    from dagc.api_explore import build_runners, revision
    from dagc.configurations import Configured
    from dagc.emit import rows
    from dagc.records import Records
    from dagc.results import Run
    from dagc.run.live import LiveMachine, Loadable
    from dagc.run.target import choose_target
    from dagc.setup import run_setup
    from dagc.text import traversal_text

    results = loaded.results
    chosen = choose_target(results.runs[-1].machine.target, results.runs[-1].machine.arch or None)
    domain, best, edits = _question(loaded, options)
    folder = Path(loaded.path).parent / f"{Path(loaded.path).stem}-build"
    found = [Configured(a.configuration, dict(a.configuration.decisions), a.space.graph) for a in domain.arms]
    libraries = build_runners(found, chosen, folder)
    data = Path(options.data) if options.data is not None else folder / f"data-{ranks}"
    if options.data is None:
        program = domain.arms[0].space.graph.program
        run_setup(program, Path(program.path).parent, ranks, options.seed, data)
    loadables = [
        Loadable(libraries[c.configuration], data, rows, c.configuration.get("capture") is True,
                 options.mpi_takes_device_pointers)
        for c in found
    ]  # fmt: skip
    with ExitStack() as stack:
        records: list[Records] = []
        machine = LiveMachine(
            domain, loadables, link, seconds=options.seconds, watchdog=options.watchdog,
            on_reference=lambda seconds: records[0].reference(seconds) if records else None,
        )  # fmt: skip
        run = Run(
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            machine=machine.facts(chosen.target.value, chosen.arch), ranks=ranks, seed=options.seed,
            strategy="explain", seconds=options.seconds, revision=revision(Path(results.program.path).parent),
            version=__version__, options=asdict(options),
        )  # fmt: skip
        records.append(
            stack.enter_context(
                Records.open(loaded.path, results.program, run, resume=True, other_machine=options.other_machine)
            )
        )

        def keep(candidate: Candidate, seconds: float) -> None:
            arm = domain.arms[candidate.arm]
            number = records[0].begin(arm.configuration, traversal_text(candidate.traversal, arm.space.graph))
            records[0].add(number, seconds, float("nan"), 0, "explain")

        return _explanation(loaded, domain, best, edits, machine, lambda _: options.pairs, keep)

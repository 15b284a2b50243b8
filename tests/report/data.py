"""Results for the tests of reports. Traces, and times of further configurations, are made up; nobody measured them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

from dagc import api
from dagc.base.sample import Sample
from dagc.ir.choice import Choice
from dagc.ir.constraints import configuration_of
from dagc.ir.program import Graph
from dagc.ir.traversal import Issue, Record, Traversal, Wait, parse_traversal, traversal_text
from dagc.learn.tree import LearnedRules, learn
from dagc.learn.types import Example
from dagc.space import Space
from dagc.store.results import Implementation, ImplementationId, Results, Taken, TraceSpan
from tests.data.h200 import RUN, SPMV, h200_graph, h200_results, program_of

NAN = float("nan")


def made_up_trace(graph: Graph, traversal: Traversal, ranks: int, seed: int = 0) -> tuple[TraceSpan, ...]:
    """As a machine might trace it: every entry takes 1 to 5 us, GPU ops follow each other on their streams."""
    random = Random(seed)
    spans = []
    for rank in range(ranks):
        now, free = 0.0, dict.fromkeys(range(8), 0.0)
        ends: dict[int, float] = {}
        for position, entry in enumerate(traversal.entries):
            begin, now = now, now + random.uniform(0.3e-6, 5e-6)
            gpu = (NAN, NAN)
            match entry:
                case Issue(op, stream) if stream is not None and graph.ops[op].gpu:
                    start = max(free[stream], now)
                    free[stream] = start + random.uniform(4e-6, 20e-6)
                    gpu = start, free[stream]
                case Record(event, stream):
                    ends[event] = free[stream]
                case Wait(event, None):
                    now = max(now, ends[event])
                case Wait(event, stream):
                    free[stream] = max(free[stream], ends[event])
            spans.append(TraceSpan(rank, position, begin, now, *gpu))
    return tuple(spans)


def with_traces(results: Results, graph: Graph, ranks: int = 4) -> Results:
    """With made-up traces of the best and of the worst."""
    ends = (results.measured()[0], results.measured()[-1])
    traces = {i.id: made_up_trace(graph, parse_traversal(i.traversal, graph), ranks, i.id) for i in ends}
    return replace(results, traces=traces)


@cache
def h200_traced() -> Results:
    """The recorded measurements with a made-up trace."""
    return with_traces(h200_results(), h200_graph())


def learned_of(results: Results, graphs: dict[Choice, Graph]) -> LearnedRules:
    """Rules, as `dagc report` learns them."""
    samples = [
        Example(
            graphs[i.configuration],
            i.configuration,
            parse_traversal(i.traversal, graphs[i.configuration]),
            i.value(results.reference),
            len(i.samples),
        )
        for i in results.measured()
    ]
    return learn(samples, results.noise)


@cache
def h200_learned() -> LearnedRules:
    return learned_of(h200_results(), {configuration_of(h200_graph()): h200_graph()})


def several_configurations() -> tuple[Results, dict[Choice, Graph]]:
    """Made-up times of traversals with every transport, in two runs; some could not be measured."""
    graphs: dict[Choice, Graph] = {}
    implementations: list[Implementation] = []
    order = 0
    random = Random(5)
    for transport, base in (("mpi_host", 70e-6), ("mpi_cuda", 60e-6), ("nccl", 34e-6), ("peer", 29e-6)):
        graph = api.load_graph(SPMV, {"transport": transport})
        configuration = configuration_of(graph)
        graphs[configuration] = graph
        space = Space(graph)
        for number in range(0, space.count(), max(1, space.count() // 40)):
            middle = base * random.uniform(1, 1.3)
            times = [middle * random.gauss(1, 0.02) for _ in range(3)]
            places = tuple(Taken(int(k == 2), order + k) for k in range(3))
            order += 3
            failed = number % 7 == 3
            implementations.append(
                Implementation(
                    ImplementationId(len(implementations)), configuration, traversal_text(space.at(number), graph),
                    () if failed else tuple(map(Sample, times)),
                    "hang: rank 2 in `yl` (entry 3 of 14)" if failed else "", () if failed else places,
                )
            )  # fmt: skip
    runs = (RUN, replace(RUN, strategy="mcts-min", seed=1, options={"budget": 200, "time": None}))
    program = program_of(graphs[implementations[0].configuration])
    return Results(program, runs, tuple(implementations), noise=0.02), graphs

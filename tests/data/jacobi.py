"""A search for the fastest Jacobi solver of 2048 x 2048 on two H200s, as recorded: 320 measurements in 15 s.

Its model was fitted again after measurement 213, expected too little of the implementations on one stream, and from
then on the search measured hardly anything else.
"""

from __future__ import annotations

import csv
import io
import lzma
from functools import cache
from pathlib import Path

from dagc.build.toolchain import choose_target
from dagc.ir.choice import Choice
from dagc.ir.traversal import parse_traversal
from dagc.lab.candidate import Candidate
from dagc.lab.orders import Orders
from dagc.report.display import Display
from dagc.stages.options import ExploreOptions
from dagc.stages.program import read
from dagc.study.decisions import SearchRequest, configured, domain_of
from dagc.study.launch import launch_sites, launched

CSV = Path(__file__).with_name("jacobi-2048-2xh200.csv.xz")
JACOBI = Path(__file__).parents[2] / "samples/jacobi/jacobi.dag"


@cache
def jacobi_search() -> tuple[Orders, tuple[tuple[Candidate, float], ...]]:
    """The searched domain, and the measured candidates with their seconds, in the order measured."""
    text = read(JACOBI, {"nx": 2048, "rows": 1024}, True)
    options = ExploreOptions(ranks=2, transport="all", launch="search", quiet=True)
    request = SearchRequest(text, options, choose_target("host", None), Display(quiet=True))
    _, configurations, _ = configured(text, options, gpus=True)
    settled = launched(request, configurations, {}, Path()).configurations
    domain = domain_of(settled, options, launch_sites(request, settled, None))
    measured = []
    for configuration, traversal, us in csv.reader(io.StringIO(lzma.decompress(CSV.read_bytes()).decode())):
        pairs = (word.split("=") for word in configuration.split())
        values = {name: value if not value.isdigit() else int(value) for name, value in pairs}
        values = {name: value == "true" if name == "capture" else value for name, value in values.items()}
        found = domain.find(Choice.of(values))
        assert found is not None, configuration
        index, choices = found
        graph = domain.spaces[index].graph
        measured.append((Candidate(index, parse_traversal(traversal, graph, "recorded"), choices), 1e-6 * float(us)))
    return domain, tuple(measured)

"""Recipes that read results files: best, rules, report, export, merge. See dagc.api for what they stand on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dagc.source import Source

if TYPE_CHECKING:
    from dagc.graph import Graph
    from dagc.ir import Value
    from dagc.results import Configuration, Results
    from dagc.rules import Sample


class Loaded:
    """A results file with the graphs of its configurations, built again from the texts that it keeps."""

    def __init__(self, path: str | Path) -> None:
        """Raises UsageError for a file that cannot be read."""
        from dagc.records import load

        self.path = str(path)
        self.results: Results = load(path)
        self._graphs: dict[Configuration, Graph] = {}

    @cached_property
    def _lowering(self) -> tuple[Source, dict[str, Value], dict[str, str]]:
        program = self.results.program
        texts = dict(program.sources)
        return Source(program.path, texts[program.path]), dict(program.params), texts

    def graph(self, configuration: Configuration) -> Graph:
        """The graph of a configuration, from the recorded text, whatever has become of the file since."""
        from dagc.lang.lower import lower
        from dagc.lang.parse import parse
        from dagc.passes import build_graph

        if configuration not in self._graphs:
            source, params, texts = self._lowering
            self._graphs[configuration] = build_graph(
                lower(parse(source), source, {**params, **dict(configuration.decisions)}, texts)
            )
        return self._graphs[configuration]

    @property
    def graphs(self) -> Mapping[Configuration, Graph]:
        """Of every configuration that has implementations."""
        return {c: self.graph(c) for c in sorted({i.configuration for i in self.results.implementations})}

    def samples(self) -> tuple[Sample, ...]:
        """What was measured, for rules: fastest first."""
        from dagc.rules import Sample
        from dagc.text import parse_traversal

        out = []
        for found in self.results.measured():
            graph = self.graph(found.configuration)
            traversal = parse_traversal(found.traversal, graph, self.path)
            out.append(Sample(graph, found.configuration, traversal, found.seconds(self.results.reference)))
        return tuple(out)

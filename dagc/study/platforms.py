"""`dagc platform`: platform files of SimGrid, for `explore --simulate`: of a named machine by its published figures,
and of the one at hand by a ping-pong."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dagc.base.errors import UsageError
from dagc.base.files import check_new_file, write_text_atomic
from dagc.base.python import np
from dagc.base.resources import resource
from dagc.measure.launch import launch
from dagc.report.display import Display

LATENCY = 2e-6  # seconds between two nodes of a named machine: an assumption, since none is published with the others
_NAMES = {
    "gpus": "GPUs of a node",
    "nodes": "nodes",
    "node_bandwidth": "bandwidth of a node",
    "gpu_bandwidth": "bandwidth between GPUs",
    "topology": "topology",
    "group": "nodes of a group",
    "routers": "switches of a group",
    "between": "bandwidth between groups (no bottleneck)",
}
_FILE = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<!-- {comment} -->
<platform version="4.1">
  <cluster id="nodes" prefix="node-" suffix="" radical="0-{last}" speed="1Gf" core="{cores}"
           bw="{bandwidth:.0f}Bps" lat="{latency:.4g}s"
           loopback_bw="{within:.0f}Bps" loopback_lat="{near:.4g}s"{shape}/>
</platform>
"""


@dataclass(frozen=True, slots=True)
class KnownMachine:
    """A machine of `templates/simgrid/machines.json`. Bytes a second: of a node into the network, between two GPUs of a
    node (the slowest two), `between` two groups of a dragonfly (0: not published). `group`: nodes of a group of a
    dragonfly, with so many `routers`, or of a leaf switch of a fat tree. `pages`: the facts that each states, by name.
    """

    title: str
    gpus: int
    nodes: int
    node_bandwidth: float
    gpu_bandwidth: float
    topology: str
    group: int
    routers: int
    between: float
    pages: Mapping[str, Sequence[str]]

    @property
    def origin(self) -> str:
        """Which page states which fact, and what none states."""
        stated = [
            f"{', '.join(_NAMES[fact].partition(' (')[0] for fact in facts)}: {page}"
            for page, facts in self.pages.items()
        ]
        known = {fact for facts in self.pages.values() for fact in facts}
        if self.topology == "fat tree":
            known |= {"routers", "between"}  # it has none
        assumed = [text for fact, text in _NAMES.items() if fact not in known]
        return "; ".join([*stated, f"assumptions: {', '.join([*assumed, f'{LATENCY:g} s between nodes'])}"])


@cache
def known_machines() -> dict[str, KnownMachine]:
    text = resource("templates/simgrid/machines.json").read_text(encoding="utf-8")
    return {name: KnownMachine(**facts) for name, facts in json.loads(text).items()}


def platform_like(name: str, ranks: int) -> str:
    """The file of so much of a machine as `ranks` ranks need, one for each GPU. Raises UsageError."""
    machines = known_machines()
    if name not in machines:
        raise UsageError(f"--like {name}: not a machine that dagc knows", f"one of: {', '.join(machines)}")
    one = machines[name]
    nodes = -(-ranks // one.gpus)
    if nodes > one.nodes:
        raise UsageError(f"{ranks} ranks need {nodes} nodes, and {name} has {one.nodes}", "give fewer ranks with -n")
    groups, shape = -(-nodes // one.group), ""
    if groups > 1:
        nodes, shape = groups * one.group, f"\n           {_shape(one, groups)}"
    return _FILE.format(
        comment=f"{one.title}. {one.origin}", last=nodes - 1,
        cores=one.gpus, bandwidth=one.node_bandwidth, latency=LATENCY / 2, within=one.gpu_bandwidth, near=LATENCY / 2,
        shape=shape,
    )  # fmt: skip


def _shape(one: KnownMachine, groups: int) -> str:
    """Of the network. Where nothing else is published, without a bottleneck: a leaf of a fat tree has as many links up
    as nodes, a group of a dragonfly as many to the other groups. Each link has the bandwidth of a node."""
    if one.topology == "fat tree":
        return f'topology="FAT_TREE" topo_parameters="2;{one.group},{groups};1,{one.group};1,1"'
    whole = one.between / one.node_bandwidth if one.between else one.group / (groups - 1)
    links, each = math.ceil(whole), one.group // one.routers
    return f'topology="DRAGONFLY" topo_parameters="{groups},{links};1,1;{one.routers},{each};{each}"'


# ---- the machine at hand ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LinkFit:
    """Seconds and bytes a second of messages of two ranks. `off`: the largest share by which the line misses a time."""

    hosts: tuple[str, ...]
    latency: float
    bandwidth: float
    off: float

    @property
    def between(self) -> bool:
        return len({*self.hosts}) > 1

    @property
    def text(self) -> str:
        where = f"between {self.hosts[0]} and {self.hosts[1]}" if self.between else f"within {self.hosts[0]}"
        measured = f"latency {self.latency * 1e6:.2f} us, bandwidth {self.bandwidth / 1e9:.2f} GB/s"
        return f"{where}: {measured}; the line misses the measured times by {self.off:.0%} at most"


def fitted_link() -> LinkFit | None:
    """By a ping-pong of two ranks, which are started, or those of this command; None on the second one of these. Raises
    DagcErrors."""
    with Display().phase("timing messages between two ranks"):
        out = launch([sys.executable, "-m", "dagc.measure.ping_pong"], 2, timeout=300).check().stdout.strip()
    if not out:
        return None
    measured = json.loads(out.splitlines()[-1])
    latency, bandwidth, off = line_through(measured["sizes"], measured["seconds"])
    return LinkFit(tuple(measured["hosts"]), latency, bandwidth, off)


def line_through(sizes: Sequence[int], seconds: Sequence[float]) -> tuple[float, float, float]:
    """Latency, bandwidth and largest relative error of `seconds = latency + size / bandwidth`, with the least sum of
    squared relative errors."""
    size, time = np.asarray(sizes, float), np.asarray(seconds, float)
    (latency, slope), *_ = np.linalg.lstsq(np.stack([1 / time, size / time], 1), np.ones(len(time)), rcond=None)
    latency, slope = max(float(latency), 1e-9), max(float(slope), 1e-15)
    return latency, 1 / slope, float(np.abs((latency + slope * size) / time - 1).max())


def platform_of(fit: LinkFit, ranks: int) -> str:
    """The file of one host with a core for each rank, or of a host for each where the ping-pong was between hosts."""
    nodes, cores = (ranks, 1) if fit.between else (1, ranks)
    return _FILE.format(
        comment=fit.text, last=nodes - 1, cores=cores, bandwidth=fit.bandwidth, latency=fit.latency / 2,
        within=fit.bandwidth, near=fit.latency, shape="",
    )  # fmt: skip


def platform(out: str | Path, ranks: int, like: str | None = None, force: bool = False) -> str | None:
    """Write the file of a machine that dagc knows, or of the one at hand, which two ranks measure; `force`: in place of
    one that exists. Returns what to print; None on the second of them. Raises DagcErrors."""
    path = Path(out)
    if path.suffix != ".xml":
        raise UsageError(f"-o {path}: SimGrid reads platforms from files that end in .xml", "choose such a name")
    check_new_file(path, force)
    if like is not None:
        write_text_atomic(path, platform_like(like, ranks))
        return f"{path}: {like}, for {ranks} ranks"
    fit = fitted_link()
    if fit is None:
        return None
    write_text_atomic(path, platform_of(fit, ranks))
    return f"{path}: {fit.text}"

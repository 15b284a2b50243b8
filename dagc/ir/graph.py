"""`Graph`: primitive ops of one program under one transport. Everything the CPU issues is a `GraphOp`.

Edges are those that the space counts (as written, no transitive reduction), `start` implied, `end` the last op.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from dagc.base.source import NOWHERE, Span
from dagc.ir.enums import Mode
from dagc.ir.program import CollectiveOp, CopyOp, ExchangeOp, KernelOp, OpId, Program, Region
from dagc.ir.sym import Sym


class Transport(Enum):
    MPI_HOST = "mpi_host"
    MPI_CUDA = "mpi_cuda"
    NCCL = "nccl"
    PEER = "peer"

    @property
    def grouped(self) -> bool:
        """Is an exchange of device arrays one GPU op?"""
        return self in (Transport.NCCL, Transport.PEER)


class Staging(Enum):
    """Where the copies of `mpi_host` are: in the producing and the consuming op, or ops of their own."""

    FUSED = "fused"
    OPS = "ops"


class Action(Enum):
    KERNEL = "kernel"  # gpu or cpu
    COPY = "copy"  # gpu; written in the .dag or inserted for an `any` array
    STAGE_OUT = "stage_out"  # gpu: device array -> staging buffer, for mpi_host with staging=ops
    STAGE_IN = "stage_in"  # gpu: staging buffer -> device array
    POST_SEND = "post_send"
    POST_RECV = "post_recv"
    WAIT_SEND = "wait_send"  # one for all messages of an exchange
    WAIT_RECV = "wait_recv"
    POST_COLLECTIVE = "post"
    WAIT_COLLECTIVE = "wait"
    GROUP = "group"  # nccl, peer: one exchange, or collective, as one GPU op
    END = "end"


@dataclass(frozen=True, slots=True)
class Staged:
    """A region that is copied between the device and its staging buffer.

    `source`: the rank that its message comes from, where it is one. Negative, nothing came, and nothing is copied: what
    is on the device stays, as under every other transport.
    """

    region: Region
    source: Sym | None = None


@dataclass(frozen=True, slots=True)
class GraphOp:
    """One vertex.

    op       what it came from in the Program (None for `end`)
    message  the message it serves: index into op.messages (POST_*, WAIT_RECV, STAGE_* of an exchange), else None
    staged   what a STAGE_* copies
    copy_in  what is copied from its staging buffer before the op's own work (fused staging)
    copy_out what is copied to its staging buffer after it (fused staging)
    stream   pinned stream, or None
    """

    id: OpId
    name: str
    gpu: bool
    action: Action
    op: KernelOp | CopyOp | ExchangeOp | CollectiveOp | None = None
    message: int | None = None
    staged: Staged | None = None
    copy_in: tuple[Staged, ...] = ()
    copy_out: tuple[Staged, ...] = ()
    stream: int | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Touch:
    """One access and how long it lasts: from the start of op `begin` to the completion of op `end`.

    They differ only for messages: a send buffer is read from its post to its wait.
    `staged`: the staging buffer of the region, not the region of the array itself.
    """

    begin: OpId
    end: OpId
    region: Region
    mode: Mode
    staged: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """`completion` and `order` are pairs (u, v) with u != v; `order` is issue order only.

    streams    how many streams a traversal may use
    staged     regions of device arrays that messages use, each with a staging buffer of its own (mpi_host)
    touches    every access of every op, for hazards
    hazards    pairs of indices into `touches` that conflict, first before second
    matches    (wait, post) pairs: the wait may only be issued after the post (every rank issues the same traversal)
    """

    program: Program
    transport: Transport
    staging: Staging
    streams: int
    ops: tuple[GraphOp, ...]
    completion: tuple[tuple[OpId, OpId], ...]
    order: tuple[tuple[OpId, OpId], ...]
    staged: tuple[Region, ...]
    touches: tuple[Touch, ...]
    hazards: tuple[tuple[int, int], ...]
    matches: tuple[tuple[OpId, OpId], ...]

    def by_name(self, name: str) -> GraphOp:
        """KeyError where there is none of that name."""
        for op in self.ops:
            if op.name == name:
                return op
        raise KeyError(name)

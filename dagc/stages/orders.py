"""Options of the orders of a program: a module of its own, since `dagc list` starts without the other options."""

from __future__ import annotations

from dataclasses import dataclass

from dagc.base.option import option


@dataclass(frozen=True, kw_only=True)
class OrderOptions:
    """`unroll`: every round of a loop has an order of its own; `prune_syncs` removes redundant sync ops."""

    unroll: bool = option(
        "--unroll", "an order for every round of a loop (default: one order, which its rounds repeat)"
    )
    prune_syncs: bool = option("--prune-syncs", "remove redundant sync ops (default: keep)")

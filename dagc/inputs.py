"""For set-ups: interprets an input of `dagc tune --inputs`.

from dagc.inputs import call

def load(rank, size, seed, matrix):
    A = call(matrix, {"rmat": rmat}, read=lambda path: mmread(HERE / path))
"""

from __future__ import annotations

from dagc.base.inputs import call, is_call

__all__ = ["call", "is_call"]

"""How many examples the property tests draw.

A test says how many it needs in every run. DAGC_TEST_EXAMPLES multiplies all of them: 10 for a search of an hour, 0.2
for a quick look.
"""

from __future__ import annotations

import os

FACTOR = float(os.environ.get("DAGC_TEST_EXAMPLES", "1"))


def examples(number: int) -> int:
    """`number` times the factor, at least one."""
    return max(1, round(number * FACTOR))

"""Files that are not programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import UsageError
from tests.regressions.programs import DAG, HEAD, KERNEL, write


def test_a_file_without_an_end(tmp_path: Path) -> None:
    """Was read until the memory was full."""
    with pytest.raises(UsageError, match="larger than 512 KiB"):
        api.read("/dev/zero")
    found = api.check(write(tmp_path, HEAD + 'include "/dev/zero"\n' + KERNEL + DAG)).diagnostics
    assert [d.code for d in found] == ["missing-file"]

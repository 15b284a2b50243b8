"""dagc/store.hpp: memory that is freed for another array."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dagc.build.toolchain import find_cxx
from tests.runtime.programs import make


@pytest.mark.skipif(find_cxx() is None, reason="needs a C++ compiler")
def test_an_array_that_is_not_needed_makes_room_for_another(tmp_path: Path) -> None:
    """The others stay as they are. Where nothing is left to free, the message names the array and its bytes."""
    done = subprocess.run([make("store", tmp_path), "256"], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[:2] == ["asked", "0 overrun, first freed"]
    assert done.returncode == 5
    assert f"out of memory: array first takes {(256 << 20) + 64} bytes" in done.stderr

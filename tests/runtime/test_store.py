"""dagc/store.hpp: memory that is freed for another array, and results that are compared."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from dagc.build.toolchain import find_cxx
from tests.runtime.programs import make

pytestmark = pytest.mark.skipif(find_cxx() is None, reason="needs a C++ compiler")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("store", tmp_path_factory.mktemp("store"))


@pytest.mark.thorough
def test_an_array_that_is_not_needed_makes_room_for_another(program: Path) -> None:
    """The others stay as they are. Where nothing is left to free, the message names the array and its bytes."""
    done = subprocess.run([program, "256"], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[:2] == ["asked", "0 overrun, first freed"]
    assert done.returncode == 5
    assert f"out of memory: array first takes {(256 << 20) + 256} bytes" in done.stderr


def test_results_that_agreed_before_are_known_by_their_digest(program: Path, tmp_path: Path) -> None:
    """Others are compared with the file. An element that nobody wrote is found, even where its poison looks like a
    result that agreed."""
    np.save(tmp_path / "y.npy", np.array([10, 0, 0, 0], np.int32))
    done = subprocess.run([program, tmp_path], capture_output=True, text=True, check=False)
    right, wrong, *rest = done.stdout.splitlines()
    assert right == ""
    assert wrong.startswith("y is wrong: element 3 is 1, expected 0")
    assert rest == ["", "", "", "y is wrong: element 3 is never written", ""]
    assert done.returncode != 0
    assert "y.npy" in done.stderr  # of another result: it is needed, and gone

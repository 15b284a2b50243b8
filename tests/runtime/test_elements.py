"""Features read few elements of large arrays: dagc::Elements copies what is read."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dagc.build.toolchain import find_cxx
from tests.runtime.programs import make


@pytest.mark.skipif(find_cxx() is None, reason="needs a C++ compiler")
def test_elements_are_copied_when_read(tmp_path: Path) -> None:
    done = subprocess.run([make("elements", tmp_path)], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr

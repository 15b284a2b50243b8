"""Loads the Python file of a sample, as a module of its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

SAMPLES = Path(__file__).parents[2] / "samples"


def sample(path: str) -> ModuleType:
    """`sample("spmv/spmv.py")`."""
    file = SAMPLES / path
    spec = importlib.util.spec_from_file_location(f"sample_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

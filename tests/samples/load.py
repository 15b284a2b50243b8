"""Loads the Python file of a sample, as a module of its own, which may import files beside it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

SAMPLES = Path(__file__).parents[2] / "samples"


def sample(path: str) -> ModuleType:
    """`sample("spmv/spmv.py")`."""
    file = SAMPLES / path
    spec = importlib.util.spec_from_file_location(f"sample_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(file.parent))
    return module


def computed(data: dict[str, Any]) -> dict[str, Any]:
    """What a set-up returned, with the values of its functions."""
    return {name: value() if callable(value) else value for name, value in data.items()}

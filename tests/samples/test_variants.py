"""The samples whose variants are chosen by features of the input: lists, generators, references, and every variant."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.csgraph

from dagc.base.inputs import is_call
from dagc.inputs import call
from tests.samples.load import load_sample

ROOT = Path(__file__).parents[2] / "samples"
SAMPLES = ["histogram", "sort", "bfs"]

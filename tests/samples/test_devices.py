"""The samples with versions on both devices: set-ups, references, and every version against the reference."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from dagc.build.builder import build
from dagc.build.toolchain import find_mpi, find_nvcc, find_openblas, require_mpi
from dagc.recipes import tune as recipes
from dagc.recipes.options import TuneOptions
from tests.measure.conftest import can_run
from tests.samples.load import SAMPLES, sample

# On the host target, without cuBLAS and cuSPARSE.
ANSWERS = {"gemm": 6 if find_openblas() is not None else 5, "pagerank": 6, "nbody": 5, "kmotif": 4}

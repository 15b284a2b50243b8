"""dagc: a compiler-style code generator for CUDA + MPI programs."""

__version__ = "0.1.0"

"""Compilers, MPI, NCCL, targets, devices, and the build cache."""

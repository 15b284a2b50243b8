"""Compilers, MPI, NCCL, targets, devices, and the cache of what was built."""

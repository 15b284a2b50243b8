#!/usr/bin/env bash
# Collects into DIR the wheels that dagc needs on a CUDA machine without a network. Run it where there is one.
# Usage: collect.sh DIR [PYTHON_VERSION]      (PYTHON_VERSION is that of the CUDA machine's python3; default 3.12)
#
# About 60 MB: lark, PyCUDA's dependencies, and an MPI that takes device pointers (MPICH, and UCX built with CUDA).
# PyCUDA itself has no wheel for Linux. Build one on a machine with the CUDA toolkit and the same Python,
#   pip wheel --no-deps -w DIR pycuda
# and put it into DIR; without it everything but the Python drivers works.
# Transport nccl needs NCCL: of that machine, or (200 MB) of `pip download -d DIR nvidia-nccl-cu13`.
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: collect.sh DIR [PYTHON_VERSION]" >&2; exit 2; }
dir=$1
version=${2:-3.12}
mkdir -p "$dir"
platforms=()
for tag in manylinux_2_28 manylinux_2_27 manylinux_2_24 manylinux_2_17 manylinux2014 manylinux1; do
  platforms+=(--platform "${tag}_x86_64")
done
python3 -m pip download --quiet --no-deps --only-binary=:all: --implementation cp --python-version "$version" \
  "${platforms[@]}" --dest "$dir" lark msgspec tree-sitter tree-sitter-cuda pytools siphash24 platformdirs mpi4py mpich libucx-cu13
ls -l "$dir"
ls "$dir"/pycuda-*.whl >/dev/null 2>&1 || echo "no PyCUDA wheel in $dir: the Python drivers will not run there" >&2

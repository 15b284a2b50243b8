#!/usr/bin/env bash
# Installs, on a CUDA machine without a network, what collect.sh collected. Run it from anywhere in a checkout.
# Usage: setup.sh WHEELS PREFIX        then:  . PREFIX/env.sh        or:  . PREFIX/env-cuda-aware.sh
#
#   PREFIX/site          lark, PyCUDA and its dependencies, on PYTHONPATH: a virtual environment made by a python3 that
#                        is itself in one would not see that machine's NumPy and mpi4py
#   PREFIX/mpi           MPICH and UCX in an environment of their own: an MPI needs a real prefix
#   PREFIX/env.sh            dagc from this checkout, with the machine's own MPI (host-staged messages)
#   PREFIX/env-cuda-aware.sh the same with MPICH on a UCX that knows CUDA: messages straight from device memory
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: setup.sh WHEELS PREFIX" >&2; exit 2; }
wheels=$(cd "$1" && pwd)
mkdir -p "$2"
prefix=$(cd "$2" && pwd)
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PYTHON:-python3}
pip=("$python" -m pip)
offline=(install --quiet --no-index --no-deps --no-compile --no-cache-dir --disable-pip-version-check)
export PIP_ROOT_USER_ACTION=ignore

site_wheels=() mpi_wheels=() mpi4py_wheels=()
for wheel in "$wheels"/*.whl; do
  case $(basename "$wheel") in
    mpich-* | libucx_*) mpi_wheels+=("$wheel") ;;
    mpi4py-*) mpi4py_wheels+=("$wheel") ;;
    *) site_wheels+=("$wheel") ;;
  esac
done
[ ${#site_wheels[@]} -gt 0 ] || { echo "no wheels in $wheels" >&2; exit 2; }
"${pip[@]}" "${offline[@]}" --upgrade --target "$prefix/site" "${site_wheels[@]}"

cat >"$prefix/dagc" <<END
#!/bin/sh
PYTHONPATH="$checkout\${PYTHONPATH:+:\$PYTHONPATH}" exec "$python" -m dagc "\$@"
END
chmod +x "$prefix/dagc"

cat >"$prefix/env.sh" <<END
export PATH="$prefix:\$PATH"
export PYTHONPATH="$checkout:$prefix/site\${PYTHONPATH:+:\$PYTHONPATH}"
export PYTHONDONTWRITEBYTECODE=1
END

if [ ${#mpi_wheels[@]} -gt 0 ]; then
  [ -x "$prefix/mpi/bin/python" ] || "$python" -m venv --without-pip "$prefix/mpi"
  "${pip[@]}" --python "$prefix/mpi/bin/python" "${offline[@]}" "${mpi_wheels[@]}"
  if [ ${#mpi4py_wheels[@]} -gt 0 ]; then
    "${pip[@]}" "${offline[@]}" --upgrade --target "$prefix/site-mpi" "${mpi4py_wheels[@]}"
  fi
  ucx=$(echo "$prefix"/mpi/lib/python*/site-packages/libucx/lib)
  [ -f "$ucx/libucp.so.0" ] || { echo "$ucx has no UCX: is a libucx wheel in $wheels?" >&2; exit 3; }
  # Only the ranks get this UCX, in place of the one that MPICH brings: the starter and all else do without.
  # MPIR_CVAR_NOLOCAL: ranks of one machine too go through UCX, as MPICH's own shared memory knows no CUDA.
  mkdir -p "$prefix/cuda-aware"  # not beside dagc: env.sh is for programs of the machine's own MPI
  cat >"$prefix/cuda-aware/mpiexec" <<END
#!/bin/sh
exec "$prefix/mpi/bin/mpiexec" \\
  -genv LD_PRELOAD "$ucx/libucm.so.0:$ucx/libucs.so.0:$ucx/libuct.so.0:$ucx/libucp.so.0\${LD_PRELOAD:+:\$LD_PRELOAD}" \\
  -genv UCX_MODULE_DIR "$ucx/ucx" \\
  -genv MPIR_CVAR_NOLOCAL 1 \\
  -genv MPIR_CVAR_CH4_NETMOD ucx \\
  "\$@"
END
  chmod +x "$prefix/cuda-aware/mpiexec"
  cat >"$prefix/env-cuda-aware.sh" <<END
. "$prefix/env.sh"
export PATH="$prefix/cuda-aware:\$PATH"
export PYTHONPATH="$prefix/site-mpi:\$PYTHONPATH"
export DAGC_MPICXX="$prefix/mpi/bin/mpicxx"
export DAGC_MPIEXEC="$prefix/cuda-aware/mpiexec"
export MPI4PY_LIBMPI="$prefix/mpi/lib/libmpi.so.12"
# MPIX_Query_cuda_support answers 0, since MPICH itself was built without CUDA; UCX takes the pointers all the same:
# give programs with --transport mpi_cuda the option --mpi-takes-device-pointers.
END
fi

# A last look: what was installed can be imported and started.
( . "$prefix/env.sh"; "$python" -c "import lark, jinja2, numpy; print('python packages: ok')" )
if [ -x "$prefix/cuda-aware/mpiexec" ]; then
  "$prefix/cuda-aware/mpiexec" -n 2 sh -c 'echo "rank $PMI_RANK of $PMI_SIZE"'
fi
echo "ready: . $prefix/env.sh   or   . $prefix/env-cuda-aware.sh"

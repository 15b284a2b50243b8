"""y = 2 x by the library `scaled`, on arrays of a package: on_gpu.py LIBRARY PACKAGE. Prints what was right."""

import sys

import numpy as np
from mpi4py import MPI

import dagc

scaled, package, n = dagc.load_library(sys.argv[1]), sys.argv[2], 1000
numbers = np.arange(float(n))


class OnlyDLPack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def arrays():
    """x, y, and what makes a NumPy array of y."""
    if package in ("cupy", "cupy-dlpack", "jax"):
        import cupy

        x, y, to_numpy = cupy.asarray(numbers), cupy.zeros(n), cupy.asnumpy
        if package == "jax":
            import jax

            jax.config.update("jax_enable_x64", True)
            x = jax.numpy.asarray(numbers).block_until_ready()  # arrays of JAX do not change: y is CuPy's
    elif package in ("torch", "torch-dlpack"):
        import torch

        x, y = torch.from_numpy(numbers).cuda(), torch.zeros(n, dtype=torch.float64, device="cuda")
        to_numpy = lambda array: array.cpu().numpy()  # noqa: E731
    elif package == "numba":
        from numba import cuda

        x, y = cuda.to_device(numbers), cuda.to_device(np.zeros(n))
        to_numpy = lambda array: array.copy_to_host()  # noqa: E731
    else:
        import pycuda.autoprimaryctx  # noqa: F401
        from pycuda import gpuarray

        x, y = gpuarray.to_gpu(numbers), gpuarray.zeros(n, np.float64)
        to_numpy = lambda array: array.get()  # noqa: E731
    return x, y, to_numpy


def refused(error, text, **values):
    try:
        scaled.Instance(MPI.COMM_WORLD, **values)
    except error as found:
        message = str(found)
    else:
        message = "nothing was refused"
    assert text in message, message


x, y, to_numpy = arrays()
given = (OnlyDLPack(x), OnlyDLPack(y)) if package.endswith("dlpack") else (x, y)
with scaled.Instance(MPI.COMM_WORLD, n=n, x=given[0], y=given[1]) as instance:
    instance.run()
    assert (to_numpy(y) == 2 * numbers).all()
    print("run(1)")
    other, result, _ = arrays()
    instance.rebind(n=n, x=other, y=result)
    instance.run(100)
    assert (to_numpy(result) == 2 * numbers).all()
    print("rebind")

if package == "cupy":
    import cupy

    refused(ValueError, "x: it is in host memory, and must be on the GPU", n=n, x=numbers, y=y)
    refused(ValueError, "not contiguous", n=n // 2, x=x[::2], y=y)
    refused(ValueError, "float of 4 bytes, not f64", n=n, x=x.astype("f4"), y=y)
    refused(scaled.Error, "has 999 elements, needs 1000", n=n, x=x[1:], y=y)
    refused(scaled.Error, "overlaps", n=n - 1, x=x[1:], y=x[:-1])

    class Claims:  # of the host
        __cuda_array_interface__ = x.__cuda_array_interface__ | {"data": (numbers.ctypes.data, False)}

    refused(scaled.Error, "array `x` is ", n=n, x=Claims(), y=y)

    class Long:
        __cuda_array_interface__ = x.__cuda_array_interface__ | {"shape": (1 << 30,)}

    refused(scaled.Error, "its allocation ends after", n=1 << 30, x=Long(), y=Long())
    print("refused")

    stream = cupy.cuda.Stream(non_blocking=True)
    with scaled.Instance(MPI.COMM_WORLD, n=n, x=x, y=y, stream=stream.ptr) as instance, stream:
        stream.begin_capture()
        instance.enqueue(stream.ptr)
        graph = stream.end_capture()
        x[...] = 7  # on the stream
        graph.launch(stream)
        stream.synchronize()
        assert (to_numpy(y) == 14).all()
        del graph
    print("graph")

"""Joules of the GPUs that the ranks use, each GPU counted once.

Uses NVML's counter (nvmlDeviceGetTotalEnergyConsumption: millijoules since the driver was loaded; Volta or newer). It
counts the whole GPU, including other work on it.
"""

from __future__ import annotations

import ctypes
import importlib
import uuid
from typing import TYPE_CHECKING, Any

from dagc.base.errors import RunFailed
from dagc.measure.metrics import Amount

if TYPE_CHECKING:
    from dagc.ir.program import Program

SUMMARY = "joules of the GPUs"
UNIT = "J"
SECONDS = 0.1  # the counter advances every few tens of milliseconds
AMOUNT = Amount.SUM
combine = sum
_SUPPORT = "it needs a GPU of the Volta generation or newer; use another --objective"


def why_not(target: str, program: Program) -> tuple[str, str] | None:
    if target == "host":
        return "the host target uses no GPU", "use --target cuda, or --objective time or cpu"
    try:
        pynvml = _nvml()
    except ImportError:
        return "it needs the Python package nvidia-ml-py", "pip install 'dagc[energy]'"
    why = "NVML sees no GPU"
    try:
        pynvml.nvmlInit()
        for number in range(pynvml.nvmlDeviceGetCount()):
            try:
                pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(number))
                return None  # the observer checks whether it is the GPU of a rank
            except pynvml.NVMLError as error:
                why = f"NVML says: {error}"
    except pynvml.NVMLError as error:
        why = f"NVML says: {error}"
    return why, _SUPPORT


def _nvml() -> Any:
    """Raises ImportError."""
    return importlib.import_module("pynvml")


class Observer:
    def __init__(self) -> None:
        """Raises RunFailed if the GPU of this rank has no counter."""
        self._nvml = pynvml = _nvml()
        self._name = _uuid()
        try:
            pynvml.nvmlInit()
            self._device = pynvml.nvmlDeviceGetHandleByUUID(self._name)
            self.start()
        except pynvml.NVMLError as error:
            raise RunFailed(f"energy of {self._name}: NVML: {error}") from None

    def start(self) -> None:
        self._begin = self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._device)

    def stop(self) -> dict[str, float]:
        return {self._name: 1e-3 * (self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._device) - self._begin)}


def _uuid() -> str:
    """NVML's UUID of the GPU of this thread's CUDA context. Raises RunFailed."""
    driver, device, number = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), (ctypes.c_ubyte * 16)()
    if driver.cuCtxGetDevice(ctypes.byref(device)) or driver.cuDeviceGetUuid(number, device):
        raise RunFailed("the CUDA driver reports no GPU for this rank")
    return f"GPU-{uuid.UUID(bytes=bytes(number))}"

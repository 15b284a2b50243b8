"""What Python's side of a library accepts as an array and as a value, and the texts of what it refuses."""

from __future__ import annotations

import array as arrays
import ctypes
import importlib.util
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dagc.base.resources import resource


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("_library_arrays", resource("templates/library/arrays.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


module = _module()
NUMBERS = np.arange(6.0).reshape(2, 3)


class Tensor:
    """An array of a package that knows DLPack alone; `old`: before DLPack 1.0."""

    def __init__(self, values: np.ndarray[Any, Any], old: bool = False) -> None:
        self.values, self.old = values, old

    def __dlpack__(self, **options: Any) -> object:
        if self.old and options:
            raise TypeError("unexpected keyword")
        return self.values.__dlpack__(**options)


class OnDevice:
    """Memory that says that it is on the GPU."""

    def __init__(self, **changes: Any) -> None:
        self.__cuda_array_interface__ = {
            "data": (4096, False), "typestr": "<f8", "shape": (2, 3), "strides": None, "version": 3, **changes
        }  # fmt: skip


def _array(value: Any, element: str = "f64", on_device: bool = False, written: bool = True) -> tuple[int, int]:
    found = module.array(value, "x", element, on_device=on_device, written=written)
    return found.address, found.size


def test_numpy_by_each_protocol() -> None:
    address = NUMBERS.ctypes.data
    assert _array(NUMBERS) == (address, 6)
    assert _array(memoryview(NUMBERS)) == (address, 6)
    assert _array(Tensor(NUMBERS)) == (address, 6)
    assert _array(Tensor(NUMBERS, old=True)) == (address, 6)
    assert _array(NUMBERS[1:]) == (address + 24, 3)
    assert _array(Tensor(NUMBERS[1:])) == (address + 24, 3)


def test_other_buffers() -> None:
    numbers = arrays.array("d", [1.0, 2.0])
    assert _array(numbers) == (numbers.buffer_info()[0], 2)
    raw = bytearray(b"abc")
    assert _array(raw, "u8") == (ctypes.addressof((ctypes.c_char * 3).from_buffer(raw)), 3)
    many = (ctypes.c_int32 * 4)()
    assert _array(many, "i32") == (ctypes.addressof(many), 4)
    for element, dtype in (("bool", "?"), ("u8", "u1"), ("i16", "i2"), ("u32", "u4"), ("u64", "u8"), ("f32", "f4")):
        assert _array(np.zeros(5, dtype), element)[1] == 5
        assert _array(memoryview(np.zeros(5, dtype)), element)[1] == 5


def test_memory_stays_where_it_is_held() -> None:
    raw = bytearray(8)
    found = module.array(raw, "x", "u8", on_device=False, written=True)
    with pytest.raises(BufferError):
        raw.extend(b"more")
    del found
    raw.extend(b"more")


@pytest.mark.parametrize("values", [np.zeros(0), np.zeros((0, 4))[:, ::2], np.zeros((3, 0))])
def test_zero_length(values: np.ndarray[Any, Any]) -> None:
    assert _array(values)[1] == 0
    assert _array(Tensor(values))[1] == 0


def test_on_the_gpu() -> None:
    assert _array(OnDevice(), on_device=True) == (4096, 6)
    assert _array(OnDevice(strides=(24, 8)), on_device=True) == (4096, 6)
    assert _array(OnDevice(data=(0, False), shape=(0,)), on_device=True) == (0, 0)
    wrong = {
        "not contiguous": OnDevice(strides=(8, 16)), "read-only": OnDevice(data=(4096, True)),
        "float of 4 bytes, not f64": OnDevice(typestr="<f4"), "big-endian": OnDevice(typestr=">f8"),
        "has a mask": OnDevice(mask=OnDevice()), "in host memory, and must be on the GPU": NUMBERS,
    }  # fmt: skip
    for text, value in wrong.items():
        with pytest.raises(ValueError, match=f"x: .*{text}"):
            _array(value, on_device=True)
    with pytest.raises(ValueError, match="x: it is on the GPU, and must be in host memory"):
        _array(OnDevice())


@pytest.mark.parametrize("wrap", [lambda a: a, memoryview, Tensor], ids=["interface", "buffer", "dlpack"])
def test_not_contiguous(wrap: Any) -> None:
    for values in (np.asfortranarray(NUMBERS), NUMBERS[:, ::2], NUMBERS.T):
        with pytest.raises(ValueError, match=r"x: it is not contiguous \(C order\)"):
            _array(wrap(values))


@pytest.mark.parametrize("wrap", [lambda a: a, memoryview, Tensor], ids=["interface", "buffer", "dlpack"])
def test_read_only(wrap: Any) -> None:
    fixed = NUMBERS.copy()
    fixed.flags.writeable = False
    assert _array(wrap(fixed), written=False) == (fixed.ctypes.data, 6)
    with pytest.raises(ValueError, match="x: it is read-only"):
        _array(wrap(fixed))


def test_numbers_of_numpy_are_copies() -> None:
    """`np.float64(1)` has an array interface, of a copy that nobody else sees."""
    with pytest.raises(ValueError, match="x: it is read-only"):
        _array(np.float64(1))
    found = module.array(np.float64(7), "x", "f64", on_device=False, written=False)
    assert ctypes.c_double.from_address(found.address).value == 7


def test_what_is_no_array() -> None:
    for value in (3, None, [1.0, 2.0], "text"):
        with pytest.raises(TypeError, match="x: .* is no array"):
            _array(value)
    for value in (
        NUMBERS.astype("f4"),
        NUMBERS.astype(complex),
        NUMBERS.astype(">f8"),
        memoryview(b"12345678"),
        NUMBERS.astype(object),
        memoryview(NUMBERS.astype(object)),
        NUMBERS.astype("M8[ns]"),
        np.array(["a"]),
        np.zeros(2, "f8,f8"),
        np.zeros(2, "S8"),
    ):
        with pytest.raises(ValueError, match="x: its elements are .*, not f64"):
            _array(value, written=False)
    with pytest.raises(ValueError, match="x: its elements are Python objects, not f64"):
        _array(NUMBERS.astype(object))


def test_functions_of_python_stay_as_others_set_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes.pythonapi.PyObject_GetBuffer, "argtypes", [ctypes.c_char_p])
    assert _array(memoryview(NUMBERS)) == (NUMBERS.ctypes.data, 6)


def test_values() -> None:
    assert module.scalar(0.1, "dt", ctypes.c_float).value == np.float32(0.1)
    assert np.isnan(module.scalar(float("nan"), "dt", ctypes.c_double).value)
    assert np.isinf(module.scalar(float("inf"), "dt", ctypes.c_float).value)
    assert module.scalar(np.int64(7), "n", ctypes.c_int32).value == 7
    assert module.scalar(np.float32(2), "n", ctypes.c_double).value == 2
    assert module.scalar(np.bool_(True), "on", ctypes.c_bool).value is True
    for value, kind in ((2**31, ctypes.c_int32), (-1, ctypes.c_uint8), (1e300, ctypes.c_float), (5, ctypes.c_bool)):
        with pytest.raises(OverflowError, match="n: .* is not in the range"):
            module.scalar(value, "n", kind)
    for value, kind in ((1.5, ctypes.c_int32), ("7", ctypes.c_int64), (2.0, ctypes.c_int64), (True, ctypes.c_int32)):
        with pytest.raises(TypeError, match="n: .* is no integer"):
            module.scalar(value, "n", kind)
    for value in (None, 1j, True):
        with pytest.raises(TypeError, match="n: .* is no number"):
            module.scalar(value, "n", ctypes.c_double)

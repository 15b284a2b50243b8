"""Arrays of other packages as addresses: CUDA array interface, DLPack, NumPy's array interface, buffer protocol.
Values as those of C."""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

_KINDS = {
    "i": "int",
    "u": "unsigned int",
    "f": "float",
    "b": "bool",
    "c": "complex",
    "O": "Python objects",
    "M": "dates",
    "m": "time differences",
    "S": "bytes",
    "U": "characters",
    "V": "records",
}
_WORDS = {ctypes.c_float: "number", ctypes.c_double: "number", ctypes.c_bool: "bool"}
_DLPACK_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}
_DLPACK_HOST = {1, 3, 11}  # CPU, page-locked by CUDA, by ROCm
_DLPACK_CUDA = {2, 13}  # CUDA, managed by CUDA
_DLPACK_READ_ONLY = 1
_FORMATS = dict.fromkeys("bhilqn", "i") | dict.fromkeys("BHILQN", "u") | dict.fromkeys("efd", "f") | {"?": "b"}
_python = ctypes.PyDLL(None)  # with types of its own: those of ctypes.pythonapi belong to everyone


class Array(NamedTuple):
    """`owner` keeps the memory alive."""

    address: int
    size: int
    owner: object


class _Found(NamedTuple):
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  # bytes; None: contiguous
    kind: str  # i, u, f or b
    bytes: int  # of an element
    read_only: bool
    on_device: bool
    owner: object


def array(value: Any, name: str, element: str, *, on_device: bool, written: bool) -> Array:
    """The memory of an array whose elements are `element` (`f32`, `i64`, `bool`).

    Raises TypeError if `value` is no array, and ValueError if it is one of another type, on another side, not
    contiguous, or must be written and cannot be.
    """
    found = _find(value, name, on_device)
    wanted = ("b", 1) if element == "bool" else (element[0], int(element[1:]) // 8)
    if (found.kind, found.bytes) != wanted:
        kind = _KINDS.get(found.kind, found.kind)
        theirs = kind if found.kind == "O" else f"{kind} of {found.bytes} bytes"
        raise ValueError(f"{name}: its elements are {theirs}, not {element}")
    if found.on_device != on_device:
        sides = ("in host memory", "on the GPU")
        raise ValueError(f"{name}: it is {sides[found.on_device]}, and must be {sides[on_device]}")
    if written and found.read_only:
        raise ValueError(f"{name}: it is read-only, and the program writes it")
    if found.strides is not None and not _contiguous(found):
        raise ValueError(f"{name}: it is not contiguous (C order)")
    return Array(found.address, math.prod(found.shape), found.owner)


def scalar(value: Any, name: str, kind: Any) -> Any:
    """A value as the ctypes type `kind`. Floating-point numbers are rounded.

    Raises TypeError if it is not of that kind, and OverflowError if the type cannot represent it.
    """
    try:
        if isinstance(value, bool) and kind is not ctypes.c_bool:  # an int to Python
            raise TypeError
        out = kind(value)
        same = out.value == value or kind in (ctypes.c_float, ctypes.c_double)
        lost = kind is ctypes.c_float and math.isinf(out.value) and not math.isinf(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name}: {value!r} is no {_WORDS.get(kind, 'integer')}") from None
    if not same or lost:
        raise OverflowError(f"{name}: {value} is not in the range of its type")
    return out


def _find(value: Any, name: str, on_device: bool) -> _Found:
    if hasattr(value, "__cuda_array_interface__"):
        return _from_interface(value.__cuda_array_interface__, name, value, True)
    if hasattr(value, "__array_interface__"):
        return _from_interface(value.__array_interface__, name, value, False)
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value, name)
    try:
        view = memoryview(value)
    except TypeError:
        raise TypeError(
            f"{name}: {type(value).__name__} is no array: no CUDA array interface, DLPack or buffer"
        ) from None
    return _from_buffer(view, name)


def _contiguous(found: _Found) -> bool:
    if 0 in found.shape:
        return True
    step = found.bytes
    for length, stride in zip(reversed(found.shape), reversed(found.strides or ()), strict=True):
        if length > 1 and stride != step:
            return False
        step *= length
    return True


def _from_interface(interface: dict[str, Any], name: str, owner: object, on_device: bool) -> _Found:
    if interface.get("mask") is not None:
        raise ValueError(f"{name}: it has a mask")
    typestr = interface["typestr"]
    order, kind, digits = typestr[0], typestr[1], typestr[2:].partition("[")[0]  # "|O" has none, "<M8[ns]" a unit
    size = int(digits) if digits else ctypes.sizeof(ctypes.c_void_p)
    if order == ">" and size > 1:
        kind = "big-endian " + kind
    address, read_only = interface["data"]
    read_only = read_only or "__ref" in interface  # NumPy's scalars give a copy, which the interface holds
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    return _Found(address or 0, shape, strides, kind, size, read_only, on_device, (owner, interface))


class _Buffer(ctypes.Structure):
    """Py_buffer"""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


def _from_buffer(view: memoryview, name: str) -> _Found:
    if not view.c_contiguous:
        raise ValueError(f"{name}: it is not contiguous (C order)")
    buffer = _Buffer()
    _python.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0)
    try:
        address = buffer.buf or 0
    finally:
        _python.PyBuffer_Release(ctypes.byref(buffer))
    letter = view.format.lstrip("@=<")
    kind = _FORMATS.get(letter, view.format)
    return _Found(address, view.shape or (), view.strides, kind, view.itemsize, view.readonly, False, view)


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned, since DLPack 1.0"""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


def _tensor(value: Any) -> tuple[_DLTensor, bool, object]:
    """The tensor, whether it is read-only, and the capsule that owns it: it frees the tensor when it is dropped, if
    nobody has taken it over."""
    try:
        capsule = value.__dlpack__(max_version=(1, 0))
    except TypeError:  # older than DLPack 1.0: cannot tell that it is read-only
        capsule = value.__dlpack__()
    pointer = _python.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    if '"dltensor_versioned"' in repr(capsule):
        versioned = _Versioned.from_address(pointer(capsule, b"dltensor_versioned"))
        return versioned.tensor, bool(versioned.flags & _DLPACK_READ_ONLY), capsule
    return _DLTensor.from_address(pointer(capsule, b"dltensor")), False, capsule


def _from_dlpack(value: Any, name: str) -> _Found:
    try:
        tensor, read_only, capsule = _tensor(value)
    except BufferError as error:
        raise ValueError(f"{name}: {error}") from None
    on_device = tensor.device_type in _DLPACK_CUDA
    if not on_device and tensor.device_type not in _DLPACK_HOST:
        raise ValueError(f"{name}: it is on a device of DLPack's type {tensor.device_type}, neither the host nor CUDA")
    kind = _DLPACK_KINDS.get(tensor.code, f"of DLPack's type {tensor.code}") if tensor.lanes == 1 else "vectors"
    size = tensor.bits // 8
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(size * s for s in tensor.strides[: tensor.ndim]) if tensor.strides else None
    address = (tensor.data or 0) + tensor.byte_offset
    return _Found(address, shape, strides, kind, size, read_only, on_device, (capsule, value))

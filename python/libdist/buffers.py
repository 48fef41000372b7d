# SPDX-License-Identifier: BSD-3-Clause
"""Finds address, size and type of arrays: numpy, torch, DLPack, the buffer protocol.

look() returns a Buffer, or raises an error that names the argument and the reason.
"""
import ctypes
import sys
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from . import _header
from .errors import InvalidArgumentError, NotAnArrayError

DTYPES = {text: value for value, text, _ in _header.DTYPES.values()}
NAMES = {value: text for value, text, _ in _header.DTYPES.values()}
SIZES = {value: size for value, _, size in _header.DTYPES.values()}

_KINDS = {"f": "float", "i": "int", "u": "uint", "b": "bool"}
# Type codes of array.array and memoryview, by kind.
_FORMATS = {"?": "b", **dict.fromkeys("bhilqn", "i"), **dict.fromkeys("BHILQN", "u")}
_FORMATS.update(dict.fromkeys("efd", "f"))
# DLPack's type codes, by kind.
_DLPACK_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}
_DLPACK_BFLOAT = 4
_DLPACK_DEVICES = (1, 3, 2, 10)  # CPU memory, pinned CPU memory, CUDA, ROCm
_DLPACK_READ_ONLY = 1


class Buffer(NamedTuple):
    """The elements of an argument."""

    address: int
    count: int
    dtype: int
    keep: Any  # keeps the memory alive


def _wrong(name: str, reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{name}: {reason}")


def _by_kind(kind: str, size: int) -> Any:
    text = "bool" if kind == "b" else f"{_KINDS.get(kind)}{8 * size}"
    return DTYPES.get(text)


# Precomputed values for the common cases of __array_interface__, so that a small call needs only
# one lookup.
_TYPESTRS = {
    order + kind + str(size): _by_kind(kind, size)
    for order in ("<|" if sys.byteorder == "little" else ">|")
    for kind in _KINDS
    for size in (1, 2, 4, 8)
    if _by_kind(kind, size) is not None
}


def dtype_of(dtype: Any, name: str = "dtype") -> int:
    """Returns the library's number of a dtype, given by name or as a dtype of numpy, ml_dtypes or
    torch.
    """
    text = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if text is None:
        text = getattr(dtype, "__name__", str(dtype).rsplit(".", 1)[-1])  # numpy.float32, or a dtype of torch
    number = DTYPES.get({"bool_": "bool", "float": "float64"}.get(text, text))
    if number is None:
        raise _wrong(name, f"dtype {text} is none of {', '.join(DTYPES)}: convert the array")
    return number


# Fast functions for valid arrays (contiguous and writable) by type, for numpy and torch. Each is
# added when the first array of its type is used. It returns None if a full check is needed.
_plain: Dict[type, Callable[[Any], Optional[Buffer]]] = {}


def _learn_numpy(numpy: Any) -> None:
    if numpy.ndarray in _plain:
        return
    dtypes = {numpy.dtype(text): n for text, n in DTYPES.items() if text != "bfloat16"}
    address_of, byte_of = ctypes.addressof, ctypes.c_char.from_buffer

    def plain(array: Any) -> Optional[Buffer]:
        dtype, count = dtypes.get(array.dtype), array.size
        if dtype is None or not count or not array.flags.carray:
            return None
        return Buffer(address_of(byte_of(array)), count, dtype, array)

    _plain[numpy.ndarray] = plain


def _learn_torch(torch: Any) -> None:
    if torch.Tensor in _plain:
        return
    dtypes = {getattr(torch, text): n for text, n in DTYPES.items() if hasattr(torch, text)}
    strided = torch.strided

    def plain(tensor: Any) -> Optional[Buffer]:
        dtype = dtypes.get(tensor.dtype)
        if dtype is None or not tensor.is_cpu or tensor.layout is not strided:
            return None
        if not tensor.is_contiguous() or tensor.is_neg():
            return None
        return Buffer(tensor.data_ptr(), tensor.numel(), dtype, tensor)

    _plain[torch.Tensor] = plain


def _numpy(array: Any, name: str, write: bool) -> Buffer:
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.generic):
        raise NotAnArrayError(f"{name}: a numpy scalar has no memory: pass an array")
    if numpy is not None:
        _learn_numpy(numpy)
    facts = array.__array_interface__
    try:
        address, read_only = facts["data"]
        array.size, array.dtype, facts["typestr"]  # pylint: disable=pointless-statement
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NotAnArrayError(
            f"{name}: a {type(array).__name__} has an incomplete array interface ({error!r}): "
            "pass numpy.asarray(array)"
        ) from None
    if facts.get("strides") is not None:
        raise _wrong(name, "the array is not contiguous: pass numpy.ascontiguousarray(array)")
    if write and read_only:
        raise _wrong(name, "the array is read-only, but this call writes to it")
    dtype = _TYPESTRS.get(facts["typestr"])
    if dtype is None:
        dtype = dtype_of(array.dtype, name)
        if array.dtype.byteorder == ">":
            raise _wrong(name, "the array has the other byte order: convert it")
    return Buffer(address, array.size, dtype, array)


def _torch(tensor: Any, name: str) -> Buffer:
    if str(tensor.layout) != "torch.strided" or tensor.device.type not in ("cpu", "cuda"):
        raise _wrong(name, f"a tensor of {tensor.layout} on {tensor.device}: pass a dense tensor on cpu or cuda")
    if not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
        raise _wrong(name, "the tensor is not contiguous: pass tensor.resolve_neg().contiguous()")
    _learn_torch(sys.modules["torch"])
    return Buffer(tensor.data_ptr(), tensor.numel(), dtype_of(tensor.dtype, name), tensor)


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("number", ctypes.c_int)]


class _Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]


class _Tensor(ctypes.Structure):  # DLTensor, the first member of DLManagedTensor
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("dimensions", ctypes.c_int),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):  # DLManagedTensorVersioned
    _fields_ = [
        ("version", _Version),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _is_contiguous(tensor: _Tensor) -> bool:
    expected = 1
    for i in reversed(range(tensor.dimensions)):
        if tensor.shape[i] != 1 and tensor.strides[i] != expected:
            return False
        expected *= tensor.shape[i]
    return True


def _export(array: Any, name: str) -> Any:
    """Exports an array as a DLPack capsule, of version 1 if the array's library supports it."""
    try:
        try:
            return array.__dlpack__(max_version=(1, 0))
        except TypeError:  # older than version 1
            return array.__dlpack__()
    except (BufferError, RuntimeError) as error:
        raise _wrong(name, f"its library does not export it by DLPack: {error}") from None


def _may_write(capsule: Any, name: str) -> bool:
    """Returns whether the array may be written. DLPack before version 1 has no flag for that: then
    only an `out` argument counts as writable.
    """
    if _name_of(capsule) != b"dltensor_versioned":
        return name == "out"
    held = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
    return not held.flags & _DLPACK_READ_ONLY


def _tensor_of(capsule: Any, name: str) -> _Tensor:
    if _name_of(capsule) != b"dltensor_versioned":
        return _Tensor.from_address(_pointer_of(capsule, b"dltensor"))
    held = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
    if held.version.major != 1:
        raise _wrong(name, f"its DLPack version is {held.version.major}, but libdist supports version 1")
    return held.tensor


def _dlpack(array: Any, name: str, write: bool) -> Buffer:
    """Reads a DLPack capsule. Keeps the capsule's name, so that its destructor frees the tensor."""
    capsule = _export(array, name)
    tensor = _tensor_of(capsule, name)
    if tensor.device.kind not in _DLPACK_DEVICES:
        raise _wrong(name, "its memory is neither of the CPU nor of CUDA nor of ROCm: copy it to the CPU")
    if write and not _may_write(capsule, name):
        raise _wrong(
            name, "the array is read-only, or its DLPack has no flag for it: copy it, or pass out"
        )
    count = 1
    for i in range(tensor.dimensions):
        count *= tensor.shape[i]
    if count and tensor.strides and not _is_contiguous(tensor):
        raise _wrong(name, "the array is not contiguous: copy it")
    if tensor.code == _DLPACK_BFLOAT and tensor.bits == 16:
        dtype = DTYPES["bfloat16"]
    else:
        dtype = _by_kind(_DLPACK_KINDS.get(tensor.code, ""), tensor.bits // 8)
    if dtype is None or tensor.lanes != 1:
        raise _wrong(name, f"its dtype is none of {', '.join(DTYPES)}: convert the array")
    return Buffer((tensor.data or 0) + tensor.offset, count, dtype, (array, capsule))


class _View(ctypes.Structure):  # Py_buffer
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


_CONTIGUOUS = 0x8 | 0x10 | 0x20 | 0x4  # PyBUF_C_CONTIGUOUS | PyBUF_FORMAT
_get_view = ctypes.pythonapi.PyObject_GetBuffer
_get_view.argtypes = [ctypes.py_object, ctypes.POINTER(_View), ctypes.c_int]
_release_view = ctypes.pythonapi.PyBuffer_Release
_release_view.restype, _release_view.argtypes = None, [ctypes.POINTER(_View)]


class _Held:
    """A view of an object's memory, which prevents the object from moving or freeing it."""

    def __init__(self, array: Any, name: str, write: bool):
        self.view = _View()
        self.held = False
        try:
            _get_view(array, ctypes.byref(self.view), _CONTIGUOUS | write)
        except (BufferError, ValueError) as error:
            raise _wrong(name, f"{error}; it must be contiguous{' and writable' * write}") from None
        self.held = True

    def __del__(self, release=_release_view):
        if self.held:
            release(ctypes.byref(self.view))


def _protocol(array: Any, name: str, write: bool) -> Buffer:
    held = _Held(array, name, write)
    view = held.view
    text = (view.format or b"B").decode().lstrip("@=")
    dtype = _by_kind(_FORMATS.get(text, ""), view.itemsize)
    if dtype is None:
        raise _wrong(name, f"elements of format {text!r} are none of {', '.join(DTYPES)}")
    return Buffer(view.buf or 0, view.len // view.itemsize, dtype, held)


def look(array: Any, name: str, write: bool = False) -> Buffer:
    """Returns the Buffer of `array`; `name` is the argument's name in error messages."""
    plain = _plain.get(type(array))
    return plain and plain(array) or _look_closely(array, name, write)


def _look_closely(array: Any, name: str, write: bool) -> Buffer:
    """Handles arrays of any type, and raises the errors."""
    if hasattr(array, "__array_interface__"):
        return _numpy(array, name, write)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _torch(array, name)
    if hasattr(array, "__dlpack__") and not isinstance(array, (bytes, bytearray, memoryview)):
        return _dlpack(array, name, write)
    try:
        return _protocol(array, name, write)
    except TypeError:
        raise NotAnArrayError(
            f"{name}: a {type(array).__name__} is not an array: pass a numpy array, or an object with DLPack or the "
            "buffer protocol",
        ) from None


def look_out(array: Any, like: Buffer, count: int, name: str = "out") -> Buffer:
    """Returns the Buffer of a result; it must have `count` elements of the input's dtype."""
    found = look(array, name, write=True)
    if found.dtype != like.dtype:
        raise _wrong(name, f"its dtype is {NAMES[found.dtype]}, but the input's is {NAMES[like.dtype]}")
    if found.count != count:
        raise _wrong(name, f"it has {found.count} elements, but the result has {count}")
    return found


def make_like(array: Any, count: int, shape: Tuple[int, ...]) -> Any:
    """Returns a new array for a result, of the same kind as a numpy array or tensor."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return array.new_empty(shape)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.ndarray):
        return numpy.empty(shape, array.dtype)
    raise InvalidArgumentError(
        f"out: pass an array of {count} elements for the result; only numpy and torch arrays are "
        "created"
    )

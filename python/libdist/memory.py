# SPDX-License-Identifier: BSD-3-Clause
"""Arrays in memory of dist_alloc, for which collectives are fastest."""
import ctypes
import math
import weakref
from typing import Any, List, Sequence, Union

from .arguments import whole_list
from .buffers import NAMES, SIZES, dtype_of
from .errors import InvalidArgumentError, check
from ._library import lib


def _shape_of(shape: Union[int, Sequence[int]]) -> List[int]:
    lengths = whole_list([shape] if isinstance(shape, (int, float)) else shape, "shape")
    if min(lengths, default=0) < 0 or math.prod(lengths) >> 48:
        raise InvalidArgumentError(f"shape: {shape!r} is not the shape of an array that fits into memory")
    return lengths


def allocate(count: int) -> ctypes.Array:
    """Returns `count` bytes of dist_alloc as a ctypes array; freed with its last view."""
    address = ctypes.c_void_p()
    check(lib.dist_alloc(None, max(count, 1), ctypes.byref(address)))
    memory = (ctypes.c_char * count).from_address(address.value)
    # Views keep the array alive; at exit the process frees the memory anyway.
    weakref.finalize(memory, lib.dist_free, None, address.value).atexit = False
    return memory


def _numpy_dtype(number: int) -> Any:
    import numpy

    try:
        return numpy.dtype(NAMES[number])
    except TypeError:
        import ml_dtypes  # for types that numpy lacks, such as bfloat16

        return numpy.dtype(getattr(ml_dtypes, NAMES[number]))


def empty(shape: Union[int, Sequence[int]], dtype: Any = "float32") -> Any:
    """Returns a numpy array of zeros, in memory that the other ranks of the node read in place.

    The memory is freed with the last reference to the array. First complete all operations
    of other ranks that use it, for example with a barrier.
    """
    import numpy

    number, shape = dtype_of(dtype), _shape_of(shape)
    count = math.prod(shape)
    if not count:
        return numpy.empty(shape, _numpy_dtype(number))
    memory = allocate(count * SIZES[number])
    return numpy.frombuffer(memory, _numpy_dtype(number)).reshape(shape)

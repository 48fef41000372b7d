# SPDX-License-Identifier: BSD-3-Clause
"""Conversion of arguments for C. Rejects values for which ctypes would raise an error without the
argument's name, or which it would truncate.
"""
import ctypes
from operator import index
from typing import Any, List, Optional

from .errors import InvalidArgumentError

INT_MAX = 0x7FFFFFFF


def bounded(value: Any, name: str) -> int:
    """Converts a value to an integer in the range of a C int."""
    try:
        number = index(value)
    except TypeError:
        raise InvalidArgumentError(f"{name}: {value!r} is not an integer") from None
    if not -INT_MAX - 1 <= number <= INT_MAX:
        raise InvalidArgumentError(f"{name}: {value} is out of the range of a C int")
    return number


def milliseconds(timeout: Any, least: int = 1) -> int:
    """Converts a timeout in seconds, or a timedelta, to milliseconds; None: the library's default.
    """
    if timeout is None:
        return 0
    seconds = getattr(timeout, "total_seconds", lambda: timeout)()
    try:
        is_time = seconds >= 0
    except TypeError:
        is_time = False
    if not is_time:
        raise InvalidArgumentError(f"timeout: {timeout!r} is not a time in seconds of at least 0")
    return max(int(min(seconds * 1000, INT_MAX)), least)


def text(value: Any, name: str) -> Optional[bytes]:
    """Encodes a string; None or an empty string becomes None."""
    if not value:
        return None
    if not isinstance(value, str) or "\0" in value:
        raise InvalidArgumentError(f"{name}: {value!r} is not a string")
    return value.encode()


def whole_list(values: Any, name: str) -> List[int]:
    """Converts a sequence to a list of integers."""
    try:
        return [index(value) for value in values]
    except TypeError:
        raise InvalidArgumentError(f"{name}: {values!r} is not a list of integers") from None


def sizes(values: Any, name: str, ranks: int) -> ctypes.Array:
    """Converts a sequence of counts, one per rank, to a C array."""
    values = whole_list(values, name)
    if len(values) != ranks:
        raise InvalidArgumentError(f"{name}: it has {len(values)} entries, but the group has {ranks} ranks")
    if min(values) < 0:
        raise InvalidArgumentError(f"{name}: {min(values)} is negative")
    if max(values) >> 48:
        raise InvalidArgumentError(f"{name}: {max(values)} exceeds any memory")
    return (ctypes.c_size_t * ranks)(*values)

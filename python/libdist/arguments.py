# SPDX-License-Identifier: BSD-3-Clause
"""Arguments as C takes them. What ctypes would refuse without its name, or wrap in silence, is refused here."""
import ctypes
from operator import index
from typing import Any, List, Optional

from .errors import InvalidArgumentError

INT_MAX = 0x7FFFFFFF


def bounded(value: Any, name: str) -> int:
    """A whole number that C takes as an int."""
    try:
        number = index(value)
    except TypeError:
        raise InvalidArgumentError(f"{name}: {value!r} is no whole number") from None
    if not -INT_MAX - 1 <= number <= INT_MAX:
        raise InvalidArgumentError(f"{name}: {value} is out of the range of a C int")
    return number


def milliseconds(timeout: Any, least: int = 1) -> int:
    """A timeout in seconds, or a timedelta, as the library wants it; None is its default."""
    if timeout is None:
        return 0
    seconds = getattr(timeout, "total_seconds", lambda: timeout)()
    try:
        is_time = seconds >= 0
    except TypeError:
        is_time = False
    if not is_time:
        raise InvalidArgumentError(f"timeout: {timeout!r} is no time in seconds, 0 or more")
    return max(int(min(seconds * 1000, INT_MAX)), least)


def text(value: Any, name: str) -> Optional[bytes]:
    """A string; None and an empty one are none."""
    if not value:
        return None
    if not isinstance(value, str) or "\0" in value:
        raise InvalidArgumentError(f"{name}: {value!r} is no string")
    return value.encode()


def whole_list(values: Any, name: str) -> List[int]:
    """A list of whole numbers."""
    try:
        return [index(value) for value in values]
    except TypeError:
        raise InvalidArgumentError(f"{name}: {values!r} is no list of whole numbers") from None


def sizes(values: Any, name: str, ranks: int) -> ctypes.Array:
    """A count for each rank."""
    values = whole_list(values, name)
    if len(values) != ranks:
        raise InvalidArgumentError(f"{name}: it has {len(values)} entries, and the group {ranks} ranks")
    if min(values) < 0:
        raise InvalidArgumentError(f"{name}: {min(values)} is negative")
    if max(values) >> 48:
        raise InvalidArgumentError(f"{name}: {max(values)} is more than any memory holds")
    return (ctypes.c_size_t * ranks)(*values)

# SPDX-License-Identifier: BSD-3-Clause
"""Exceptions for failures of the library: one class per status."""
import builtins
from enum import IntEnum
from typing import Dict, Type

from . import _header
from ._library import lib

Status = IntEnum("Status", {name: value for name, (value, _) in _header.STATUSES.items()})
Status.__doc__ = "What a call of the library returned; the names are those of dist.h without DIST_."

OK = 0
IN_PROGRESS = 1


class Error(RuntimeError):
    """A call failed. The message contains the rank, the cause, and what to do."""

    status = Status.ERR_INTERNAL


class InvalidArgumentError(Error, ValueError):
    """An argument is invalid. Nothing was started."""

    status = Status.ERR_INVALID_ARGUMENT


class NotAnArrayError(InvalidArgumentError, TypeError):
    """An argument is of a type that has no elements to send or receive."""


class UnsupportedError(Error, NotImplementedError):
    """The backend does not support this. Nothing was started."""

    status = Status.ERR_UNSUPPORTED


class NoMemoryError(Error, MemoryError):
    """Out of memory."""

    status = Status.ERR_NO_MEMORY


class SystemCallError(Error):
    """A system call failed."""

    status = Status.ERR_SYSTEM


class TimeoutError(Error, builtins.TimeoutError):  # same name as asyncio's: pylint: disable=redefined-builtin
    """The timeout expired. The message names the ranks that did not arrive."""

    status = Status.ERR_TIMEOUT


class PeerLostError(Error, ConnectionError):
    """A rank died or left. The message names it."""

    status = Status.ERR_PEER_LOST


class MismatchError(Error):
    """The ranks called different operations, or with different counts or dtypes."""

    status = Status.ERR_MISMATCH


class NoBackendError(Error):
    """There is no such backend, or it cannot run here."""

    status = Status.ERR_NO_BACKEND


class RendezvousError(Error, ConnectionError):
    """The ranks could not find each other."""

    status = Status.ERR_RENDEZVOUS


class AddressInUseError(Error):
    """The address of rank 0's store is in use."""

    status = Status.ERR_ADDRESS_IN_USE


class AbiError(Error):
    """A module was built for another version of the library."""

    status = Status.ERR_ABI


class AbortedError(Error):
    """The group has ended because of an earlier error, or because a rank aborted it."""

    status = Status.ERR_ABORTED


class InternalError(Error):
    """An internal error of the library."""

    status = Status.ERR_INTERNAL


class SchedulerError(Error):
    """This process was the job's scheduler, which is not a rank."""

    status = Status.ERR_SCHEDULER


_classes: Dict[int, Type[Error]] = {kind.status: kind for kind in Error.__subclasses__()}


def failure(status: int, fallback: str = "") -> Error:
    """Returns the exception for the status that a call in this thread has just returned."""
    text = lib.dist_last_error().decode(errors="replace") or fallback
    return _classes.get(status, Error)(text or lib.dist_status_string(status).decode())


def failure_of(status: int) -> Error:
    """Returns the exception for a status of another thread, whose message is not available."""
    return _classes.get(status, Error)(lib.dist_status_string(status).decode())


def check(status: int) -> None:
    """Raises the exception for a status that is a failure."""
    if status < 0:
        raise failure(status)

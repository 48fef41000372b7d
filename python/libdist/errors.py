# SPDX-License-Identifier: BSD-3-Clause
"""Failures of the library as exceptions: a class for each status."""
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
    """A call failed. The text says which rank, which cause, and what to do."""

    status = Status.ERR_INTERNAL


class InvalidArgumentError(Error, ValueError):
    """An argument is wrong; nothing was started."""

    status = Status.ERR_INVALID_ARGUMENT


class NotAnArrayError(InvalidArgumentError, TypeError):
    """An argument is of a type that has no elements to send or to receive."""


class UnsupportedError(Error, NotImplementedError):
    """The backend cannot do this; nothing was started."""

    status = Status.ERR_UNSUPPORTED


class NoMemoryError(Error, MemoryError):
    """Memory is short."""

    status = Status.ERR_NO_MEMORY


class SystemCallError(Error):
    """A system call failed."""

    status = Status.ERR_SYSTEM


class TimeoutError(Error, builtins.TimeoutError):  # as asyncio's: pylint: disable=redefined-builtin
    """The deadline passed; the text names the ranks that did not come."""

    status = Status.ERR_TIMEOUT


class PeerLostError(Error, ConnectionError):
    """A rank died or left; the text names it."""

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
    """The address of rank 0's store is taken."""

    status = Status.ERR_ADDRESS_IN_USE


class AbiError(Error):
    """A module was built for another version of the library."""

    status = Status.ERR_ABI


class AbortedError(Error):
    """The group had ended, by an earlier error or because a rank aborted it."""

    status = Status.ERR_ABORTED


class InternalError(Error):
    """A fault of the library."""

    status = Status.ERR_INTERNAL


class SchedulerError(Error):
    """This process was the job's scheduler, which is no rank."""

    status = Status.ERR_SCHEDULER


_classes: Dict[int, Type[Error]] = {kind.status: kind for kind in Error.__subclasses__()}


def failure(status: int, fallback: str = "") -> Error:
    """The exception for what a call of this thread has just returned."""
    text = lib.dist_last_error().decode(errors="replace") or fallback
    return _classes.get(status, Error)(text or lib.dist_status_string(status).decode())


def failure_of(status: int) -> Error:
    """The exception for a status alone: another thread has the text."""
    return _classes.get(status, Error)(lib.dist_status_string(status).decode())


def check(status: int) -> None:
    """Raises the exception for a status that is a failure."""
    if status < 0:
        raise failure(status)

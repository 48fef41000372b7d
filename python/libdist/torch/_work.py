# SPDX-License-Identifier: BSD-3-Clause
"""Works as torch.distributed wants them."""
import ctypes
import itertools
import threading
from datetime import timedelta
from typing import Any, Dict, List, Optional

import torch
from torch.futures import Future

from .. import _header
from .._library import lib
from ..errors import IN_PROGRESS, failure
from ._tensors import Finish

_Base = torch._C._distributed_c10d.Work

# Works that the library will tell about, by number; they stay until it has.
_told: Dict[int, "Work"] = {}
_numbers = itertools.count(1)


@_header.dist_work_fn
def _ended(number: int, status: int) -> None:
    """Any thread of the library, when a work has ended."""
    work = _told.pop(number, None)
    if work is not None:
        work._tell(status)


def _future_of(first: Future, work: "Work") -> Future:
    """A future that fails in C++ too, where DDP chains it: only what `then` runs can do that."""

    def outcome(_: Future) -> List[torch.Tensor]:
        if work._error is not None:
            raise work._error
        return work._tensors

    return first.then(outcome)


class Work(_Base):
    """A started operation. Its tensors stay until it has ended, whether or not it is waited for."""

    def __init__(self, handle: int, group: Any, tensors: List[torch.Tensor], finish: Finish, keep: Any):
        super().__init__()
        self._handle: Optional[int] = handle
        self._group = group
        self._tensors = tensors
        self._finish = finish
        self._keep = keep
        self._error: Optional[Exception] = None
        self._future: Optional[Future] = None
        self._waiting = threading.RLock()
        self._finishing = threading.Lock()
        group._works[handle] = self

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Blocks until it has ended; raises its failure."""
        with self._waiting:
            if self._handle is not None:
                self._end(timeout)
        if self._error is not None:
            raise self._error
        return True

    def _end(self, timeout: Optional[timedelta]) -> None:
        """With the lock: waits, and takes what the library says of it."""
        if timeout and timeout.total_seconds() > 0:
            milliseconds = max(int(timeout.total_seconds() * 1000), 1)
            status = lib.dist_wait_for(self._handle, milliseconds)
            if status == IN_PROGRESS:
                raise RuntimeError(
                    f"Wait timeout: the operation has not ended within {milliseconds} ms"
                )
        else:
            status = lib.dist_wait(self._handle)
        self._group._works.pop(self._handle, None)
        if status < 0:
            self._error = failure(status)
        else:
            self._run_finish()
        self._keep = None
        self._handle = None

    def _run_finish(self) -> None:
        with self._finishing:
            finish, self._finish = self._finish, None
            if finish is not None:
                finish()

    def _tell(self, status: int) -> None:
        """A thread of the library: it must not wait here, and the failure's text comes by waiting."""
        if status < 0:
            threading.Thread(target=self._tell_failure, daemon=True).start()
            return
        try:
            self._run_finish()
        except Exception as error:  # pylint: disable=broad-except  # the future passes it on
            self._error = error
        self._future.set_result(None)

    def _tell_failure(self) -> None:
        try:
            self.wait()
        except Exception:  # pylint: disable=broad-except  # _error has it
            pass
        self._future.set_result(None)

    def get_future(self) -> Future:
        """A future of the tensors. Whoever chains to it blocks no host."""
        with self._waiting:
            if self._future is None:
                self._future = Future()
                self._chained = _future_of(self._future, self)
                self._promise()
            return self._chained

    def _promise(self) -> None:
        if self._handle is None:
            self._future.set_result(None)
            return
        number = next(_numbers)
        _told[number] = self
        status = lib.dist_on_complete(self._handle, _ended, number)
        if status < 0:
            _told.pop(number, None)
            raise failure(status)

    def is_completed(self) -> bool:
        """Whether it has ended, well or not. Does not block."""
        if self._handle is not None:
            done = ctypes.c_bool()
            if lib.dist_test(self._handle, ctypes.byref(done)) >= 0 and not done.value:
                return False
            try:
                self.wait()
            except Exception:  # pylint: disable=broad-except  # exception() has it
                pass
        return True

    def is_success(self) -> bool:
        """Whether it has ended without a failure."""
        return self.is_completed() and self._error is None

    def exception(self) -> Optional[Exception]:
        """Its failure, once it has ended with one."""
        return self._error

    def result(self) -> List[torch.Tensor]:
        """The tensors that it wrote."""
        return self._tensors

    def synchronize(self) -> None:
        """Waits: what comes afterwards sees the result."""
        self.wait()

    def source_rank(self) -> int:
        """The rank that a receive got its message from."""
        if not isinstance(self._source, ctypes.c_int):
            raise RuntimeError("only a receive has a source rank")
        return self._source.value

    _source: Any = None
    _source_rank = source_rank


class Done(_Base):
    """An operation that has ended already."""

    def __init__(self, tensors: List[torch.Tensor]):
        super().__init__()
        self._tensors = tensors

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Nothing is left to wait for."""
        return True

    def get_future(self) -> Future:
        """A future that has its result."""
        future: Future = Future()
        future.set_result(self._tensors)
        return future

    def is_completed(self) -> bool:
        """It has ended."""
        return True

    is_success = is_completed

    def exception(self) -> None:
        """It has none."""

    def result(self) -> List[torch.Tensor]:
        """The tensors that it wrote."""
        return self._tensors

    def synchronize(self) -> None:
        """Nothing is left to wait for."""

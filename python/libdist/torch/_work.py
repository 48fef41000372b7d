# SPDX-License-Identifier: BSD-3-Clause
"""Works of torch.distributed."""
import ctypes
import itertools
import sys
import threading
import weakref
from datetime import timedelta
from typing import Any, Dict, List, Optional

import torch
from torch.futures import Future

from .. import _header
from .._library import lib
from ..arguments import milliseconds
from ..errors import IN_PROGRESS, Status, failure
from ..work import is_calling
from ._tell import call_soon
from ._tensors import Finish

_c10d = torch._C._distributed_c10d


class KeptWork(_c10d.Work):
    """A Work of Python that C++ may use after the program has dropped it.

    C++ holds only the C++ part of a Work. If the Python part is freed, wait() of C++ blocks for ever
    and getFuture() fails. Since torch 2.7, a Work that C++ gets from a group keeps both parts
    (PyWorkHolder). This class covers the works that Python passes to C++.
    """

    def boxed(self) -> Any:
        """Returns the Work in the form for torch.ops. The Work lives as long as the returned
        object.
        """
        box = super().boxed()
        weakref.finalize(box, lambda work: None, self).atexit = False
        return box


_set_work = _c10d.Reducer._set_forward_pass_work_handle


def _set_forward_pass_work_handle(reducer: Any, work: Any, is_static: bool) -> None:
    """Passes to DDP's reducer the Work with which join() counts ranks, in a form without a Python
    part.
    """
    if isinstance(work, KeptWork):
        work = _c10d._create_work_from_future(work.get_future())
    _set_work(reducer, work, is_static)


_c10d.Reducer._set_forward_pass_work_handle = _set_forward_pass_work_handle

# Works with a registered completion callback, by number; kept until it is called.
_registered: Dict[int, "Work"] = {}
_numbers = itertools.count(1)


@_header.dist_work_fn
def _ended(number: int, status: int) -> None:
    """Called by any thread of the library when a work has completed; must not block."""
    work = _registered.pop(number, None)
    if work is not None:
        call_soon(work._complete, status)


def _future(tensors: List[torch.Tensor]) -> Future:
    devices = {tensor.device for tensor in tensors if tensor.is_cuda}
    return Future(devices=list(devices)) if devices else Future()


def _future_of(first: Future, work: "Work") -> Future:
    """Returns a future that also fails in C++, where DDP chains it: only a function passed to
    `then` can do that.
    """

    def outcome(_: Future) -> List[torch.Tensor]:
        if work._error is not None:
            raise work._error
        return work._tensors

    return first.then(outcome)


class Work(KeptWork):
    """A started operation. Keeps its tensors until completion, even if it is not waited for."""

    def __init__(self, handle: int, group: Any, tensors: List[torch.Tensor], finish: Finish, keep: Any):
        super().__init__()
        self._handle: Optional[int] = handle
        self._group = group
        self._tensors = tensors
        self._finish = finish
        self._keep = keep
        self._error: Optional[Exception] = None
        self._future: Optional[Future] = None
        self._has_outcome = False
        self._waiting = threading.Lock()  # held by the thread in dist_wait
        self._making = threading.Lock()  # protects the future; never held while blocking
        self._finishing = threading.Lock()
        group._works[handle] = self

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Blocks until the operation has completed; raises its failure."""
        if self._handle is not None:
            self._wait(timeout)
        if self._error is not None:
            raise self._error
        return True

    def _wait(self, timeout: Optional[timedelta]) -> None:
        """Waits. A callback never blocks on the lock, because the thread that holds it may wait for
        the callback to return.
        """
        seconds = timeout.total_seconds() if timeout else 0
        if self._has_outcome or is_calling():
            taken = self._waiting.acquire(False)
        else:
            taken = self._waiting.acquire(timeout=seconds if seconds > 0 else -1)
        if taken:
            try:
                if self._handle is not None:
                    self._end(seconds)
            finally:
                self._waiting.release()
        elif not self._has_outcome:
            if is_calling():
                raise RuntimeError("a callback can only wait for its own operation")
            raise RuntimeError(f"Wait timeout: the operation has not completed within {seconds} s")

    def _end(self, seconds: float) -> None:
        """Waits and records the result; the caller holds the lock."""
        if seconds > 0:
            limit = milliseconds(seconds)
            status = lib.dist_wait_for(self._handle, limit)
            if status == IN_PROGRESS:
                raise RuntimeError(f"Wait timeout: the operation has not completed within {limit} ms")
        else:
            status = lib.dist_wait(self._handle)
        if status == Status.ERR_INVALID_ARGUMENT:  # dist_wait has not waited
            if self._has_outcome:
                return  # a later call frees it
            raise failure(status)
        self._group._works.pop(self._handle, None)
        if status < 0:
            self._error = failure(status)
        self._record(status)
        self._keep = self._group = None  # may contain a reference to this work
        self._handle = None

    def _record(self, status: int) -> None:
        try:
            self._run_finish(status >= 0)
        except Exception as error:  # pylint: disable=broad-except  # raised by wait()
            self._error = error
        self._has_outcome = True

    def _run_finish(self, well: bool = True) -> None:
        with self._finishing:
            finish, self._finish = self._finish, None
            if finish is not None and well:
                finish()
            free, self._free = self._free, None
            if free is not None:
                free()

    def _complete(self, status: int) -> None:
        """Completes the future. A failure's message is obtained by waiting."""
        if status >= 0:
            self._record(status)
        else:
            try:
                self.wait()
            except Exception:  # pylint: disable=broad-except  # stored in _error
                pass
        self._future.set_result(None)

    def get_future(self) -> Future:
        """Returns a future of the tensors. Functions chained to it do not block the host."""
        with self._making:
            first = self._future is None
            if first:
                self._future = _future(self._tensors)
                self._chained = _future_of(self._future, self)
        if first:
            self._promise()
        return self._chained

    def _promise(self) -> None:
        handle = self._handle
        if handle is None:
            self._future.set_result(None)
            return
        number = next(_numbers)
        _registered[number] = self
        if lib.dist_on_complete(handle, _ended, number) < 0:  # another thread has just completed it
            _registered.pop(number, None)
            call_soon(self._complete, -1)

    def is_completed(self) -> bool:
        """Returns whether the operation has completed, with or without an error. Does not block."""
        handle = self._handle
        if handle is None:
            return True
        done = ctypes.c_bool()
        if not self._has_outcome and lib.dist_test(handle, ctypes.byref(done)) >= 0 and not done.value:
            return False
        if not self._waiting.acquire(False):  # another thread completes it and may still be copying the result
            return self._has_outcome or self._handle is None
        try:
            if self._handle is not None:
                self._end(0)
        except Exception:  # pylint: disable=broad-except  # exception() returns it
            pass
        finally:
            self._waiting.release()
        return True

    def is_success(self) -> bool:
        """Returns whether the operation has completed without an error."""
        if not self.is_completed():
            return False
        try:
            return self.wait()
        except Exception:  # pylint: disable=broad-except  # exception() returns it
            return False

    def exception(self) -> Optional[Exception]:
        """Returns the failure after completion, or None."""
        return self._error

    def result(self) -> List[torch.Tensor]:
        """Returns the tensors with the results."""
        return self._tensors

    def synchronize(self) -> None:
        """Waits for completion, so that later operations use the result."""
        self.wait()

    def source_rank(self) -> int:
        """Returns the sender's rank of a receive."""
        if not isinstance(self._source, ctypes.c_int):
            raise RuntimeError("only a receive has a source rank")
        return self._source.value

    _free: Finish = None  # called after completion in any case
    _is_message = False  # a send or receive
    _source: Any = None
    _source_rank = source_rank


class Several(KeptWork):
    """Several works that were started together."""

    def __init__(self, works: List[Any]):
        super().__init__()
        self._works = works

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Blocks until all have completed; raises the first failure."""
        return all([work.wait(timeout) if timeout else work.wait() for work in self._works])

    def get_future(self) -> Future:
        """Returns a future of all their tensors."""
        futures = torch.futures.collect_all([work.get_future() for work in self._works])
        return futures.then(lambda all_of_them: [x for one in all_of_them.value() for x in one.value()])

    def is_completed(self) -> bool:
        """Returns whether all have completed. Does not block."""
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        """Returns whether all have completed without an error."""
        return all(work.is_success() for work in self._works)

    def exception(self) -> Optional[Exception]:
        """Returns the first failure, or None."""
        return next((work.exception() for work in self._works if work.exception()), None)

    def result(self) -> List[torch.Tensor]:
        """Returns the tensors with the results."""
        return [tensor for work in self._works for tensor in work.result()]

    def synchronize(self) -> None:
        """Waits for completion, so that later operations use the results."""
        self.wait()


class Done(KeptWork):
    """An operation that has already completed."""

    def __init__(self, tensors: List[torch.Tensor]):
        super().__init__()
        self._tensors = tensors

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Returns immediately."""
        return True

    def get_future(self) -> Future:
        """Returns a completed future."""
        future = _future(self._tensors)
        future.set_result(self._tensors)
        return future

    def is_completed(self) -> bool:
        """Returns True."""
        return True

    is_success = is_completed

    def exception(self) -> None:
        """Returns None."""

    def result(self) -> List[torch.Tensor]:
        """Returns the tensors with the results."""
        return self._tensors

    def synchronize(self) -> None:
        """Returns immediately."""


_done = Done([])


def done(tensors: List[torch.Tensor]) -> Done:
    """Returns a Done for these tensors. Reuses the previous one if it is no longer referenced.

    Creating one takes longer than the remaining work of a short call.
    """
    global _done  # pylint: disable=global-statement
    last = _done
    if sys.getrefcount(last) != 3:  # this module, `last`, and the argument
        _done = last = Done(tensors)
    last._tensors = tensors
    return last

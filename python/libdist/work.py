# SPDX-License-Identifier: BSD-3-Clause
"""Started operations: wait for them, await them, or use them in a `with` block."""
import asyncio
import atexit
import ctypes
import itertools
import sys
import threading
import traceback
import weakref
from collections import namedtuple
from contextlib import contextmanager
from typing import Any, Callable, Dict, Generator, Iterator, List, Optional, Tuple

from . import _header
from ._library import lib
from .arguments import milliseconds
from .errors import IN_PROGRESS, InvalidArgumentError, Status, failure, failure_of

# Works with a registered completion callback, by the number passed to it.
_registered: Dict[int, "Work"] = {}
_numbers = itertools.count(1)
_live: "weakref.WeakSet[Work]" = weakref.WeakSet()
EXIT_SECONDS = 10
# Works that the program dropped before completion, with the memory that they use.
_dropped: List[Tuple[int, Any]] = []


_thread = threading.local()
_Unraisable = namedtuple("_Unraisable", "exc_type exc_value exc_traceback err_msg object")


@contextmanager
def calling() -> Iterator[None]:
    """Marks the current thread as a thread of the library that calls the program."""
    before, _thread.calls = is_calling(), True
    try:
        yield
    finally:
        _thread.calls = before


def is_calling() -> bool:
    """Returns whether the library has called the code in this thread, which then must not block."""
    return getattr(_thread, "calls", False)


def _report_unraisable(error: BaseException, function: Any) -> None:
    """Reports to the program's sys.unraisablehook. The default hook accepts only objects that
    Python cannot create, so prints the exception instead.
    """
    if sys.unraisablehook is not sys.__unraisablehook__:
        sys.unraisablehook(_Unraisable(type(error), error, error.__traceback__, None, function))
    elif sys.stderr is not None:
        print(f"Exception ignored in callback {function!r}:", file=sys.stderr)
        traceback.print_exception(type(error), error, error.__traceback__)


@_header.dist_work_fn
def _ended(number: int, status: int) -> None:
    """Called by any thread of the library when a work has completed."""
    work = _registered.pop(number, None)
    if work is not None:
        with calling():
            work._complete(status)


class Work:
    """A started operation. The library may use its buffers until it has completed.

    `work.wait()` and `await work` return the operation's result or raise its failure. A `with
    work:` block waits for the work at its end.
    """

    def __init__(self, handle: int, result: Any, keep: Any, source: Optional[ctypes.c_int] = None):
        self._handle: Optional[int] = handle
        self._result = result
        self._keep = keep
        self._source = source
        self._error: Optional[BaseException] = None
        self._functions: Optional[List[Callable[["Work"], Any]]] = None
        self._has_ended = False
        self._status: Optional[int] = None  # as passed to the callback
        self._lock = threading.Lock()
        self._waiting = threading.Lock()
        _live.add(self)

    @property
    def source(self) -> int:
        """The sender's rank of a receive."""
        if self._source is None:
            raise InvalidArgumentError("work: only a receive has a source")
        return self._source.value

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Blocks until the operation has completed; returns its result.

        With a timeout, in seconds, it raises builtins.TimeoutError if the operation has not
        completed in time; the operation continues, and can be waited for again.
        """
        if self._handle is not None:
            limit = None if timeout is None else milliseconds(timeout, 0)
            self._wait(limit)
        return self._outcome()

    def _wait(self, limit: Optional[int]) -> None:
        """Lets one thread wait. A callback never waits for the lock, because the thread that holds
        it may wait for the callback to return.
        """
        if is_calling() or self._status is not None:
            taken = self._waiting.acquire(False)
        else:
            taken = self._waiting.acquire(timeout=-1 if limit is None else max(limit, 0) / 1000)
        if taken:
            try:
                if self._handle is not None:
                    self._end(limit)
            finally:
                self._waiting.release()
        elif self._status is None:
            if is_calling():
                raise InvalidArgumentError("work: a callback can only wait for its own work")
            raise TimeoutError(f"the operation has not completed within {limit} ms, and continues")
        elif self._status < 0 and self._error is None:
            self._error = failure_of(self._status)

    def _end(self, limit: Optional[int]) -> None:
        """Waits and records the result; the caller holds the lock."""
        if limit is None:
            status = lib.dist_wait(self._handle)
        else:
            status = lib.dist_wait_for(self._handle, limit)
            if status == IN_PROGRESS:
                raise TimeoutError(f"the operation has not completed within {limit} ms, and continues")
        if status == Status.ERR_INVALID_ARGUMENT and self._status is None:  # the call has not waited
            raise failure(status)
        if status < 0:
            self._error = failure(status)
        self._handle = self._keep = None

    def _outcome(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def done(self) -> bool:
        """Returns whether the operation has completed, with or without an error. Does not block."""
        if self._handle is None or self._status is not None:
            return True
        done = ctypes.c_bool()
        return lib.dist_test(self._handle, ctypes.byref(done)) < 0 or done.value

    def add_done_callback(self, function: Callable[["Work"], Any]) -> None:
        """Registers function(work) to be called after completion, in any thread, or calls it
        immediately.

        The function may start operations, but must not wait for any operation other than this one.
        Its exceptions are passed to sys.unraisablehook.
        """
        if not callable(function):
            raise InvalidArgumentError(f"function: {function!r} is not callable")
        with self._lock:
            if self._functions is not None and not self._has_ended:
                self._functions.append(function)
                return
            first = self._functions is None and self._handle is not None
            if first:
                self._functions = [function]
        if not first:
            function(self)
            return
        number = next(_numbers)
        _registered[number] = self
        status = lib.dist_on_complete(self._handle, _ended, number)
        if status < 0:
            _registered.pop(number, None)
            raise failure(status)

    def _complete(self, status: int) -> None:
        self._status = status
        with self._lock:
            self._has_ended = True
            functions = self._functions or []
        for function in functions:
            try:
                function(self)
            except BaseException as error:  # pylint: disable=broad-except  # continue with the next function
                _report_unraisable(error, function)

    def __await__(self) -> Generator[Any, None, Any]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def wake(_: "Work") -> None:
            try:
                loop.call_soon_threadsafe(lambda: future.done() or future.set_result(None))
            except RuntimeError:  # the loop was closed: nobody awaits the work
                pass

        self.add_done_callback(wake)
        yield from future
        return self.wait()

    def __enter__(self) -> "Work":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.wait()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and _dropped is not None:
            _dropped.append((self._handle, self._keep))
            reap()


def reap() -> None:
    """Frees dropped works that have completed."""
    done = ctypes.c_bool()
    for entry in list(_dropped):
        if lib.dist_test(entry[0], ctypes.byref(done)) < 0 or done.value:
            try:
                _dropped.remove(entry)
            except ValueError:  # another thread has removed it
                continue
            lib.dist_wait(entry[0])


@atexit.register
def _leave() -> None:
    """Ends all works, because no thread of the library may use memory or call the interpreter after
    its end.
    """
    reap()
    for work in [*_registered.values(), *list(_live)]:
        try:
            if not work.done():
                work._keep[0].abort()  # its group
            work.wait(EXIT_SECONDS)
        except Exception:  # pylint: disable=broad-except  # exit in any case
            pass
    for handle, keep in list(_dropped):
        try:
            keep[0].abort()
            lib.dist_wait_for(handle, 1000 * EXIT_SECONDS)
        except Exception:  # pylint: disable=broad-except
            pass

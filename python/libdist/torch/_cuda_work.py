# SPDX-License-Identifier: BSD-3-Clause
"""Works on CUDA tensors: waiting for one makes the current stream wait, not the host."""
import ctypes
from datetime import timedelta
from typing import Any, Callable, List, Optional

import torch
from torch.futures import Future

from .._library import lib
from ._tensors import Finish
from ._work import KeptWork


def _record_use(stream: Any, memory: Any) -> None:
    """Keeps PyTorch from reusing the memory before the stream's current work has completed."""
    for one in memory:
        if isinstance(one, torch.Tensor):
            if one.is_cuda:
                one.record_stream(stream)
        elif isinstance(one, (tuple, list)):
            _record_use(stream, one)


def inside(stream: Any, run: Callable[..., Any], *arguments: Any) -> None:
    """Runs a function on a stream. Takes half the time of torch.cuda.stream, which checks all
    devices.
    """
    if torch.cuda.current_device() != stream.device_index:
        with torch.cuda.stream(stream):
            run(*arguments)
        return
    before = torch.cuda.current_stream(stream.device_index)
    torch.cuda.set_stream(stream)
    try:
        run(*arguments)
    finally:
        torch.cuda.set_stream(before)


class StreamWork(KeptWork):
    """A call on a stream. Keeps its memory until it is waited for or dropped."""

    def __init__(self, device: torch.device, tensors: List[torch.Tensor], keep: Any, before: Any):
        super().__init__()
        self._device = device
        self._tensors = tensors
        self._keep: Any = (tensors, keep)
        self._before = before  # the stream that was current at the start
        self._event: Any = None
        self._stream: Any = None  # the stream on which it completes
        self._future: Optional[Future] = None

    def mark(self, stream: Any) -> None:
        """Sets completion to the current end of the stream's work."""
        self._stream = stream
        self._event = stream.record_event()

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Makes the current stream wait for completion. The host does not wait, so there is no
        timeout.
        """
        del timeout
        stream = torch.cuda.current_stream(self._device.index)
        stream.wait_event(self._event)
        self._release(stream)
        return True

    def _release(self, stream: Any) -> None:
        """Releases the memory; memory of other streams must not be reused before this stream has
        completed.
        """
        keep, self._keep = self._keep, ()
        if stream != self._before:
            _record_use(stream, keep)

    def get_future(self) -> Future:
        """Returns a completed future of the tensors; streams that use it wait."""
        if self._future is None:
            future: Future = Future(devices=[self._device])
            inside(self._stream, future.set_result, self._tensors)
            self._future = future
        return self._future

    def is_completed(self) -> bool:
        """Returns whether the GPU has completed the work."""
        return self._event.query()

    def is_success(self) -> bool:
        """Like is_completed: a failure is raised by the group's next call."""
        return self.is_completed()

    def exception(self) -> None:
        """Returns None: a failure is raised by the group's next call."""

    def result(self) -> List[torch.Tensor]:
        """Returns the tensors with the results."""
        return self._tensors

    def synchronize(self) -> None:
        """Makes the current stream wait for completion."""
        self.wait()

    def block_current_stream(self) -> None:
        """Makes the current stream wait for completion."""
        self.wait()

    def __del__(self) -> None:
        if getattr(self, "_keep", None) and self._stream is not None:
            _record_use(self._stream, self._keep)


class PairWork(StreamWork):
    """A send or receive. The library starts consecutive ones together."""

    def __init__(
        self,
        cuda: Any,
        handle: int,
        tensors: List[torch.Tensor],
        finish: Finish,
        keep: Any,
        before: Any,
    ):
        super().__init__(cuda.device, tensors, keep, before)
        self._cuda = cuda
        self._handle: Optional[int] = handle
        self._finish = finish
        self._source = keep[1]

    def _end_on(self, stream: Any) -> None:
        """Makes later work on the stream wait for completion."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        self._cuda.forget(self)
        self._cuda.call(lib.dist_wait, stream.cuda_stream, handle)
        if self._finish is not None:
            inside(stream, self._finish)
        self.mark(stream)

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Makes the current stream wait for completion."""
        self._end_on(torch.cuda.current_stream(self._device.index))
        return super().wait(timeout)

    def get_future(self) -> Future:
        """Returns a completed future of the tensors; streams that use it wait."""
        if self._handle is not None:
            self._end_on(torch.cuda.Stream(self._device))
        return super().get_future()

    def is_completed(self) -> bool:
        """Returns whether the GPU has completed the work."""
        done = ctypes.c_bool()
        if self._handle is not None:
            if lib.dist_test(self._handle, ctypes.byref(done)) >= 0 and not done.value:
                return False
            self._end_on(self._before)
        return super().is_completed()

    def leave(self, group: Any) -> None:
        """Frees the work when the group ends; the library can no longer wait for it afterwards."""
        handle, self._handle = self._handle, None
        self._cuda.forget(self)
        self.mark(self._before)
        group._check(lib.dist_wait(handle))

    def source_rank(self) -> int:
        """Returns the sender's rank of a receive."""
        if not isinstance(self._source, ctypes.c_int):
            raise RuntimeError("only a receive has a source rank")
        return self._source.value

    _source_rank = source_rank

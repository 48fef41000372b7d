# SPDX-License-Identifier: BSD-3-Clause
"""Works on CUDA tensors: the stream of whoever waits for one waits, and the host does not."""
import ctypes
from datetime import timedelta
from typing import Any, Callable, List, Optional

import torch
from torch.futures import Future

from .._library import lib
from ._tensors import Finish
from ._work import KeptWork


def _used_on(stream: Any, memory: Any) -> None:
    """PyTorch gives the memory to nobody else before the stream is where it is now."""
    for one in memory:
        if isinstance(one, torch.Tensor):
            if one.is_cuda:
                one.record_stream(stream)
        elif isinstance(one, (tuple, list)):
            _used_on(stream, one)


def inside(stream: Any, run: Callable[..., Any], *arguments: Any) -> None:
    """Runs a function on a stream. torch.cuda.stream takes twice as long, for it looks at all devices."""
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
    """A call on a stream. It has its memory until it is waited for, or dropped."""

    def __init__(self, device: torch.device, tensors: List[torch.Tensor], keep: Any, before: Any):
        super().__init__()
        self._device = device
        self._tensors = tensors
        self._keep: Any = (tensors, keep)
        self._before = before  # the stream that it was started from
        self._event: Any = None
        self._stream: Any = None  # where it ends
        self._future: Optional[Future] = None

    def mark(self, stream: Any) -> None:
        """It ends with what is on the stream now."""
        self._stream = stream
        self._event = stream.record_event()

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """The current stream waits for its end. The host does not, and so there is no timeout."""
        del timeout
        stream = torch.cuda.current_stream(self._device.index)
        stream.wait_event(self._event)
        self._let_go(stream)
        return True

    def _let_go(self, stream: Any) -> None:
        """Memory that other streams than this one gave may go back to them now: not before this one."""
        keep, self._keep = self._keep, ()
        if stream != self._before:
            _used_on(stream, keep)

    def get_future(self) -> Future:
        """A future of the tensors that has ended for the host; streams that use it wait."""
        if self._future is None:
            future: Future = Future(devices=[self._device])
            inside(self._stream, future.set_result, self._tensors)
            self._future = future
        return self._future

    def is_completed(self) -> bool:
        """Whether the GPU is done with it."""
        return self._event.query()

    def is_success(self) -> bool:
        """As is_completed: a failure is raised by the group's next call."""
        return self.is_completed()

    def exception(self) -> None:
        """None: a failure is raised by the group's next call."""

    def result(self) -> List[torch.Tensor]:
        """The tensors that it wrote."""
        return self._tensors

    def synchronize(self) -> None:
        """The current stream waits for its end."""
        self.wait()

    def block_current_stream(self) -> None:
        """The current stream waits for its end."""
        self.wait()

    def __del__(self) -> None:
        if getattr(self, "_keep", None) and self._stream is not None:
            _used_on(self._stream, self._keep)


class PairWork(StreamWork):
    """A send or receive: the library starts those together that come one after the other."""

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
        """What comes on the stream comes after its end."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        self._cuda.forget(self)
        self._cuda.call(lib.dist_wait, stream.cuda_stream, handle)
        if self._finish is not None:
            inside(stream, self._finish)
        self.mark(stream)

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """The current stream waits for its end."""
        self._end_on(torch.cuda.current_stream(self._device.index))
        return super().wait(timeout)

    def get_future(self) -> Future:
        """A future of the tensors that has ended for the host; streams that use it wait."""
        if self._handle is not None:
            self._end_on(torch.cuda.Stream(self._device))
        return super().get_future()

    def is_completed(self) -> bool:
        """Whether the GPU is done with it."""
        done = ctypes.c_bool()
        if self._handle is not None:
            if lib.dist_test(self._handle, ctypes.byref(done)) >= 0 and not done.value:
                return False
            self._end_on(self._before)
        return super().is_completed()

    def leave(self, group: Any) -> None:
        """The group ends: nobody can wait for it any more."""
        handle, self._handle = self._handle, None
        self._cuda.forget(self)
        self.mark(self._before)
        group._check(lib.dist_wait(handle))

    def source_rank(self) -> int:
        """The rank that a receive got its message from."""
        if not isinstance(self._source, ctypes.c_int):
            raise RuntimeError("only a receive has a source rank")
        return self._source.value

    _source_rank = source_rank

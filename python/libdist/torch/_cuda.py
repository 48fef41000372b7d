# SPDX-License-Identifier: BSD-3-Clause
"""Collectives on CUDA tensors, over an additional group of backend nccl.

A blocking call is queued on PyTorch's current stream and returns. An asynchronous call is queued on
a separate stream, after the work on the current stream; waiting for its Work makes the waiting
thread's current stream wait. The host never blocks.
"""
import ctypes
import threading
import warnings
from datetime import timedelta
from typing import Any, List, Optional

import torch

from .. import _header, init_process_group, list_backends
from .._library import lib
from ..errors import Error, InvalidArgumentError
from ..group import Group
from ._cuda_work import PairWork, StreamWork, inside
from ._tensors import DTYPES, Finish, HOST_OPS
from ._work import done

CALLS = [name[5:-6] for name in _header.FUNCTIONS if name.endswith("_async")]
blocking = {name: getattr(lib, "dist_" + name) for name in CALLS}
# Operations whose fourth and fifth argument are dtype and op.
_REDUCING = {"all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_v"}
_BOOL = DTYPES[torch.bool]


def synchronize(device: torch.device) -> None:
    """Blocks the host until the work on the current stream has completed."""
    torch.cuda.current_stream(device).synchronize()


def through_host(lead: torch.Tensor, finish: Finish) -> Finish:
    """Prepares a call that copies CUDA memory through the host; returns the function that completes
    it.

    That function may run in any thread, whose stream may differ from the stream of the waiting
    thread, so it synchronizes too.
    """
    synchronize(lead.device)
    return None if finish is None else lambda: (finish(), synchronize(lead.device))


def _missing() -> str:
    """Returns why this process cannot use NCCL, or an empty string if it can."""
    for line in list_backends().splitlines():
        name, can, why = [*line.split(None, 2), "", "", ""][:3]
        if name == "nccl":
            return "" if can == "yes" else why
    return "libdist was built without its backend nccl"


class Cuda:
    """The ranks of a group on their GPUs. The group of backend nccl is created at the first use."""

    def __init__(self, base: Group, timeout: Optional[timedelta]):
        self._base = base
        self._timeout = timeout
        self.group: Optional[Group] = None
        self.device: Optional[torch.device] = None  # of the first tensor
        self.pairs = False  # sends and receives use NCCL, too
        self._stream = 0  # the group's current stream
        self._own_stream: Any = None  # stream of asynchronous calls
        self._start_event: Any = None  # event used temporarily when an asynchronous call starts
        self._started: List[PairWork] = []  # sends and receives that have not been waited for
        self._starting = threading.Lock()
        self._lock = threading.Lock()  # held while the stream is set and the call is made

    # ---- creation of the group ----

    def _gather(self, data: bytes) -> bytes:
        gathered = bytearray(len(data) * self._base.size)
        self._base.all_gather(bytearray(data), out=gathered)
        return bytes(gathered)

    def _agree(self, why_not: str) -> bool:
        """Returns whether all ranks agree; otherwise warns with the first rank's reason."""
        reasons = self._gather(why_not.encode()[:255].ljust(256, b"\0"))
        for rank in range(self._base.size):
            reason = reasons[256 * rank : 256 * (rank + 1)].rstrip(b"\0")
            if reason:
                text = reason.decode(errors="replace")
                warnings.warn(f"libdist copies CUDA tensors through the host: rank {rank}: {text}")
                return False
        return True

    def make(self, device: torch.device) -> None:
        """Creates the group if all ranks can. All ranks call this and get the same result."""
        self.device = device
        if not self._agree(_missing()):
            return
        made, why_not = None, ""
        try:
            made = init_process_group(
                backend="nccl",
                rank=self._base.rank,
                world_size=self._base.size,
                timeout=self._timeout,
                device=device.index,
                all_gather=self._gather,
            )
        except Error as error:
            why_not = str(error)
        if self._agree(why_not):
            self.group = made
            self._own_stream, self._start_event = torch.cuda.Stream(device), torch.cuda.Event()
        elif made is not None:
            made.abort()
            made.destroy()

    def connect(self, device: torch.device) -> None:
        """Creates the group at the start, also for sends and receives, which not all ranks call."""
        self.make(device)
        self.pairs = self.group is not None

    def _can_run(self, device: torch.device) -> bool:
        if self.device is None:
            self.make(device)
        if self.group is None:
            return False
        if device != self.device:
            raise InvalidArgumentError(
                f"tensor: it is on {device}, but this rank's group of backend nccl is on {self.device}"
            )
        return True

    # ---- calls ----

    def call(self, function: Any, stream: int, *arguments: Any) -> None:
        """Runs a call of the library on a stream."""
        with self._lock:
            if stream != self._stream:
                self.group._check(lib.dist_set_stream(self.group._handle, stream))
                self._stream = stream
            self.group._check(function(*arguments))

    def run(
        self,
        name: str,
        arguments: tuple,
        opts: Any,
        tensors: List[torch.Tensor],
        finish: Finish,
        keep: tuple,
    ) -> Any:
        """Queues a collective on a stream. Returns None if it must run on the host."""
        if name in _REDUCING and (arguments[3] == _BOOL or arguments[4] in HOST_OPS):
            return None
        device = keep[0].device
        if not self._can_run(device):
            return None
        if self._started:
            self._reap()
        if opts is None or getattr(opts, "asyncOp", True):
            return self._start(name, arguments, tensors, finish, keep)
        stream = torch._C._cuda_getCurrentRawStream(device.index)
        self.call(blocking[name], stream, self.group._handle, *arguments)
        if finish is not None:
            finish()
        return done(tensors)

    def _start(
        self, name: str, arguments: tuple, tensors: List[torch.Tensor], finish: Finish, keep: tuple
    ) -> StreamWork:
        """Queues a call, and the copies of its results, on a separate stream."""
        before, beside = torch.cuda.current_stream(self.device.index), self._own_stream
        with self._starting:
            self._start_event.record(before)
            self._start_event.wait(beside)
            self.call(blocking[name], beside.cuda_stream, self.group._handle, *arguments)
        if finish is not None:
            inside(beside, finish)
        work = StreamWork(self.device, tensors, keep, before)
        work.mark(beside)
        return work

    def pair(
        self,
        function: Any,
        arguments: tuple,
        tensors: List[torch.Tensor],
        finish: Finish,
        keep: tuple,
        peer: int,
        tag: int,
    ) -> Optional[PairWork]:
        """Starts a send or receive. Returns None if it must run on the host, which both ranks
        decide alike.
        """
        if not self.pairs or tag:  # NCCL has no tags
            return None
        if peer == _header.ANY_SOURCE:
            raise InvalidArgumentError(
                "src: NCCL requires a source rank. Pass it, or omit device_id of "
                "init_process_group, with which CUDA tensors are sent over NCCL"
            )
        self._can_run(keep[0].device)
        self._reap()
        handle, before = ctypes.c_void_p(), torch.cuda.current_stream(self.device.index)
        self.call(
            function, before.cuda_stream, self.group._handle, *arguments, ctypes.byref(handle)
        )
        work = PairWork(self, handle.value, tensors, finish, keep, before)
        self._started.append(work)
        return work

    def forget(self, work: PairWork) -> None:
        """Removes a work that has been waited for."""
        if work in self._started:
            self._started.remove(work)

    def _reap(self) -> None:
        """Frees completed works."""
        for work in list(self._started):
            work.is_completed()

    # ---- end of the group ----

    def destroy(self) -> None:
        """Leaves the group."""
        group, self.group, self.pairs = self.group, None, False
        if group is None:
            return
        for work in list(self._started):
            try:
                work.leave(group)
            except Error:  # nobody is waiting for the work
                pass
        try:
            group.destroy()
        except Error:  # other ranks may have left already
            pass

    def abort(self) -> None:
        """Ends the group on all its ranks."""
        if self.group is not None:
            self.group.abort()

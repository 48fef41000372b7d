# SPDX-License-Identifier: BSD-3-Clause
"""Runs a call: blocking, asynchronously, or on a stream."""
import ctypes
from datetime import timedelta
from typing import Any, Dict, List, Optional, Sequence

import torch
from torch._C._autograd import _profiler_enabled as is_profiling

from .._header import ANY_SOURCE
from .._library import lib
from ..group import Group
from ._cuda import CALLS, Cuda, blocking, synchronize, through_host
from ._profiling import begin_event
from ._tensors import Finish, all_of
from ._work import Several, Work, done

Tensors = List[torch.Tensor]
TORCH_TIMEOUT = torch.distributed.constants.default_pg_timeout  # 30 minutes

# torch 2.6 drops the Python part of a Work that C++ holds, so the group keeps it until C++ waits
# for it.
_KEEPS_WORKS = torch.__version__ < (2, 7)

_started = {name: getattr(lib, f"dist_{name}_async") for name in CALLS}


def _pair_name(arguments: tuple, source: Any) -> str:
    if source is None:
        return "send"
    return "recvAnySource" if arguments[3] == ANY_SOURCE else "recv"


class Running:
    """Runs the calls of a process group."""

    _group: Group
    _cuda: Cuda
    _timeout: timedelta
    _works: Dict[int, Work]
    _shown_name: str
    _coalesced: Optional[List[Any]] = None  # works of the current batch

    def _run(
        self,
        name: str,
        arguments: tuple,
        opts: Any,
        tensors: Tensors,
        finish: Finish,
        lead: Any,
        other: Any = None,
        free: Finish = None,
    ) -> Any:
        """Runs a blocking call to completion, and starts any other call.

        `lead` and `other` hold the memory. All ranks have `lead`, whose device determines where the
        call runs. `finish` is called if the call succeeds, `free` in any case.
        """
        if is_profiling():
            free = all_of(free, begin_event(self, name, *(other if isinstance(other, list) else [lead])))
        try:
            if not lead.is_cpu:
                work = self._cuda.run(name, arguments, opts, tensors, finish, (lead, other))
                if work is not None:
                    return self._add_to_batch(work)
                finish = through_host(lead, finish)
            if opts is not None and not getattr(opts, "asyncOp", True):  # torch 2.6 has no asyncOp
                status = blocking[name](self._group._handle, *arguments)
                if status < 0:
                    self._group._check(status)
                if finish is not None:
                    finish()
                return done(tensors)
            work = self._start(_started[name], arguments, tensors, finish, (lead, other))
            work._free, free = free, None
            return work
        finally:
            if free is not None:
                free()

    def _start(
        self, function: Any, arguments: tuple, tensors: Tensors, finish: Finish, keep: Any
    ) -> Work:
        handle = ctypes.c_void_p()
        self._group._check(function(self._group._handle, *arguments, ctypes.byref(handle)))
        self._reap()
        return self._add_to_batch(Work(handle.value, self, tensors, finish, keep))

    def _add_to_batch(self, work: Any) -> Any:
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _reap(self) -> None:
        """Frees completed works that nobody waits for, from the oldest on."""
        while self._works and not _KEEPS_WORKS:
            try:
                oldest = next(iter(self._works.values()))
            except (RuntimeError, StopIteration):  # another thread may complete works at the same time
                return
            if not oldest.is_completed() or oldest._handle is not None:  # another thread completes it
                return

    def _last(self, calls: Sequence[tuple], opts: Any) -> Any:
        """Starts several calls. Collectives of a group complete in order, so the last work stands
        for all of them.
        """
        works = [function(*arguments, opts) for function, *arguments in calls]
        last = works[-1]
        if any(type(work) is not type(last) for work in works):  # some run on the host and some on a stream
            return Several(works)
        last._tensors = [tensor for work in works for tensor in work.result()]
        if isinstance(last, Work):
            last._finish = all_of(*(work._run_finish for work in works[:-1]), last._finish)
        return last

    def _pair(
        self,
        function: Any,
        arguments: tuple,
        tensors: Tensors,
        finish: Finish,
        lead: torch.Tensor,
        source: Any = None,
    ) -> Any:
        """Starts a send or receive, whose peer and tag are the fourth and fifth argument."""
        if not lead.is_cpu:
            peer, tag = arguments[3:5]
            work = self._cuda.pair(function, arguments, tensors, finish, (lead, source), peer, tag)
            if work is not None:
                return self._add_to_batch(work)
            finish = through_host(lead, finish)
        free = begin_event(self, _pair_name(arguments, source), lead) if is_profiling() else None
        work = self._start(function, arguments, tensors, finish, (lead, source))
        work._free = free
        work._source = source
        work._is_message = True
        return work

    def _barrier(self, opts: Any) -> Any:
        """Runs a barrier on the host, after this rank's GPU has completed the work on the current
        stream.
        """
        if self._cuda.device is not None:
            synchronize(self._cuda.device)
        limit = None if opts is None else opts.timeout
        timed = limit is not None and limit.total_seconds() > 0
        waits = opts is not None and not getattr(opts, "asyncOp", True)
        free = begin_event(self, "barrier") if is_profiling() else None
        if waits and not timed and free is None:
            self._group._check(lib.dist_barrier(self._group._handle))
            return done([])
        work = self._start(lib.dist_barrier_async, (), [], None, None)
        work._free = free
        if waits:
            work.wait(limit if timed else None)
        return work

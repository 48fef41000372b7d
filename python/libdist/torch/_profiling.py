# SPDX-License-Identifier: BSD-3-Clause
"""Events of torch's profilers, with the names and properties of gloo's events."""
from typing import Any, Callable

import torch
from torch._C._autograd import _record_function_with_args_enter

from ._tell import call_soon

_end_with_future = torch.ops.profiler._call_end_callbacks_on_jit_fut._RecordFunction
_TITLES = {
    "all_gather_v": "all_gather",
    "all_reduce_coalesced": "all_reduce",
    "all_to_all_v": "all_to_all",
    "reduce_scatter_v": "reduce_scatter",
}


def begin_event(group: Any, name: str, *tensors: torch.Tensor) -> Callable[[], None]:
    """Begins the event of a call, for example gloo:all_reduce, and returns the function that ends
    it.

    The event ends in another thread, because the profiler then shows it as asynchronous.
    """
    record = _record_function_with_args_enter(f"{group._shown_name}:{_TITLES.get(name, name)}", *tensors)
    completed: torch.futures.Future = torch.futures.Future()
    ended = _end_with_future(record, completed)

    def end() -> None:
        call_soon(completed.set_result, None)
        ended.wait()

    return end

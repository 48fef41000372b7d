# SPDX-License-Identifier: BSD-3-Clause
"""Run by each rank: torch_cuda.py without a GPU, with the stand-in for NCCL.

CPU tensors claim to be CUDA tensors. A stream is busy from _sleep until it is waited for. With
`shared`, all ranks claim to be on one GPU, so they use the host.
"""
import os
import sys

import torch
from torch.futures import Future

import libdist.torch
from libdist.torch import _cuda_work, _work

SHARED = "shared" in sys.argv
DEVICE = torch.device("cuda", 0 if SHARED else int(os.environ["RANK"]))


class Stream:
    """Represents all streams: operations on these tensors complete immediately."""

    busy = False
    cuda_stream = 0
    device_index = DEVICE.index

    def __init__(self, *_):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def query(self):
        return not Stream.busy

    def synchronize(self):
        Stream.busy = False

    def record_event(self):
        return Event()


class Event:
    def query(self):
        return not Stream.busy

    def record(self, stream):
        pass

    def wait(self, stream):
        pass


Stream.wait_event = Event.wait


class Tensor(torch.Tensor):
    is_cpu = property(lambda self: False)
    is_cuda = property(lambda self: True)
    device = property(lambda self: DEVICE)

    def record_stream(self, stream):
        pass

    def new_empty(self, *shape, requires_grad=False):
        return torch.empty(*shape, dtype=self.dtype, requires_grad=requires_grad, device=DEVICE)


def on_device(make):
    def made(*arguments, device=None, **options):
        tensor = make(*arguments, **options)
        return tensor.as_subclass(Tensor) if device == DEVICE else tensor

    return made


def stand_in():
    stream, cuda = Stream(), torch.cuda
    cuda.Stream, cuda.Event, cuda.stream, cuda.set_stream = Stream, Event, lambda _: stream, lambda _: None
    cuda.current_stream = lambda _=None: stream
    cuda._sleep = lambda ticks: setattr(Stream, "busy", ticks > 0)
    cuda.synchronize, cuda.is_available, cuda.memory_allocated = stream.synchronize, lambda: True, lambda: 0
    cuda.device_count, cuda.set_device = lambda: 1 if SHARED else 8, lambda _: None
    cuda.current_device, cuda.get_device_capability = lambda: DEVICE.index, lambda _=None: (8, 0)
    torch._C._cuda_getCurrentRawStream = lambda _: 0
    for name in ("empty", "full", "ones", "zeros", "tensor", "arange"):
        setattr(torch, name, on_device(getattr(torch, name)))
    _cuda_work.Future = lambda devices: Future()
    _work._future = lambda tensors: Future()


if __name__ == "__main__":
    stand_in()
    import torch_cuda

    torch_cuda.graph = lambda at: None  # graphs are not simulated
    torch_cuda.main()

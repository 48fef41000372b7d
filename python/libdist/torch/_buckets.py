# SPDX-License-Identifier: BSD-3-Clause
"""DDP's buckets in memory that the ranks of a node share."""
from typing import Any, Dict, Optional

import torch
import torch.distributed as dist

from .._library import lib
from ..errors import check


class Buckets:
    """The state of shared_buckets; pass a separate one to register_comm_hook for each model."""

    def __init__(self, group: Optional[dist.ProcessGroup] = None):
        self.group = group
        self._options: Any = None
        self._shared: Dict[int, torch.Tensor] = {}

    def share(self, index: int, buffer: torch.Tensor) -> None:
        """Registers a new bucket's memory, which turns it into shared memory in place."""
        known = self._shared.get(index)
        if known is not None and known.data_ptr() == buffer.data_ptr():
            return
        self._forget(index)
        size = buffer.numel() * buffer.element_size()
        if buffer.is_cpu and size:
            check(lib.dist_register(self._handle(), buffer.data_ptr(), size))
            self._shared[index] = buffer  # keeps the memory until it is unregistered

    def _handle(self) -> Any:
        """Returns the library's group of the process group."""
        self.group = self.group or dist.group.WORLD
        own = getattr(self.group, "_group", None)
        return (own or self.group._get_backend(torch.device("cpu"))._group)._handle

    def _forget(self, index: int) -> None:
        known = self._shared.pop(index, None)
        if known is not None:
            check(lib.dist_unregister(None, known.data_ptr()))

    def start(self, buffer: torch.Tensor) -> torch.futures.Future:
        """Starts averaging a bucket over the ranks."""
        if self._options is None:
            self._options = dist.AllreduceOptions()
            self._options.reduceOp = dist.ReduceOp.AVG
            if hasattr(self._options, "asyncOp"):  # not in torch 2.6
                self._options.asyncOp = True
        self.group = self.group or dist.group.WORLD
        return self.group.allreduce([buffer], self._options).get_future()

    def __del__(self) -> None:
        for index in list(self._shared):
            self._forget(index)


def shared_buckets(state: Buckets, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A communication hook: averages gradients in place, in memory that the ranks share.

        model = DistributedDataParallel(net)
        model.register_comm_hook(libdist.torch.Buckets(), libdist.torch.shared_buckets)
    """
    buffer = bucket.buffer()
    state.share(bucket.index(), buffer)
    return state.start(buffer).then(lambda future: future.value()[0])

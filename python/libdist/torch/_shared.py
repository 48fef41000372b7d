# SPDX-License-Identifier: BSD-3-Clause
"""Tensors in memory that the ranks of a machine share."""
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..memory import allocate

_CREATORS = {
    "arange",
    "empty",
    "empty_strided",
    "eye",
    "full",
    "lift_fresh",  # called by torch.tensor
    "linspace",
    "logspace",
    "ones",
    "rand",
    "randint",
    "randn",
    "scalar_tensor",
    "zeros",
}


def _creates(name: str) -> bool:
    return name in _CREATORS or name.endswith("_like") or name.startswith("new_")


def _moved(tensor: torch.Tensor, is_empty: bool) -> torch.Tensor:
    """Returns a tensor with the same elements in shared memory."""
    size = 1 + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride()))
    memory = torch.frombuffer(allocate(size * tensor.element_size()), dtype=torch.uint8)
    result = memory.view(tensor.dtype).as_strided(tensor.shape, tensor.stride())
    return result if is_empty else result.copy_(tensor)


class shared(TorchDispatchMode):  # pylint: disable=invalid-name  # used like a function
    """Creates tensors in memory that the other ranks of the machine read in place, for which
    collectives are fastest.

        with libdist.torch.shared():
            buffer = torch.empty(4096, dtype=torch.bfloat16)

    Within the block, this applies to all dense CPU tensors from functions that create tensors, such
    as empty, zeros, randn, tensor and empty_like, also inside of modules; results of other functions
    are ordinary tensors. The memory is freed with the last tensor that uses it. Views of it may be
    passed to any operation of a group.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if not _creates(name) or type(result) is not torch.Tensor or not result.numel():
            return result
        if not result.is_cpu or result.layout is not torch.strided:
            return result
        return _moved(result, "empty" in name)

# SPDX-License-Identifier: BSD-3-Clause
"""Conversion of tensors for the library: contiguous memory, dtypes, reductions."""
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
from torch.distributed import ReduceOp

from .. import premul_sum
from ..buffers import DTYPES as _NUMBERS
from ..errors import InvalidArgumentError
from ..group import _ops as _OP_NUMBERS

DTYPES = {getattr(torch, text): n for text, n in _NUMBERS.items() if hasattr(torch, text)}
BYTES = _NUMBERS["uint8"]
# Keyed by hash, which is equal for a ReduceOp and its RedOpType, and avoids copying an enum's
# value.
OPS = {
    hash(ReduceOp(getattr(ReduceOp.RedOpType, name))): _OP_NUMBERS[text]
    for name, text in [
        ("SUM", "sum"),
        ("AVG", "avg"),
        ("PRODUCT", "prod"),
        ("MIN", "min"),
        ("MAX", "max"),
        ("BAND", "band"),
        ("BOR", "bor"),
        ("BXOR", "bxor"),
    ]
}
HOST_OPS = {_OP_NUMBERS[text] for text in ("band", "bor", "bxor")}  # not supported by NCCL
_STRIDED = torch.strided
Finish = Optional[Callable[[], Any]]


def flat_dtype(tensor: torch.Tensor) -> Tuple[int, int]:
    """Returns the dtype for a call that only moves elements, and the number of its elements per
    element of the tensor.
    """
    number = DTYPES.get(tensor.dtype)
    return (number, 1) if number is not None else (BYTES, tensor.element_size())


def reducible(tensor: torch.Tensor) -> int:
    """Returns the library's dtype of a tensor that is to be reduced."""
    number = DTYPES.get(tensor.dtype)
    if number is None:
        raise InvalidArgumentError(
            f"tensor: libdist does not reduce {tensor.dtype}: convert it to one of "
            + ", ".join(_NUMBERS)
        )
    return number


def reduction(op: Any) -> Tuple[int, Finish]:
    """Returns the library's number of a ReduceOp, and a function that frees it afterwards."""
    number = OPS.get(hash(op))
    if number is not None:
        return number, None
    if op == ReduceOp.RedOpType.PREMUL_SUM:
        made = premul_sum(float(op.__getstate__()[1]))  # torch 2.11 has no op.factor
        return made.number, made.free
    raise InvalidArgumentError(f"op: libdist does not support {op}")


def ready(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor if its memory can be used directly, otherwise a contiguous copy."""
    if tensor.layout is not _STRIDED or not (tensor.is_cpu or tensor.is_cuda):
        raise InvalidArgumentError(
            f"tensor: libdist requires dense tensors on cpu or cuda, not {tensor.layout} on {tensor.device}"
        )
    if tensor.is_conj() or tensor.is_neg():  # the memory does not contain the elements' values
        tensor = tensor.resolve_conj().resolve_neg()
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    return tensor


def target(tensor: torch.Tensor) -> Tuple[torch.Tensor, Finish]:
    """Returns memory for a result of the tensor's shape, and a function that copies it into the
    tensor.
    """
    buffer = ready(tensor)
    if buffer is tensor:
        return tensor, None
    return buffer, lambda: _copy_back(buffer, tensor.detach())


def _copy_back(buffer: torch.Tensor, tensor: torch.Tensor) -> None:
    """Copies a result. Elements of an expanded tensor that share memory must have equal results."""
    if 0 in tensor.stride() and tensor.numel():
        once = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())
        alike = buffer[once].expand_as(buffer).contiguous()
        # Compare bytes, so that NaN equals NaN.
        if not torch.equal(buffer.view(torch.uint8), alike.view(torch.uint8)):
            raise InvalidArgumentError(
                "tensor: it is expanded, but the results differ for elements that share memory: clone it"
            )
        tensor, buffer = tensor[once], buffer[once]
    tensor.copy_(buffer)


def join(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the elements of all tensors in one contiguous tensor."""
    if len(tensors) == 1:
        return ready(tensors[0]).detach().reshape(-1)
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def parts_of(tensors: Sequence[torch.Tensor]) -> Tuple[torch.Tensor, Finish]:
    """Returns memory for contiguous results, and a function that copies them into the tensors."""
    same_memory = _consecutive(tensors)
    if same_memory is not None:
        return same_memory, None
    flat = tensors[0].new_empty(sum(tensor.numel() for tensor in tensors), requires_grad=False)

    def finish() -> None:
        at = 0
        for tensor in tensors:
            tensor.detach().copy_(flat[at : at + tensor.numel()].view(tensor.shape))
            at += tensor.numel()

    return flat, finish


def _consecutive(tensors: Sequence[torch.Tensor]) -> Optional[torch.Tensor]:
    """Returns the memory of the tensors if they are contiguous parts of one tensor, in order;
    otherwise None.
    """
    at = tensors[0].data_ptr()
    for tensor in tensors:
        lazy = tensor.is_conj() or tensor.is_neg()
        if lazy or tensor.data_ptr() != at or not tensor.is_contiguous():
            return None
        at += tensor.numel() * tensor.element_size()
    first, total = tensors[0], sum(tensor.numel() for tensor in tensors)
    storage = first.untyped_storage()
    if at > storage.data_ptr() + storage.nbytes():
        return None
    return first.detach().as_strided((total,), (1,), first.storage_offset())


def all_of(*steps: Finish) -> Finish:
    """Returns a function that runs all given steps, or None if there are none."""
    left: List[Callable[[], Any]] = [step for step in steps if step is not None]
    if len(left) < 2:
        return left[0] if left else None

    def run() -> None:
        for step in left:
            step()

    return run

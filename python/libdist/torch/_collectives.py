# SPDX-License-Identifier: BSD-3-Clause
"""The operations of a process group of torch.distributed, implemented with the library's calls."""
import ctypes
from datetime import timedelta
from typing import Any, List, Optional, Sequence, Union

import torch

from .. import _header
from .._library import lib
from ..arguments import bounded, milliseconds
from ..errors import Error, InvalidArgumentError
from ._monitor import with_gloo_text
from ._running import TORCH_TIMEOUT, Running, Tensors
from ._tensors import (
    Finish,
    all_of,
    flat_dtype,
    join,
    parts_of,
    ready,
    reducible,
    reduction,
    target,
)
from ._work import Work


_SUM = torch.distributed.ReduceOp.SUM


def _one(tensors: Union[torch.Tensor, Sequence[Any]]) -> Any:
    """Returns the only element of a list with one tensor, or list of tensors, per device of a rank.
    """
    if type(tensors) is not list and isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise InvalidArgumentError(f"tensors: expected one tensor per rank, not {len(tensors)}")
    return tensors[0]


def _sizes(values: Sequence[int]) -> ctypes.Array:
    return (ctypes.c_size_t * len(values))(*values)


def _op(opts: Any) -> Any:
    return _SUM if opts is None else opts.reduceOp


def _root(opts: Any) -> int:
    return 0 if opts is None else opts.rootRank


def _equal(tensors: Sequence[torch.Tensor], like: torch.Tensor, name: str) -> bool:
    """Returns whether all tensors have as many elements as `like`. Raises an error if dtypes or
    devices differ.
    """
    for tensor in tensors:
        if tensor.is_cpu != like.is_cpu:
            raise InvalidArgumentError(f"{name}: devices {tensor.device} and {like.device} differ")
        if tensor.dtype != like.dtype:
            raise InvalidArgumentError(f"{name}: dtypes {tensor.dtype} and {like.dtype} differ")
    return all(tensor.numel() == like.numel() for tensor in tensors)


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether two tensors may share elements."""
    storages = [tensor.untyped_storage() for tensor in (one, other)]
    return storages[0].data_ptr() == storages[1].data_ptr() and storages[0].nbytes() > 0


class Collectives(Running):
    """The operations of a process group."""

    # ---- reductions ----

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Reduces a tensor in place, on every rank."""
        tensor = _one(tensors)
        if tensor.is_sparse:
            return self._all_reduce_sparse(tensor, opts)
        buffer, finish = target(tensor)
        dtype = reducible(buffer)
        op, free = reduction(_op(opts))
        address = buffer.data_ptr()
        arguments = (address, address, buffer.numel(), dtype, op)
        return self._run("all_reduce", arguments, opts, [tensor], finish, buffer, None, free)

    def _all_reduce_sparse(self, tensor: torch.Tensor, opts: Any) -> Any:
        """Adds sparse tensors, which may have different numbers of elements.

        Gathers the elements of all ranks. Even an asynchronous call waits for the other ranks to
        start it, because it needs their numbers of elements.
        """
        if _op(opts) != _SUM or not tensor.is_cpu:
            raise InvalidArgumentError("tensor: libdist reduces sparse tensors only on cpu, and only with SUM")
        own = tensor.detach().coalesce()
        indices, values = own.indices().t().contiguous(), own.values().contiguous()
        form = torch.tensor([values.shape[0], *own.shape, own.sparse_dim()])
        forms = form.new_empty(self._group.size, len(form))
        self.all_gather_single(forms, form).wait()
        counts = forms[:, 0].tolist()
        if not torch.equal(forms[:, 1:], form[1:].expand_as(forms[:, 1:])):
            raise InvalidArgumentError(
                f"tensor: the ranks passed sparse tensors of different shapes: {forms[:, 1:-1].tolist()}"
            )
        total = sum(counts)
        all_indices = indices.new_empty(total, *indices.shape[1:])
        all_values = values.new_empty(total, *values.shape[1:])

        def finish() -> None:
            result = torch.sparse_coo_tensor(all_indices.t(), all_values, own.shape)
            with torch.no_grad():
                tensor.copy_(result.coalesce())

        work = self._last(
            [
                (self.allgather, [list(all_indices.split(counts))], [indices]),
                (self.allgather, [list(all_values.split(counts))], [values]),
            ],
            opts,
        )
        work._tensors = [tensor]
        if isinstance(work, Work):
            work._finish = all_of(work._finish, finish)
        else:
            finish()
        return work

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Any:
        """Reduces several tensors of one dtype in place, as one operation."""
        _equal(tensors, tensors[0], "tensors")
        buffers, steps = map(list, zip(*(target(tensor) for tensor in tensors)))
        dtype = reducible(tensors[0])
        op, free = reduction(_op(opts))
        addresses = (ctypes.c_void_p * len(buffers))(*(buffer.data_ptr() for buffer in buffers))
        counts = _sizes([buffer.numel() for buffer in buffers])
        arguments = (addresses, counts, len(buffers), dtype, op)
        finish = all_of(*steps)
        return self._run("all_reduce_coalesced", arguments, opts, tensors, finish, buffers[0], buffers, free)

    def reduce(self, tensors: Any, opts: Any = None) -> Any:
        """Reduces a tensor into root's tensor."""
        tensor = _one(tensors)
        buffer, finish = target(tensor)
        dtype = reducible(buffer)
        op, free = reduction(_op(opts))
        if self._group.rank != _root(opts):
            finish = None
        address = buffer.data_ptr()
        arguments = (address, address, buffer.numel(), dtype, op, _root(opts))
        return self._run("reduce", arguments, opts, [tensor], finish, buffer, None, free)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Reduces a list with one tensor per rank; each rank gets its own."""
        output, parts = _one(outputs), _one(inputs)
        if len(parts) != self._group.size:
            raise InvalidArgumentError(f"input_list: {len(parts)} tensors for {self._group.size} ranks")
        _equal(parts, output, "input_list")
        counts = [part.numel() for part in parts]
        if output.numel() != counts[self._group.rank]:
            raise InvalidArgumentError("output: its size differs from this rank's tensor in input_list")
        return self._reduce_scatter(output, join(parts), counts, opts)

    def _reduce_scatter(
        self, output: torch.Tensor, flat: torch.Tensor, counts: Sequence[int], opts: Any
    ) -> Any:
        buffer, finish = target(output)
        dtype = reducible(buffer)
        op, free = reduction(_op(opts))
        arguments = (flat.data_ptr(), buffer.data_ptr(), _sizes(counts), dtype, op)
        return self._run("reduce_scatter_v", arguments, opts, [output], finish, flat, buffer, free)

    def reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
        """Reduces a tensor; each rank gets its block."""
        _equal([output], given, "output")
        if output.numel() * self._group.size != given.numel():
            raise InvalidArgumentError("input: it must be world size times as large as output")
        flat = ready(given)
        buffer, finish = target(output)
        dtype = reducible(buffer)
        op, free = reduction(_op(opts))
        arguments = (flat.data_ptr(), buffer.data_ptr(), buffer.numel(), dtype, op)
        return self._run("reduce_scatter", arguments, opts, [output], finish, flat, buffer, free)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Any:
        """Runs several reduce_scatter_single."""
        return self._last([(self.reduce_scatter_single, o, i) for o, i in zip(outputs, inputs)], opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # ---- collectives without reduction ----

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Copies root's tensor to every rank's tensor."""
        tensor = _one(tensors)
        buffer, finish = target(tensor)
        dtype, scale = flat_dtype(buffer)
        arguments = (buffer.data_ptr(), buffer.numel() * scale, dtype, _root(opts))
        return self._run("broadcast", arguments, opts, [tensor], finish, buffer)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gathers every rank's tensor into a list of tensors."""
        if isinstance(inputs, torch.Tensor):
            outputs = [outputs]
        parts, given = _one(outputs), _one(inputs)
        if len(parts) != self._group.size:
            raise InvalidArgumentError(f"tensor_list: {len(parts)} tensors for {self._group.size} ranks")
        equal = _equal(parts, given, "tensor_list")
        flat, finish = parts_of(parts)
        if equal:
            return self._all_gather(flat, given, opts, finish, parts)
        counts = [part.numel() for part in parts]
        if given.numel() != counts[self._group.rank]:
            raise InvalidArgumentError("tensor: its size differs from this rank's tensor in tensor_list")
        source = ready(given)
        dtype, scale = flat_dtype(source)
        sizes = _sizes([count * scale for count in counts])
        arguments = (source.data_ptr(), flat.data_ptr(), sizes, None, dtype)
        return self._run("all_gather_v", arguments, opts, parts, finish, source, flat)

    def _all_gather(
        self,
        flat: torch.Tensor,
        given: torch.Tensor,
        opts: Any,
        finish: Finish,
        tensors: Tensors,
        inputs: Any = None,
    ) -> Any:
        source = ready(given)
        dtype, scale = flat_dtype(source)
        arguments = (source.data_ptr(), flat.data_ptr(), source.numel() * scale, dtype)
        # `finish` or `tensors` keeps the memory of `flat`.
        return self._run("all_gather", arguments, opts, tensors, finish, source, inputs or flat)

    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
        """Gathers every rank's tensor into one tensor that is world size times as large."""
        _equal([output], given, "output")
        if output.numel() != given.numel() * self._group.size:
            raise InvalidArgumentError("output: it must be world size times as large as input")
        buffer, finish = target(output)
        return self._all_gather(buffer, given, opts, finish, [output])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """Runs several all_gather_single."""
        return self._last([(self.all_gather_single, o, i) for o, i in zip(outputs, inputs)], opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather_coalesced(self, output_lists: Any, inputs: Tensors, opts: Any = None) -> Any:
        """Gathers several tensors: copies rank r's inputs[i] to output_lists[r][i]."""
        outputs = [tensor for tensors in output_lists for tensor in tensors]
        _equal([*inputs, *outputs], inputs[0], "input_tensor_list")
        sizes = [tensor.numel() for tensor in inputs]
        if [tensor.numel() for tensor in outputs] != sizes * self._group.size:
            raise InvalidArgumentError("output_tensor_lists: for each rank, tensors with the sizes of the inputs")
        flat, finish = parts_of(outputs)
        return self._all_gather(flat, join(inputs), opts, finish, outputs, list(inputs))

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gathers every rank's tensor into root's list of tensors."""
        source, parts, finish, flat = ready(_one(inputs)), [], None, None
        if self._group.rank == _root(opts):
            parts = _one(outputs)
            if len(parts) != self._group.size or not _equal(parts, source, "gather_list"):
                raise InvalidArgumentError("gather_list: requires a tensor of input's size for each rank")
            flat, finish = parts_of(parts)
        return self._gather(source, flat, opts, finish, parts)

    def _gather(
        self,
        source: torch.Tensor,
        flat: Optional[torch.Tensor],
        opts: Any,
        finish: Finish,
        tensors: Tensors,
    ) -> Any:
        dtype, scale = flat_dtype(source)
        address = None if flat is None else flat.data_ptr()
        arguments = (source.data_ptr(), address, source.numel() * scale, dtype, _root(opts))
        return self._run("gather", arguments, opts, tensors, finish, source, flat)

    def gather_single(self, output: Optional[torch.Tensor], given: torch.Tensor, opts: Any = None) -> Any:
        """Gathers every rank's tensor into one tensor of root that is world size times as large."""
        if self._group.rank != _root(opts):
            return self._gather(ready(given), None, opts, None, [])
        if output is None or output.numel() != given.numel() * self._group.size:
            raise InvalidArgumentError("gather_tensor: must be world size times as large as tensor at root")
        _equal([output], given, "gather_tensor")
        buffer, finish = target(output)
        return self._gather(ready(given), buffer, opts, finish, [output])

    gather_into_tensor = gather_single

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Copies each tensor of root's list to one rank's tensor."""
        output = _one(outputs)
        buffer, finish = target(output)
        dtype, scale = flat_dtype(buffer)
        flat = None
        if self._group.rank == _root(opts):
            parts = _one(inputs)
            if len(parts) != self._group.size or not _equal(parts, output, "scatter_list"):
                raise InvalidArgumentError("scatter_list: requires a tensor of output's size for each rank")
            flat = join(parts)
        address = None if flat is None else flat.data_ptr()
        arguments = (address, buffer.data_ptr(), buffer.numel() * scale, dtype, _root(opts))
        return self._run("scatter", arguments, opts, [output], finish, buffer, flat)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """Copies rank s's inputs[d] to rank d's outputs[s]."""
        if not len(outputs) == len(inputs) == self._group.size:
            raise InvalidArgumentError("output_tensor_list, input_tensor_list: one tensor for each rank")
        _equal([*outputs, *inputs], inputs[0], "input_tensor_list")
        flat, finish = parts_of(outputs)
        given = join(inputs)
        counts = [[tensor.numel() for tensor in tensors] for tensors in (inputs, outputs)]
        return self._all_to_all_v(given, flat, counts, opts, finish, outputs)

    def _all_to_all_v(
        self,
        given: torch.Tensor,
        flat: torch.Tensor,
        counts: Sequence[Sequence[int]],
        opts: Any,
        finish: Finish,
        tensors: Tensors,
    ) -> Any:
        dtype, scale = flat_dtype(given)
        send, receive = (_sizes([count * scale for count in some]) for some in counts)
        arguments = (given.data_ptr(), send, None, flat.data_ptr(), receive, None, dtype)
        return self._run("all_to_all_v", arguments, opts, tensors, finish, given, flat)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        output_splits: Sequence[int] = (),
        input_splits: Sequence[int] = (),
        opts: Any = None,
    ) -> Any:
        """Sends blocks of a tensor's first dimension to all ranks, and receives their blocks."""
        _equal([output], given, "output")
        counts = [self._split(given, input_splits, "input"), self._split(output, output_splits, "output")]
        if _overlap(output, given):
            given = given.clone()
        buffer, finish = target(output)
        return self._all_to_all_v(ready(given), buffer, counts, opts, finish, [output])

    alltoall_base = all_to_all_single

    def _split(self, tensor: torch.Tensor, splits: Sequence[int], name: str) -> List[int]:
        ranks = self._group.size
        rows = tensor.shape[0] if tensor.dim() else 1
        row = tensor.numel() // rows if rows else 0
        if not splits:
            if rows % ranks:
                raise InvalidArgumentError(f"{name}: {rows} rows cannot be divided into {ranks} equal blocks")
            return [rows // ranks * row] * ranks
        if len(splits) != ranks or sum(splits) != rows or min(splits) < 0:
            raise InvalidArgumentError(f"{name}_split_sizes: expected {ranks} sizes with the sum {rows}")
        return [split * row for split in splits]

    def barrier(self, opts: Any = None) -> Any:
        """Completes when every rank has called it."""
        return self._barrier(opts)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier whose failure names the ranks that did not arrive.

        Without a timeout, the group's timeout applies; in that case torch passes its default (30
        minutes) or a negative timeout.
        """
        timeout = getattr(timeout, "timeout", timeout)
        if timeout in (None, TORCH_TIMEOUT) or isinstance(timeout, timedelta) and timeout < timedelta(0):
            timeout = self._timeout
        limit = milliseconds(timeout)
        try:
            self._group._check(lib.dist_monitored_barrier(self._group._handle, limit))
        except Error as error:
            raise with_gloo_text(error, self._group.rank, limit, wait_all_ranks) from None

    # ---- point-to-point ----

    def send(self, tensors: Any, peer: int, tag: int = 0) -> Any:
        """Starts to send a tensor."""
        source = ready(_one(tensors))
        dtype, scale = flat_dtype(source)
        arguments = (source.data_ptr(), source.numel() * scale, dtype, peer, bounded(tag, "tag"))
        return self._pair(lib.dist_isend, arguments, [source], None, source)

    def recv(self, tensors: Any, peer: int, tag: int = 0) -> Any:
        """Starts to receive a tensor."""
        tensor = _one(tensors)
        buffer, finish = target(tensor)
        dtype, scale = flat_dtype(buffer)
        source = ctypes.c_int(peer)
        arguments = (
            buffer.data_ptr(),
            buffer.numel() * scale,
            dtype,
            peer,
            bounded(tag, "tag"),
            ctypes.byref(source),
        )
        return self._pair(lib.dist_irecv, arguments, [tensor], finish, buffer, source)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """Starts to receive a tensor from any rank."""
        return self.recv(tensors, _header.ANY_SOURCE, tag)

# SPDX-License-Identifier: BSD-3-Clause
"""Groups of ranks and their collectives."""
import ctypes
import sys
import threading
from enum import IntEnum
from itertools import accumulate
from numbers import Real
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from . import _header
from ._library import lib
from .arguments import bounded, milliseconds, sizes, text, whole_list
from .buffers import Buffer, look, look_out, make_like
from .errors import Error, InvalidArgumentError, check, failure
from .work import Work, reap

Op = IntEnum("Op", {name: value for name, (value, _) in _header.OPS.items()})
Op.__doc__ = "Reductions; dist.h says which dtypes each of them takes."
ANY_SOURCE = _header.ANY_SOURCE

_ops = {text: value for value, text in _header.OPS.values()}
_calls = {
    name[5:]: getattr(lib, name) for name in _header.FUNCTIONS if not name.startswith("dist_get_")
}
_SUM = int(Op.SUM)  # a default without the cost of an Enum access


class _Batch(threading.local):
    kept: Optional[List[Any]] = None  # keeps the arguments of a batch's calls alive


_batch = _Batch()
Timeout = Optional[float]


def op_of(op: Any) -> int:
    """Returns the library's number of a reduction, given as an Op, by name, or as a CreatedOp."""
    if op.__class__ is Op:
        return op
    if isinstance(op, int):
        return bounded(op, "op")
    if isinstance(op, str) and op in _ops:
        return _ops[op]
    if isinstance(op, CreatedOp):
        return op.number
    raise InvalidArgumentError(f"op: {op!r} is none of {', '.join(_ops)}, nor created by create_op")


# Created reductions until free(): the library calls them even if the program has dropped them.
_created: Dict[int, "CreatedOp"] = {}


class CreatedOp:
    """A user-defined reduction, valid until free(). See create_op."""

    def __init__(self, number: int, keep: Any, failures: List[BaseException]):
        self.number = number
        self._keep = keep
        self._failures = failures
        _created[number] = self

    def check(self) -> None:
        """Raises the first exception that the function has raised in a call, if any."""
        if self._failures:
            raise self._failures[0]

    def free(self) -> None:
        """Frees the reduction. No call that uses it may be in progress."""
        check(lib.dist_op_free(self.number))
        _created.pop(self.number, None)


def create_op(function: Callable[[Any, Any, Any], None]) -> CreatedOp:
    """Creates a reduction: function(dst, a, b) sets dst[:] = a op b; all are numpy arrays.

    The function must be associative and commutative, and may be called in any thread. Every rank
    creates its own reduction. CreatedOp.check raises exceptions of the function.
    """
    if not callable(function):
        raise InvalidArgumentError(f"function: {function!r} is not callable")
    import numpy

    from .buffers import NAMES, SIZES
    from .memory import _numpy_dtype

    failures: List[BaseException] = []

    def view(address: int, count: int, dtype: int) -> Any:
        memory = (ctypes.c_char * (count * SIZES[dtype])).from_address(address)
        return numpy.frombuffer(memory, _numpy_dtype(dtype))

    def call(_: Any, dst: int, a: int, b: int, count: int, dtype: int) -> None:
        try:
            assert dtype in NAMES
            function(view(dst, count, dtype), view(a, count, dtype), view(b, count, dtype))
        except BaseException as error:  # pylint: disable=broad-except  # C cannot propagate it
            failures.append(error)

    kept, number = _header.dist_reduce_fn(call), ctypes.c_int()
    check(lib.dist_op_create(kept, None, ctypes.byref(number)))
    return CreatedOp(number.value, kept, failures)


def premul_sum(factor: float) -> CreatedOp:
    """Creates the sum of factor * array over the ranks, for floating-point dtypes."""
    if not isinstance(factor, Real):
        raise InvalidArgumentError(f"factor: {factor!r} is not a number")
    number = ctypes.c_int()
    check(lib.dist_op_create_premul_sum(factor, ctypes.byref(number)))
    return CreatedOp(number.value, None, [])


class batch:  # lower case because it is used like a function: `with dist.batch():`
    """Runs the blocking calls of a `with` block together, so that an exchange cannot deadlock.

    Inside the block, calls are only recorded; at its end all of them run and complete. Calls with
    async_op are not allowed, and the value that recv returns is not valid. If the block raises an
    exception, the groups of the recorded calls are aborted, because other ranks may wait for calls
    that were not reached.
    """

    def __enter__(self) -> None:
        check(lib.dist_group_start())
        self._outer = _batch.kept
        _batch.kept = [] if self._outer is None else self._outer

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None and self._outer is None:  # other ranks may wait for the missing calls
            for group in {id(group): group for group, _ in _batch.kept}.values():
                lib.dist_abort(group._handle)
        try:
            status = lib.dist_group_end()
        finally:
            _batch.kept = self._outer
        if kind is None:
            check(status)


class Blocks:
    """Counts and offsets of a v-form, which must be within a buffer."""

    def __init__(self, name: str, counts: Sequence[int], offsets: Optional[Sequence[int]], ranks: int):
        self.name = name
        self.counts = sizes(counts, f"{name}counts", ranks)
        if offsets is None:
            offsets = [0, *accumulate(self.counts)][:-1]
        self.offsets = sizes(offsets, f"{name}offsets", ranks)
        self.end = max(offset + count for offset, count in zip(self.offsets, self.counts))

    def check(self, buffer: Buffer, what: str) -> None:
        """Raises an error unless the last block ends within the buffer."""
        if self.end > buffer.count:
            raise InvalidArgumentError(
                f"{what}: it has {buffer.count} elements, but {self.name}counts and "
                f"{self.name}offsets reach to {self.end}"
            )


def _first(shape: Sequence[int], ranks: int, count: int) -> Tuple[int, ...]:
    """Returns the shape of one of `ranks` blocks of an array, which is divided along its first
    axis.
    """
    if shape and shape[0] == ranks:
        return tuple(shape[1:])
    if shape and shape[0] % ranks == 0:
        return (shape[0] // ranks, *shape[1:])
    return (count,)


def _message(found: Buffer, peer: int, tag: int) -> tuple:
    return found.address, found.count, found.dtype, bounded(peer, "peer"), bounded(tag, "tag")


class Group:
    """A group of ranks that call collectives together, in the same order.

    A buffer is a numpy array, a tensor, or any object with DLPack or the buffer protocol; it must
    be contiguous. Results are stored in `out` if given; otherwise in the array itself for
    operations that are usually in place, or in a new array. The call returns the array with the
    result. With async_op=True a call returns a Work immediately.

    As a context manager, a group is destroyed at the end of the block, or aborted if the block
    raised an exception.
    """

    def __init__(self, handle: int, keep: Any = None):
        self._handle: Optional[int] = handle
        self._keep = keep
        self._handled = id(sys.exc_info()[1])  # exception that was being handled at creation
        self.rank: int = lib.dist_get_rank(handle)
        self.size: int = lib.dist_get_world_size(handle)
        self.local_rank: int = lib.dist_get_local_rank(handle)
        self.backend: str = lib.dist_get_backend(handle).decode()

    def __repr__(self) -> str:
        state = "" if self._handle else ", destroyed"
        return f"<libdist.Group rank {self.rank} of {self.size}, {self.backend}{state}>"

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.destroy()
            return
        try:
            self.abort()
        except Error:  # report the block's exception instead
            pass
        self._leave()

    # ---- lifetime ----

    def destroy(self) -> None:
        """Leaves the group; blocks until all its ranks do. A second call does nothing.

        Raises the failure, unless an exception is being handled that was raised after the group was
        created, as in a `finally` block. That exception is not replaced but gets a note (Python
        3.11 and later).
        """
        error = self._leave()
        if error is None:
            return
        handled = sys.exc_info()[1]
        if handled is None or id(handled) == self._handled:
            raise error
        if hasattr(handled, "add_note"):
            handled.add_note(f"libdist: destroy() failed after this exception: {error}")

    def _leave(self) -> Optional[Error]:
        """Leaves the group; returns the failure, or None."""
        handle, self._handle = self._handle, None
        if handle is None:
            return None
        status = lib.dist_destroy_process_group(handle)
        error = failure(status) if status < 0 else None  # before reap(), which replaces the message
        reap()
        return error

    def abort(self) -> None:
        """Ends the group on all its ranks, which are notified of this rank. Does not block."""
        if self._handle is not None:
            check(lib.dist_abort(self._handle))

    def _options(self, backend: Optional[str], timeout: Timeout, stream: Optional[int]) -> Any:
        return _header.dist_group_options(
            size=ctypes.sizeof(_header.dist_group_options),
            backend=text(backend, "backend"),
            timeout_ms=milliseconds(timeout),
            stream=stream,
        )

    def _make(self, function: Any, *arguments: Any, **options: Any) -> Optional["Group"]:
        made = ctypes.c_void_p()
        settings = self._options(**options)
        self._check(function(self._handle, *arguments, ctypes.byref(settings), ctypes.byref(made)))
        return Group(made.value, self) if made.value else None

    def new_group(
        self,
        ranks: Sequence[int],
        backend: Optional[str] = None,
        timeout: Timeout = None,
        stream: Optional[int] = None,
    ) -> Optional["Group"]:
        """Creates a group of some ranks; ranks[i] becomes rank i. Returns None on the other ranks.
        """
        listed = [bounded(rank, "ranks") for rank in whole_list(ranks, "ranks")]
        numbers = (ctypes.c_int * len(listed))(*listed)
        return self._make(
            lib.dist_new_group, numbers, len(listed), backend=backend, timeout=timeout, stream=stream
        )

    def split(
        self,
        color: Optional[int],
        key: int = 0,
        backend: Optional[str] = None,
        timeout: Timeout = None,
        stream: Optional[int] = None,
    ) -> Optional["Group"]:
        """Creates a group of the ranks with the same color, ordered by key. A rank with color None
        gets None.
        """
        color = _header.NO_COLOR if color is None else bounded(color, "color")
        return self._make(
            lib.dist_split_group,
            color,
            bounded(key, "key"),
            backend=backend,
            timeout=timeout,
            stream=stream,
        )

    def dup(
        self,
        backend: Optional[str] = None,
        timeout: Timeout = None,
        stream: Optional[int] = None,
    ) -> Optional["Group"]:
        """Creates a group of the same ranks, with its own order of operations."""
        return self._make(lib.dist_dup_group, backend=backend, timeout=timeout, stream=stream)

    def shrink(
        self,
        backend: Optional[str] = None,
        timeout: Timeout = None,
        stream: Optional[int] = None,
    ) -> Optional["Group"]:
        """Creates a group of the remaining ranks after PeerLostError.

        Raises RendezvousError if the process that contains the job's store is lost. To avoid this,
        start the job with distrun --on-failure continue, which contains the store.
        """
        return self._make(lib.dist_shrink, backend=backend, timeout=timeout, stream=stream)

    def global_rank(self, rank: int) -> int:
        """Returns the rank in the world of a rank of this group, or -1 if there is none."""
        return lib.dist_get_global_rank(self._alive(), bounded(rank, "rank"))

    def group_rank(self, global_rank: int) -> int:
        """Returns the rank in this group of a rank of the world, or -1 if there is none."""
        return lib.dist_get_group_rank(self._alive(), bounded(global_rank, "rank"))

    def set_stream(self, stream: Optional[int]) -> None:
        """Sets the stream (its address) that orders later calls on device memory."""
        if stream is not None and not isinstance(stream, int):
            raise InvalidArgumentError(f"stream: {stream!r} is not an address")
        self._check(lib.dist_set_stream(self._handle, stream))

    # ---- calls ----

    def _alive(self) -> int:
        if self._handle is None:
            raise InvalidArgumentError("group: it was destroyed; create a new one")
        return self._handle

    def _check(self, status: int) -> None:
        if status < 0:
            self._alive()
            raise failure(status)

    def _run(self, name: str, async_op: bool, arguments: tuple, result: Any, keep: Any) -> Any:
        if async_op:
            return self._start(name, arguments, result, keep)
        kept = _batch.kept
        if kept is not None:
            kept.append((self, keep))
        status = _calls[name](self._handle, *arguments)
        if status < 0:
            self._check(status)
        return result

    def _start(
        self,
        name: str,
        arguments: tuple,
        result: Any,
        keep: Any,
        source: Optional[ctypes.c_int] = None,
    ) -> Work:
        handle = ctypes.c_void_p()
        self._check(_calls[name](self._handle, *arguments, ctypes.byref(handle)))
        return Work(handle.value, result, (self, keep), source)

    # ---- collectives ----

    def all_reduce(self, array: Any, out: Any = None, op: Any = _SUM, async_op: bool = False) -> Any:
        """Reduces `array` over the ranks, in place or into `out`, on every rank."""
        given = look(array, "array", write=out is None)
        got = given if out is None else look_out(out, given, given.count)
        arguments = (given.address, got.address, given.count, given.dtype, op_of(op))
        name = "all_reduce_async" if async_op else "all_reduce"
        return self._run(name, async_op, arguments, array if out is None else out, (given, got))

    def all_reduce_coalesced(
        self, arrays: Sequence[Any], op: Any = _SUM, async_op: bool = False
    ) -> Any:
        """Reduces several arrays of one dtype in place, as one operation."""
        if not hasattr(arrays, "__iter__"):
            raise InvalidArgumentError(f"arrays: a {type(arrays).__name__} is not a list of arrays")
        found = [look(array, f"arrays[{i}]", write=True) for i, array in enumerate(arrays)]
        for i, buffer in enumerate(found):
            if buffer.dtype != found[0].dtype:
                raise InvalidArgumentError(f"arrays[{i}]: its dtype differs from that of arrays[0]")
        addresses = (ctypes.c_void_p * len(found))(*(buffer.address for buffer in found))
        counts = (ctypes.c_size_t * len(found))(*(buffer.count for buffer in found))
        dtype = found[0].dtype if found else 0
        name = "all_reduce_coalesced_async" if async_op else "all_reduce_coalesced"
        arguments = (addresses, counts, len(found), dtype, op_of(op))
        return self._run(name, async_op, arguments, arrays, found)

    def reduce(
        self, array: Any, out: Any = None, op: Any = _SUM, root: int = 0, async_op: bool = False
    ) -> Any:
        """Like all_reduce, but only root gets the result; other ranks get None."""
        mine = self.rank == root
        given = look(array, "array", write=mine and out is None)
        got = look_out(out, given, given.count) if mine and out is not None else given
        root = bounded(root, "root")
        arguments = (given.address, got.address, given.count, given.dtype, op_of(op), root)
        name = "reduce_async" if async_op else "reduce"
        result = (array if out is None else out) if mine else None
        return self._run(name, async_op, arguments, result, (given, got))

    def broadcast(self, array: Any, root: int = 0, async_op: bool = False) -> Any:
        """Copies root's array to every rank's array."""
        found = look(array, "array", write=self.rank != root)
        arguments = (found.address, found.count, found.dtype, bounded(root, "root"))
        name = "broadcast_async" if async_op else "broadcast"
        return self._run(name, async_op, arguments, array, found)

    def barrier(self, async_op: bool = False) -> Optional[Work]:
        """Blocks until every rank has called it."""
        return self._run("barrier_async" if async_op else "barrier", async_op, (), None, None)

    def set_timeout(self, timeout: Timeout) -> None:
        """Sets the timeout of this rank's later calls."""
        self._check(lib.dist_set_timeout(self._handle, milliseconds(timeout)))

    def monitored_barrier(self, timeout: Timeout = None) -> None:
        """A barrier that raises TimeoutError with the ranks that did not arrive."""
        self._check(lib.dist_monitored_barrier(self._handle, milliseconds(timeout)))

    def all_gather(self, array: Any, out: Any = None, async_op: bool = False) -> Any:
        """Gathers every rank's array into `out` on every rank; `out` is world size times as large.
        """
        given = look(array, "array")
        total = self.size * given.count
        if out is None:
            out = make_like(array, total, (self.size, *getattr(array, "shape", (given.count,))))
        got = look_out(out, given, total)
        arguments = (given.address, got.address, given.count, given.dtype)
        name = "all_gather_async" if async_op else "all_gather"
        return self._run(name, async_op, arguments, out, (given, got))

    def all_gather_v(
        self,
        array: Any,
        counts: Sequence[int],
        out: Any = None,
        offsets: Optional[Sequence[int]] = None,
        async_op: bool = False,
    ) -> Any:
        """Gathers arrays of different sizes: the counts[r] elements of rank r are stored at
        offsets[r].
        """
        given, blocks = look(array, "array"), Blocks("", counts, offsets, self.size)
        if given.count != counts[self.rank]:
            raise InvalidArgumentError(
                f"array: it has {given.count} elements, but counts[{self.rank}] is {counts[self.rank]}"
            )
        out, got = self._out_of(blocks, array, out, given)
        arguments = (given.address, got.address, blocks.counts, blocks.offsets, given.dtype)
        name = "all_gather_v_async" if async_op else "all_gather_v"
        return self._run(name, async_op, arguments, out, (given, got))

    def _out_of(self, blocks: Blocks, array: Any, out: Any, given: Buffer) -> Tuple[Any, Buffer]:
        if out is None:
            out = make_like(array, blocks.end, (blocks.end,))
        got = look(out, "out", write=True)
        if got.dtype != given.dtype:
            raise InvalidArgumentError("out: its dtype differs from the input's")
        blocks.check(got, "out")
        return out, got

    def _block_count(self, given: Buffer, name: str) -> int:
        if given.count % self.size:
            raise InvalidArgumentError(
                f"{name}: {given.count} elements cannot be divided into {self.size} equal blocks"
            )
        return given.count // self.size

    def reduce_scatter(
        self, array: Any, out: Any = None, op: Any = _SUM, async_op: bool = False
    ) -> Any:
        """Reduces `array` over the ranks; each rank gets its own block of the result."""
        given = look(array, "array")
        count = self._block_count(given, "array")
        if out is None:
            out = make_like(array, count, _first(getattr(array, "shape", ()), self.size, count))
        got = look_out(out, given, count)
        arguments = (given.address, got.address, count, given.dtype, op_of(op))
        name = "reduce_scatter_async" if async_op else "reduce_scatter"
        return self._run(name, async_op, arguments, out, (given, got))

    def reduce_scatter_v(
        self,
        array: Any,
        counts: Sequence[int],
        out: Any = None,
        op: Any = _SUM,
        async_op: bool = False,
    ) -> Any:
        """Like reduce_scatter, with counts[r] elements for rank r; blocks are contiguous."""
        given, blocks = look(array, "array"), Blocks("", counts, None, self.size)
        blocks.check(given, "array")
        mine = counts[self.rank]
        out = make_like(array, mine, (mine,)) if out is None else out
        got = look_out(out, given, mine)
        arguments = (given.address, got.address, blocks.counts, given.dtype, op_of(op))
        name = "reduce_scatter_v_async" if async_op else "reduce_scatter_v"
        return self._run(name, async_op, arguments, out, (given, got))

    def gather(self, array: Any, out: Any = None, root: int = 0, async_op: bool = False) -> Any:
        """Gathers every rank's array into root's `out`; other ranks get None."""
        given, got = look(array, "array"), None
        if self.rank == root:
            total = self.size * given.count
            if out is None:
                out = make_like(array, total, (self.size, *getattr(array, "shape", (given.count,))))
            got = look_out(out, given, total)
        arguments = (given.address, got and got.address, given.count, given.dtype, bounded(root, "root"))
        name = "gather_async" if async_op else "gather"
        return self._run(name, async_op, arguments, out if got else None, (given, got))

    def gather_v(
        self,
        array: Any,
        counts: Optional[Sequence[int]] = None,
        out: Any = None,
        offsets: Optional[Sequence[int]] = None,
        root: int = 0,
        async_op: bool = False,
    ) -> Any:
        """Gathers arrays of different sizes; counts, offsets and out are used at root only."""
        given, got, blocks = look(array, "array"), None, None
        if self.rank == root:
            if counts is None:
                raise InvalidArgumentError("counts: required at root")
            blocks = Blocks("", counts, offsets, self.size)
            out, got = self._out_of(blocks, array, out, given)
        arguments = (
            given.address,
            given.count,
            got and got.address,
            blocks and blocks.counts,
            blocks and blocks.offsets,
            given.dtype,
            bounded(root, "root"),
        )
        name = "gather_v_async" if async_op else "gather_v"
        return self._run(name, async_op, arguments, out if got else None, (given, got))

    def scatter(
        self, array: Any = None, out: Any = None, root: int = 0, async_op: bool = False
    ) -> Any:
        """Copies each block of root's array to one rank's `out`. Ranks other than root need only
        `out`.
        """
        given = look(array, "array") if self.rank == root else None
        if out is None and given:
            count = self._block_count(given, "array")
            out = make_like(array, count, _first(getattr(array, "shape", ()), self.size, count))
        if out is None:
            raise InvalidArgumentError("out: required on ranks other than root")
        got = look(out, "out", write=True)
        if given:
            look_out(out, given, self._block_count(given, "array"))
        arguments = (given and given.address, got.address, got.count, got.dtype, bounded(root, "root"))
        name = "scatter_async" if async_op else "scatter"
        return self._run(name, async_op, arguments, out, (given, got))

    def scatter_v(
        self,
        out: Any,
        array: Any = None,
        counts: Optional[Sequence[int]] = None,
        offsets: Optional[Sequence[int]] = None,
        root: int = 0,
        async_op: bool = False,
    ) -> Any:
        """Scatters blocks of different sizes; array, counts and offsets are used at root only."""
        got, given, blocks = look(out, "out", write=True), None, None
        if self.rank == root:
            given = look(array, "array")
            if counts is None or given.dtype != got.dtype:
                raise InvalidArgumentError("counts, array: root requires counts, and an array of out's dtype")
            blocks = Blocks("", counts, offsets, self.size)
            blocks.check(given, "array")
        arguments = (
            given and given.address,
            blocks and blocks.counts,
            blocks and blocks.offsets,
            got.address,
            got.count,
            got.dtype,
            bounded(root, "root"),
        )
        name = "scatter_v_async" if async_op else "scatter_v"
        return self._run(name, async_op, arguments, out, (given, got))

    def all_to_all(self, array: Any, out: Any = None, async_op: bool = False) -> Any:
        """Copies block d of rank s's array to block s of rank d's `out`."""
        given = look(array, "array")
        count = self._block_count(given, "array")
        if out is None:
            out = make_like(array, given.count, tuple(getattr(array, "shape", (given.count,))))
        got = look_out(out, given, given.count)
        arguments = (given.address, got.address, count, given.dtype)
        name = "all_to_all_async" if async_op else "all_to_all"
        return self._run(name, async_op, arguments, out, (given, got))

    def all_to_all_v(
        self,
        array: Any,
        in_counts: Sequence[int],
        out_counts: Sequence[int],
        out: Any = None,
        in_offsets: Optional[Sequence[int]] = None,
        out_offsets: Optional[Sequence[int]] = None,
        async_op: bool = False,
    ) -> Any:
        """Like all_to_all, with blocks of different sizes."""
        given, send = look(array, "array"), Blocks("in_", in_counts, in_offsets, self.size)
        receive = Blocks("out_", out_counts, out_offsets, self.size)
        send.check(given, "array")
        out, got = self._out_of(receive, array, out, given)
        arguments = (
            given.address,
            send.counts,
            send.offsets,
            got.address,
            receive.counts,
            receive.offsets,
            given.dtype,
        )
        name = "all_to_all_v_async" if async_op else "all_to_all_v"
        return self._run(name, async_op, arguments, out, (given, got))

    # ---- point-to-point ----

    def send(self, array: Any, peer: int, tag: int = 0) -> None:
        """Sends to a rank; may block until that rank receives."""
        found = look(array, "array")
        self._run("send", False, _message(found, peer, tag), None, found)

    def isend(self, array: Any, peer: int, tag: int = 0) -> Work:
        """Starts a send."""
        found = look(array, "array")
        arguments = _message(found, peer, tag)
        return self._start("isend", arguments, array, found)

    def recv(self, array: Any, peer: int = ANY_SOURCE, tag: int = 0) -> int:
        """Receives into `array`; returns the sender's rank."""
        found, source = look(array, "array", write=True), ctypes.c_int(bounded(peer, "peer"))
        arguments = (*_message(found, peer, tag), ctypes.byref(source))
        self._run("recv", False, arguments, None, (found, source))
        return source.value

    def irecv(self, array: Any, peer: int = ANY_SOURCE, tag: int = 0) -> Work:
        """Starts a receive; work.source is the sender's rank after completion."""
        found, source = look(array, "array", write=True), ctypes.c_int(bounded(peer, "peer"))
        arguments = (*_message(found, peer, tag), ctypes.byref(source))
        return self._start("irecv", arguments, array, (found, source), source)


GatherFunction = Callable[[bytes], Union[bytes, Sequence[bytes]]]

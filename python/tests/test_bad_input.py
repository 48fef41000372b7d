# SPDX-License-Identifier: BSD-3-Clause
"""Invalid input raises an exception that names the argument or the rank."""
import contextlib
import gc
import os
import signal
import sys
import threading
import time
import weakref

import pytest

import libdist as dist

numpy = pytest.importorskip("numpy")


@pytest.fixture(name="group", scope="module")
def fixture_group():
    with dist.init_process_group("self") as group:
        yield group


def refused(match):
    return pytest.raises(dist.InvalidArgumentError, match=match)


class Interface:
    """An object with an invalid array interface."""

    def __init__(self, facts):
        self.__array_interface__ = facts


@pytest.mark.parametrize(
    "array, reason",
    [
        (numpy.zeros(4, "complex64"), "array: dtype complex64"),
        (numpy.zeros(4, "U3"), "array: dtype str96"),
        (numpy.zeros(4, object), "array: dtype object"),
        (numpy.zeros(4, ">f4"), "array: .*other byte order"),
        (numpy.zeros((4, 4))[:, 0], "array: .*not contiguous"),
        (b"abcd", "array: .*writable"),
        (memoryview(bytearray(8))[::2], "array: .*contiguous"),
        ([1.0, 2.0], "array: a list is not an array"),
        (None, "array: a NoneType is not an array"),
        (3, "array: a int is not an array"),
        (numpy.float64(3), "array: a numpy scalar"),
        (Interface({"data": None}), "array: a Interface has an incomplete"),
        (Interface({"typestr": "<f4"}), "array: a Interface has an incomplete"),
    ],
)
def test_array(group, array, reason):
    with refused(reason):
        group.all_reduce(array)


def test_no_array_is_a_type_error(group):
    for wrong in (None, numpy.float32(1), Interface({"data": (0, False)})):
        with pytest.raises(TypeError, match="array"):
            group.all_reduce(wrong)


def test_read_only(group):
    array = numpy.zeros(4)
    array.flags.writeable = False
    with refused("array: the array is read-only"):
        group.all_reduce(array)
    with refused("out: the array is read-only"):
        group.all_reduce(numpy.zeros(4), array)
    group.all_reduce(array, numpy.zeros(4))


def test_out(group):
    with refused("out: it has 3 elements, but the result has 4"):
        group.all_gather(numpy.zeros(4), numpy.zeros(3))
    with refused("out: its dtype is float32, but the input's is float64"):
        group.all_reduce(numpy.zeros(4), numpy.zeros(4, "float32"))
    with refused("out: pass an array"):
        group.all_gather(b"1234")


def test_counts(group):
    with refused("counts: it has 2 entries, but the group has 1 ranks"):
        group.all_gather_v(numpy.zeros(4), [2, 2])
    with refused("counts: -1 is negative"):
        group.reduce_scatter_v(numpy.zeros(4), [-1])
    with refused("array: it has 4 elements, but in_counts and in_offsets reach to 5"):
        group.all_to_all_v(numpy.zeros(4), [5], [5])
    with refused("out: it has 4 elements, but out_counts and out_offsets reach to 6"):
        group.all_to_all_v(numpy.zeros(4), [4], [4], numpy.zeros(4), out_offsets=[2])


def test_op_and_root(group):
    with refused("op: 'mean' is none of"):
        group.all_reduce(numpy.zeros(4), op="mean")
    with refused("op"):
        group.all_reduce(numpy.zeros(4), op=77)
    with pytest.raises(dist.UnsupportedError, match="bxor"):
        group.all_reduce(numpy.zeros(4, "float32"), op=dist.BXOR)
    with refused("root"):
        group.broadcast(numpy.zeros(4), root=1)
    with refused("dtype complex64"):
        dist.empty(4, "complex64")


def test_range(group):
    """ctypes would silently truncate these values to 0."""
    wrapped = 1 << 32
    for name, call in [
        ("tag", lambda: group.isend(numpy.ones(1), 0, wrapped)),
        ("peer", lambda: group.irecv(numpy.ones(1), wrapped)),
        ("root", lambda: group.broadcast(numpy.ones(1), wrapped)),
        ("color", lambda: group.split(wrapped)),
        ("key", lambda: group.split(0, wrapped)),
        ("op", lambda: group.all_reduce(numpy.ones(1), op=wrapped)),
    ]:
        with refused(f"{name}: .* out of the range"):
            call()


@pytest.fixture(name="lost")
def fixture_lost(monkeypatch):
    """Makes dist_destroy_process_group fail after it has destroyed the group."""
    destroy = dist.group.lib.dist_destroy_process_group
    monkeypatch.setattr(
        dist.group.lib,
        "dist_destroy_process_group",
        lambda handle: destroy(handle) or dist.Status.ERR_PEER_LOST,
    )


def test_destroy_fails(lost):
    group = dist.init_process_group("self")
    with pytest.raises(dist.PeerLostError):
        group.destroy()
    with pytest.raises(dist.PeerLostError):
        with dist.init_process_group("self"):
            pass


def test_destroy_does_not_replace_an_exception(lost):
    with pytest.raises(ValueError, match="of the program") as raised:
        group = dist.init_process_group("self")
        try:
            raise ValueError("of the program")
        finally:
            group.destroy()
    if sys.version_info >= (3, 11):
        assert "destroy() failed" in raised.value.__notes__[0]
    with pytest.raises(ValueError, match="of the program"):
        with dist.init_process_group("self"):
            raise ValueError("of the program")
    with pytest.raises(ValueError, match="of the program"):
        with contextlib.ExitStack() as stack:
            stack.callback(dist.init_process_group("self").destroy)
            raise ValueError("of the program")

    @contextlib.contextmanager
    def world():
        group = dist.init_process_group("self")
        try:
            yield group
        finally:
            group.destroy()

    with pytest.raises(ValueError, match="of the program"):
        with world():
            raise ValueError("of the program")
    with pytest.raises(dist.PeerLostError):
        with world():
            pass


def test_destroy_fails_in_a_handler(lost):
    """An exception that is older than the group does not hide its failure."""
    with pytest.raises(dist.PeerLostError):
        try:
            raise ValueError("an earlier attempt")
        except ValueError:
            dist.init_process_group("self").destroy()
    with pytest.raises(dist.PeerLostError):
        try:
            raise ValueError("an earlier attempt")
        except ValueError:
            with dist.init_process_group("self"):
                pass


def test_destroyed():
    group = dist.init_process_group("self")
    work = group.all_reduce(numpy.ones(3), async_op=True)
    group.destroy()
    group.destroy()
    assert work.wait()[0] == 1
    with refused("group: it was destroyed"):
        group.all_reduce(numpy.zeros(4))
    with refused("group: it was destroyed"):
        group.split(0)
    assert "destroyed" in repr(group)


def test_backend():
    with pytest.raises(dist.NoBackendError, match="no-such"):
        dist.init_process_group("no-such")


def test_own_gather():
    def fails(_):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        dist.init_process_group(rank=0, world_size=2, all_gather=fails, timeout=5)


def test_own_gather_of_wrong_size():
    for wrong in (lambda data: [data], lambda data: [data] * 3):
        with refused("all_gather: it returned"):
            dist.init_process_group(rank=0, world_size=2, all_gather=wrong, timeout=5)


def test_exported_memory_stays():
    """A bytearray cannot be resized while an operation uses it."""
    with dist.init_process_group("self") as group:
        data = bytearray(8)
        work = group.all_reduce(data, async_op=True)
        with pytest.raises(BufferError):
            data.extend(b"123")
        work.wait()
        del work
        data.extend(b"123")


def test_created_op_outlives_its_name(group):
    """The library calls it until it is freed, so Python must not collect it earlier."""
    op = dist.create_op(lambda dst, a, b: dst.__setitem__(slice(None), a + b))
    number, kept = op.number, weakref.ref(op)
    work = group.all_reduce(numpy.ones(3), op=op, async_op=True)
    del op
    gc.collect()
    assert kept() is not None and kept().number == number
    work.wait()
    kept().free()
    gc.collect()
    assert kept() is None


# ---- several ranks ----


def different_shapes(rank):
    group = dist.init_process_group(timeout=20)
    with pytest.raises(dist.MismatchError, match="rank"):
        group.all_reduce(numpy.zeros(4 + rank))
    with pytest.raises(dist.AbortedError):
        group.barrier()
    group.destroy()


def different_dtypes(rank):
    group = dist.init_process_group(timeout=20)
    with pytest.raises(dist.MismatchError, match="rank"):
        group.all_reduce(numpy.zeros(4, ["float32", "int32"][rank]))


def raises_in_one(rank):
    with dist.init_process_group(timeout=20) as group:
        group.barrier()
        if rank == 1:
            raise KeyError("of rank 1")
        with pytest.raises((dist.AbortedError, dist.PeerLostError), match="rank 1"):
            group.all_reduce(numpy.zeros(4))


def created_op_raises(_):
    def wrong(_dst, _a, _b):
        raise ValueError("of mine")

    with dist.init_process_group(timeout=20) as group:
        op = dist.create_op(wrong)
        group.all_reduce(numpy.ones(3), op=op)
        group.barrier()
        failed = numpy.zeros(1)
        try:
            op.check()
        except ValueError as error:
            assert str(error) == "of mine"
            failed[0] = 1
        assert group.all_reduce(failed)[0] > 0  # at least one rank has called the function
        op.free()


def two_threads_wait(rank):
    with dist.init_process_group(timeout=20) as group:
        if rank == 1:
            group.barrier()
            group.send(numpy.full(1, 5.0), 0)
            return
        work, got = group.irecv(numpy.zeros(1), 1), []
        threads = [threading.Thread(target=lambda: got.append(work.wait()[0])) for _ in range(2)]
        for thread in threads:
            thread.start()
        group.barrier()
        for thread in threads:
            thread.join(30)
        assert got == [5.0, 5.0]


def callback_waits(rank):
    """All callbacks of a work are called, even after one that raises, and can wait for its result.
    """
    told, seen, ended = [], [], threading.Event()
    sys.unraisablehook = lambda what: told.append(what.exc_value)

    def first(_):
        raise KeyError("of a callback")

    def second(work):
        seen.append((work.wait()[0], work.done()))
        ended.set()

    with dist.init_process_group(timeout=20) as group:
        if rank == 1:
            group.barrier()
            group.send(numpy.full(1, 5.0), 0)
            return
        work = group.irecv(numpy.zeros(1), 1)
        work.add_done_callback(first)
        work.add_done_callback(second)
        group.barrier()
        work.wait()
        assert ended.wait(30)
        assert seen == [(5.0, True)]
        assert [type(error) for error in told] == [KeyError]


def killed(rank):
    group = dist.init_process_group(timeout=20)
    group.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(dist.PeerLostError, match="rank 1"):
        group.all_reduce(numpy.zeros(4))


def late(rank):
    with dist.init_process_group(timeout=20) as group:
        if rank == 0:
            with pytest.raises(dist.TimeoutError, match="rank 1"):
                group.monitored_barrier(0.2)
            group.isend(numpy.ones(1), 1).wait()
        else:
            group.recv(numpy.ones(1), 0)


def ends_with_callbacks(rank):
    """The interpreter may exit while a work with a callback is pending."""
    group = dist.init_process_group(timeout=20)
    if rank == 0:
        work = group.irecv(numpy.ones(1), 1)
        work.add_done_callback(lambda _: None)
        globals()["kept"] = group, work
    else:
        with pytest.raises((dist.AbortedError, dist.PeerLostError), match="rank 0"):
            group.barrier()


def raises_at_length(rank):
    if rank == 1:
        raise KeyError("x" * 1000000 + "the end")


TWO_RANKS = [
    different_shapes,
    different_dtypes,
    created_op_raises,
    two_threads_wait,
    callback_waits,
    late,
    ends_with_callbacks,
]


@pytest.mark.parametrize("function", TWO_RANKS)
def test_two_ranks(function):
    dist.spawn(function, nprocs=2)


@pytest.mark.parametrize(
    "function, text", [(raises_in_one, "KeyError: 'of rank 1'"), (killed, "signal 9"), (raises_at_length, "the end")]
)
def test_failing_rank(function, text):
    begin = time.monotonic()
    with pytest.raises(dist.SpawnError, match=text) as caught:
        dist.spawn(function, nprocs=2)
    assert caught.value.rank == 1
    assert time.monotonic() - begin < 60

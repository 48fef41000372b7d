# SPDX-License-Identifier: BSD-3-Clause
"""Run by each rank: compares every operation of torch.distributed over libdist with gloo.

argv[1] is the backend of the default group, gloo or libdist; the other backend is used in a second
group of the same ranks.
"""
import gc
import os
import re
import sys
import tempfile
import time
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist

import libdist
import libdist.torch

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
]
NEW = libdist.torch.SUPPORTS_DEVICES
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]


class Both:
    """Runs the same operation over both groups, and compares the results."""

    def __init__(self):
        given = sys.argv[1] if len(sys.argv) > 1 else "libdist"
        dist.init_process_group(given, timeout=timedelta(seconds=60))
        other = "gloo" if "libdist" in given else "libdist"
        groups = {given: dist.group.WORLD, other: dist.new_group(backend=other)}
        self.gloo = groups["gloo"]
        self.ours = groups[given if "libdist" in given else other]
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def tensor(self, shape, dtype=torch.float32, rank=None):
        rank = self.rank if rank is None else rank
        count = torch.Size(shape).numel()
        return (torch.arange(count) % 3 + rank + 1).reshape(shape).to(dtype)

    def run(self, group, run, async_op):
        tensors, work = run(group, async_op)
        if async_op and work is not None:
            work.wait()
            assert group is self.gloo or work.is_completed()
        return tensors

    def theirs(self, what, run, async_op):
        """Returns gloo's result, or None if an old version does not support the operation."""
        try:
            return self.run(self.gloo, run, async_op)
        except RuntimeError as error:
            assert not NEW and re.search("does not support|Invalid scalar type", str(error)), what
            print(f"{what} is not compared: {error}")
            return None

    def same(self, what, run):
        """run(group, async_op) returns tensors, and a work if the operation is asynchronous."""
        for async_op in (False, True):
            expected = self.theirs(what, run, async_op)
            results = self.run(self.ours, run, async_op)
            for theirs, ours in zip(results if expected is None else expected, results):
                assert torch.equal(theirs, ours), f"{what}, {async_op}: {theirs} is not {ours}"


def reductions(both):
    for dtype in DTYPES:
        for op in OPS:

            def all_reduce(group, async_op, dtype=dtype, op=op):
                x = both.tensor((2, 3), dtype)
                return [x], dist.all_reduce(x, op, group, async_op)

            def reduce(group, async_op, dtype=dtype, op=op):
                x, root = both.tensor((5,), dtype), both.size - 1
                work = dist.reduce(x, root, op, group, async_op)
                return [x] if both.rank == root else [], work

            both.same(f"all_reduce {dtype} {op}", all_reduce)
            both.same(f"reduce {dtype} {op}", reduce)

    def strided(group, async_op):
        x = both.tensor((4, 6))
        if group is both.ours:
            x = x.t().contiguous().t()  # the same elements, but not contiguous
        return [x], dist.all_reduce(x, group=group, async_op=async_op)

    def expanded(group, async_op):
        x = both.tensor((1,)).expand(4)  # like the gradient of a sum
        if group is both.gloo:
            x = x.clone()
        return [x], dist.all_reduce(x, group=group, async_op=async_op)

    def reduce_scatter(group, async_op):
        x = torch.zeros(3)
        given = [both.tensor((3,)) + i for i in range(both.size)]
        return [x], dist.reduce_scatter(x, given, group=group, async_op=async_op)

    def reduce_scatter_tensor(group, async_op):
        x, given = torch.zeros(2, 3), both.tensor((2 * both.size, 3))
        return [x], dist.reduce_scatter_tensor(x, given, group=group, async_op=async_op)

    for run in (strided, expanded, reduce_scatter, reduce_scatter_tensor):
        both.same(run.__name__, run)


def sparse(both):
    """Sparse tensors with different numbers of elements, some of them equal, on the ranks."""
    for dtype in (torch.float32, torch.float64, torch.int64):
        for shape, inner in ((10,), ()), ((5, 6), ()), ((7,), (3,)):
            for count in (0, 1, 20):
                draw = torch.Generator().manual_seed(count + both.rank)
                own = max(count - both.rank, 0)
                indices = torch.stack([torch.randint(0, size, (own,), generator=draw) for size in shape])
                values = torch.randint(1, 9, (own, *inner), generator=draw).to(dtype)

                def all_reduce(group, async_op, given=(indices, values, (*shape, *inner))):
                    x = torch.sparse_coo_tensor(*given, check_invariants=True)
                    work = dist.all_reduce(x, group=group, async_op=async_op)
                    if async_op:
                        work.wait()
                    return [x.to_dense()], work

                both.same(f"sparse all_reduce {dtype} {shape} {inner} {count}", all_reduce)


def movers(both):
    n, root = both.size, both.size - 1

    def all_gather(group, async_op):
        out = [torch.zeros(2, 2) for _ in range(n)]
        return out, dist.all_gather(out, both.tensor((2, 2)), group, async_op)

    def all_gather_slices(group, async_op):
        out = torch.zeros(n, 3)
        return [out], dist.all_gather(list(out), both.tensor((3,)), group, async_op)

    def all_gather_into_tensor(group, async_op):
        out = torch.zeros(n * 2, 3, dtype=torch.int64)
        given = both.tensor((2, 3), torch.int64)
        return [out], dist.all_gather_into_tensor(out, given, group, async_op)

    def broadcast(group, async_op):
        x = both.tensor((3, 2), torch.complex64)
        return [x], dist.broadcast(x, root, group, async_op)

    def gather(group, async_op):
        out = [torch.zeros(3) for _ in range(n)] if both.rank == root else None
        return out or [], dist.gather(both.tensor((3,)), out, root, group, async_op)

    def scatter(group, async_op):
        x = torch.zeros(3)
        given = [both.tensor((3,)) * i for i in range(n)] if both.rank == root else None
        return [x], dist.scatter(x, given, root, group, async_op)

    def all_to_all_single(group, async_op):
        x = torch.zeros(n * 2, 2)
        return [x], dist.all_to_all_single(x, both.tensor((n * 2, 2)), group=group, async_op=async_op)

    def all_to_all_splits(group, async_op):
        send = [(both.rank + i) % 3 for i in range(n)]
        x = torch.zeros(sum(send), 2)
        given = both.tensor((sum(send), 2))
        return [x], dist.all_to_all_single(x, given, send, send, group, async_op)

    for run in (all_gather, all_gather_slices, all_gather_into_tensor, broadcast, gather, scatter):
        both.same(run.__name__, run)
    both.same("all_to_all_single", all_to_all_single)
    both.same("all_to_all_single with splits", all_to_all_splits)
    x = torch.zeros(n * 2, dtype=torch.int16)  # not supported by gloo
    dist.all_gather_into_tensor(x, both.tensor((2,), torch.int16), both.ours)
    assert torch.equal(x, torch.cat([both.tensor((2,), torch.int16, i) for i in range(n)]))
    out = [torch.zeros(1 + (both.rank + i) % 2) for i in range(n)]
    given = [torch.full((1 + (both.rank + i) % 2,), 10.0 * both.rank + i) for i in range(n)]
    dist.all_to_all(out, given, both.ours)
    assert all((x == 10 * i + both.rank).all() for i, x in enumerate(out)), out


def lazy(both):
    """The imaginary part of a conjugate is a view whose memory contains the negated values."""
    x = torch.full((3,), 1 + 2j).conj().imag
    assert x.is_neg()
    dist.all_reduce(x, group=both.ours)
    assert (x == -2 * both.size).all()
    out = [torch.zeros(3) for _ in range(both.size)]
    dist.all_gather(out, torch.full((1, 3), 1 + 2j).conj().imag[0], both.ours)
    assert all((part == -2).all() for part in out)


def messages(both):
    n, r = both.size, both.rank
    to, come = (r + 1) % n, (r - 1) % n

    def ring(group, _):
        x = torch.zeros(3)
        works = [
            dist.isend(both.tensor((3,)), to, group, tag=7),
            dist.irecv(x, come, group, tag=7),
        ]
        for work in works:
            work.wait()
        return [x], None

    def batch(group, _):
        x = torch.zeros(3)
        ops = [
            dist.P2POp(dist.isend, both.tensor((3,)), to, group),
            dist.P2POp(dist.irecv, x, come, group),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return [x], None

    both.same("isend and irecv", ring)
    both.same("batch_isend_irecv", batch)
    if r:
        dist.send(torch.tensor([r]), 0, both.ours)
    else:
        seen = set()
        for _ in range(1, n):
            x = torch.zeros(1, dtype=torch.int64)
            source = dist.recv(x, None, both.ours)
            assert source == x.item() or both.ours is not dist.group.WORLD, (source, x)
            seen.add(x.item())
        assert seen == set(range(1, n))


def objects(both):
    n, group = both.size, both.ours
    got = [None] * n
    dist.all_gather_object(got, {"rank": both.rank}, group)
    assert got == [{"rank": i} for i in range(n)]
    some = [both.rank, "of rank 0"] if both.rank == 0 else [None, None]
    dist.broadcast_object_list(some, 0, group)
    assert some == [0, "of rank 0"]
    mine = [None]
    dist.scatter_object_list(mine, list(range(n)) if both.rank == 0 else None, 0, group)
    assert mine == [both.rank]
    got = [None] * n if both.rank == 0 else None
    dist.gather_object(both.rank, got, 0, group)
    assert both.rank or got == list(range(n))


def monitored(timeout=None, wait_all_ranks=False):
    """Calls torch's function, which supports only gloo before torch 2.12."""
    if NEW:
        dist.monitored_barrier(timeout=timeout, wait_all_ranks=wait_all_ranks)
    else:
        dist.group.WORLD.monitored_barrier(timeout, wait_all_ranks)


def futures(both):
    work = dist.all_reduce(torch.ones(3), group=both.ours, async_op=True)
    chained = work.get_future().then(lambda future: future.value()[0] * 2)
    assert (chained.wait() == 2 * both.size).all()
    works = [dist.all_reduce(torch.ones(1000), group=both.ours, async_op=True) for _ in range(50)]
    del works  # not waited for
    with dist._coalescing_manager(both.ours, torch.device("cpu"), async_ops=True) as manager:
        several = [torch.ones(3), torch.ones(5)]
        for x in several:
            dist.all_reduce(x, group=both.ours)
    manager.wait()
    assert all((x == both.size).all() for x in several)
    dist.barrier(both.ours)
    dist.barrier(both.ours, async_op=True).wait()
    if both.ours is dist.group.WORLD:
        monitored(timedelta(seconds=20))


def chained(both):
    """A callback may call all methods of its work while the main thread waits for it."""
    for _ in range(20):
        work = dist.all_reduce(torch.ones(3), group=both.ours, async_op=True)
        asked = work.get_future().then(
            lambda _, work=work: (work.wait(), work.is_completed(), work.is_success(), work.get_future())
        )
        work.wait()
        assert asked.wait()[:3] == (True, True, True)
    with dist._coalescing_manager(both.ours, torch.device("cpu"), async_ops=True) as manager:
        out, given, total = torch.zeros(both.size), torch.ones(1), torch.ones(1)
        both.ours.allgather_into_tensor_coalesced([out], [given])
        both.ours.allreduce([total])
    manager.wait()
    assert (out == 1).all() and total == both.size
    if both.ours is dist.group.WORLD:
        with dist._coalescing_manager(both.ours, torch.device("cpu"), async_ops=True) as manager:
            pass
        manager.wait()


def nested(both):
    """A function chained to a future may wait for its own calls, as PowerSGD's hook does."""

    def more(future):
        x = future.value()[0]
        dist.all_reduce(x, group=both.ours)
        return dist.all_reduce(x, group=both.ours, async_op=True).get_future().wait()[0]

    for i in range(10):
        if i % 2 == both.rank % 2:
            time.sleep(0.02)
        work = dist.all_reduce(torch.ones(3), group=both.ours, async_op=True)
        assert (work.get_future().then(more).wait() == both.size**3).all()


def dropped(both):
    """A Work of which the program keeps only the boxed form has its result or failure, and is
    freed.
    """
    world, n, r = both.ours, both.size, both.rank
    if world is not dist.group.WORLD:
        return

    def parts():
        return [torch.ones(2) for _ in range(n)]

    def coalesced():
        with dist._coalescing_manager(world, torch.device("cpu"), async_ops=True) as manager:
            dist.all_gather_into_tensor(torch.zeros(n), torch.ones(1))
            dist.all_gather_into_tensor(torch.zeros(2 * n), torch.ones(2))
        return manager.works[0]

    options = {"async_op": True}
    starts = [
        lambda: dist.all_reduce(torch.ones(3), **options),
        lambda: dist.reduce(torch.ones(3), 0, **options),
        lambda: dist.broadcast(torch.ones(3), 0, **options),
        lambda: dist.all_gather(parts(), torch.ones(2), **options),
        lambda: dist.all_gather_into_tensor(torch.zeros(2 * n), torch.ones(2), **options),
        lambda: dist.gather(torch.ones(2), None if r else parts(), **options),
        lambda: dist.scatter(torch.ones(2), None if r else parts(), **options),
        lambda: dist.reduce_scatter(torch.zeros(2), parts(), **options),
        lambda: dist.reduce_scatter_tensor(torch.zeros(2), torch.ones(2 * n), **options),
        lambda: dist.all_to_all(parts(), parts(), **options),
        lambda: dist.all_to_all_single(torch.zeros(n), torch.ones(n), **options),
        lambda: world.allreduce_coalesced([torch.ones(2), torch.ones(3)]),
        lambda: dist.isend(torch.ones(2), (r + 1) % n),
        lambda: dist.irecv(torch.zeros(2), (r - 1) % n),
        lambda: dist.barrier(**options),
        coalesced,
    ]
    seen, boxes = [], []
    for start in starts:
        work = start()
        seen.append(weakref.ref(work))
        boxes.append(work.boxed())
        if len(boxes) % 2:
            work.wait()  # after that, its group does not keep it
        del work
    while boxes:
        box = boxes.pop()
        work = dist.Work.unbox(box)
        assert work.wait(timedelta(seconds=60)) and work.is_completed() and work.is_success()
        for got, tensor in zip(work.get_future().wait(), work.result()):
            assert torch.equal(got, tensor) and tensor.all(), tensor
        del work, box
    # DDP's reducer holds a work only in C++.
    tensor = torch.ones(1)
    work = dist.all_reduce(tensor, **options)
    seen.append(weakref.ref(work))
    reducer = dist.Reducer([torch.nn.Parameter(torch.ones(1))], [[0]], [1], world)
    reducer._set_forward_pass_work_handle(work, False)
    del work
    group = dist.new_group()
    if r == 0:
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        seen.append(weakref.ref(work))
        box = work.boxed()
        del work
        group.abort()
        try:
            dist.Work.unbox(box).wait()
            raise AssertionError("an aborted call passed")
        except libdist.AbortedError as error:
            assert isinstance(dist.Work.unbox(box).exception(), libdist.AbortedError), error
        del box
    dist.destroy_process_group(group)
    limit = time.monotonic() + (60 if torch.__version__ >= (2, 7) else 0)
    while any(ref() for ref in seen) and time.monotonic() < limit:
        world._reap()  # as the next call would
        gc.collect()  # an error's traceback and its work form a reference cycle
        time.sleep(0.01)  # a thread that completed a future may still have a reference to its work
    # In torch 2.6 the group keeps works that have not been waited for.
    if torch.__version__ >= (2, 7):
        assert not any(ref() for ref in seen), [i for i, ref in enumerate(seen) if ref()]


def late(both):
    """A monitored barrier without one rank fails with gloo's message, and the group remains usable.
    """
    if both.ours is not dist.group.WORLD:
        return
    reached = f"Rank {both.rank} successfully reached monitoredBarrier"
    for wait_all_ranks in (False, True):
        named = "Ranks 1" if wait_all_ranks else "Rank 1"
        words = reached if both.rank else rf"^\[Rank 0\]: {named} failed to pass monitoredBarrier in 100 ms\n"
        if both.rank == 1:
            dist.barrier()
            monitored()
            continue
        try:
            monitored(timedelta(seconds=0.1), wait_all_ranks)
            raise AssertionError("rank 1 was not missed")
        except RuntimeError as error:
            assert re.search(words, str(error)) and "1 (host" in str(error), error
        dist.barrier()


def groups(both):
    if both.ours is not dist.group.WORLD:
        return
    half = [r for r in range(both.size) if r % 2 == both.rank % 2]
    made = [dist.new_group([r for r in range(both.size) if r % 2 == i]) for i in range(2)]
    mine = made[both.rank % 2]
    x = torch.ones(1)
    dist.all_reduce(x, group=mine)
    assert x.item() == len(half) == dist.get_world_size(mine)
    if NEW and isinstance(both.ours, libdist.torch.ProcessGroup):
        split = dist.split_group(split_ranks=[list(range(both.size))])
        dist.all_reduce(x, group=split)
        assert split.group_desc == "default_pg:split:0", split.group_desc
    dist.destroy_process_group(mine)


def is_shared(tensor):
    """Returns whether other processes can map the tensor's memory."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            begin, end = (int(address, 16) for address in line.split()[0].split("-"))
            if begin <= tensor.data_ptr() < end:
                return line.split()[1].endswith("s")
    return False


def sharing(both):
    create = [
        lambda: torch.empty(1000, 7, dtype=torch.bfloat16),
        lambda: torch.zeros(5),
        lambda: torch.randn(3, 4),
        lambda: torch.tensor([[1.5, 2.5]]),
        lambda: torch.empty_strided((3, 4), (1, 3)).fill_(2),
        lambda: torch.full_like(torch.zeros(4), 9),
        lambda: torch.nn.Linear(3, 5).weight,
        lambda: torch.zeros(4, 5).new_ones(2, dtype=torch.int32),
    ]
    for function in create:
        torch.manual_seed(3)
        ordinary = function()
        torch.manual_seed(3)
        with libdist.torch.shared():
            tensor = function()
            assert not is_shared(tensor + tensor)
        assert is_shared(tensor) and not is_shared(ordinary)
        assert tensor.stride() == ordinary.stride() and tensor.dtype == ordinary.dtype
        assert tensor.numel() == 7000 or torch.equal(tensor, ordinary)
        assert type(tensor) is type(ordinary) and tensor.requires_grad == ordinary.requires_grad
        with torch.no_grad():
            tensor.fill_(2)
            dist.all_reduce(tensor, group=both.ours)
            assert tensor.eq(2 * both.size).all()
    with libdist.torch.shared():
        assert torch.zeros(0).numel() == 0


def refusals(both):
    wrong = [
        lambda: dist.all_reduce(torch.zeros(2, dtype=torch.int16), group=both.ours),
        lambda: dist.all_gather_into_tensor(torch.zeros(1), torch.zeros(2), both.ours),
        lambda: dist.all_reduce(torch.zeros(2).to_sparse(), dist.ReduceOp.MAX, both.ours),
        lambda: dist.all_reduce(torch.zeros(2), dist.ReduceOp.BXOR, both.ours),
    ]
    for call in wrong:
        try:
            call()
        except RuntimeError as error:
            assert str(error)
        else:
            raise AssertionError("a wrong call passed")
    dist.all_reduce(torch.zeros(2), group=both.ours)


def timeout_of(group):
    """Returns the timeout of the library's group in seconds, read from its flight recorder."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "flight")
        libdist.flight_dump(path)
        with open(path, encoding="utf-8") as file:
            found = re.findall(r'"timeout_ms": ?(\d+)', file.read())
    assert group._timeout == timedelta(milliseconds=int(found[0])), (group._timeout, found)
    return group._timeout.total_seconds()


def again(both):
    """Creates a second world with a store that outlives the first world."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True) if both.rank == 0 else None
    port = [store.port if store else None]
    dist.broadcast_object_list(port, 0)
    store = store or dist.TCPStore("127.0.0.1", port[0], is_master=False)
    dist.destroy_process_group()
    libdist.torch._group.EXIT_SECONDS = 1
    os.environ["DIST_TIMEOUT"] = "40"
    # torch's own default leaves DIST_TIMEOUT in effect; an explicit timeout overrides it.
    for given, seconds in ({}, 40), ({"timeout": timedelta(seconds=50)}, 50):
        dist.init_process_group("libdist", store=store, rank=both.rank, world_size=both.size, **given)
        assert timeout_of(dist.group.WORLD) == seconds
        x = torch.ones(1)
        dist.all_reduce(x)
        assert x.item() == both.size
        dist.irecv(x, (both.rank + 1) % both.size)  # no rank sends it
        dist.destroy_process_group()
    return store


def main():
    both = Both()
    parts = (reductions, sparse, movers, lazy, messages, objects, futures, chained, nested, dropped, late, groups, sharing, refusals)
    for part in parts:
        part(both)
    store = again(both)  # rank 0's store serves the other ranks
    store.set(f"done/{both.rank}", "")
    if both.rank == 0:
        store.wait([f"done/{r}" for r in range(both.size)])


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: BSD-3-Clause
"""Run by each rank: calls every collective once, blocking and asynchronously, and compares with
numpy.
"""
import array
import asyncio
import sys

import libdist as dist

try:
    import numpy
except ImportError:
    numpy = None


def check(got, expected, what):
    assert numpy.array_equal(got, expected), f"{what}: {got!r} is not {expected!r}"


def plain(group):
    """Tests the buffer protocol, which needs no numpy."""
    n = group.size
    data = array.array("f", [group.rank + 1.0, 2.0])
    assert group.all_reduce(data) is data
    assert list(data) == [n * (n + 1) / 2, 2.0 * n], data
    out = bytearray(n)
    group.all_gather(bytes([group.rank]), out)
    assert out == bytes(range(n)), out
    group.broadcast(data, root=n - 1, async_op=True).wait()
    group.barrier()


class Data:
    """The inputs of every rank, so that each rank can compute all results."""

    def __init__(self, group, dtype):
        self.group, self.dtype = group, dtype

    def of(self, rank, count):
        return (numpy.arange(count) % 5 + rank + 1).astype(self.dtype)

    def mine(self, count):
        return self.of(self.group.rank, count)

    def all(self, count):
        return numpy.stack([self.of(r, count) for r in range(self.group.size)])


def done(result, async_op):
    return result.wait() if async_op else result


def reductions(group, data, a):
    for op, ufunc in [("sum", numpy.sum), (dist.MAX, numpy.max), (dist.Op.MIN, numpy.min)]:
        expected = ufunc(data.all(7), axis=0).astype(data.dtype)
        check(done(group.all_reduce(data.mine(7), op=op, async_op=a), a), expected, "all_reduce")
        out = numpy.empty(7, data.dtype)
        done(group.all_reduce(data.mine(7), out, op, a), a)
        check(out, expected, "all_reduce out of place")
        root = group.size - 1
        got = done(group.reduce(data.mine(7), None, op, root, a), a)
        assert (got is None) == (group.rank != root)
        if got is not None:
            check(got, expected, "reduce")
    several = [data.mine(3), data.mine(6)]
    done(group.all_reduce_coalesced(several, async_op=a), a)
    for x in several:
        check(x, data.all(x.size).sum(0).astype(data.dtype), "all_reduce_coalesced")
    n, r = group.size, group.rank
    total = data.all(2 * n).sum(0).astype(data.dtype)
    got = done(group.reduce_scatter(data.mine(2 * n), async_op=a), a)
    check(got, total[2 * r : 2 * r + 2], "reduce_scatter")
    counts = list(range(n))
    total = data.all(sum(counts)).sum(0).astype(data.dtype)
    got = done(group.reduce_scatter_v(data.mine(sum(counts)), counts, async_op=a), a)
    check(got, total[sum(counts[:r]) :][: counts[r]], "reduce_scatter_v")


def movers(group, data, a):
    n, r = group.size, group.rank
    check(done(group.all_gather(data.mine(3), async_op=a), a), data.all(3), "all_gather")
    got = done(group.gather(data.mine(3), root=0, async_op=a), a)
    if r == 0:
        check(got, data.all(3), "gather")
    out = numpy.empty(3, data.dtype)
    whole = data.all(3) if r == 0 else None
    check(done(group.scatter(whole, out, root=0, async_op=a), a), data.mine(3), "scatter")
    x = data.mine(4)
    check(done(group.broadcast(x, root=n - 1, async_op=a), a), data.of(n - 1, 4), "broadcast")
    expected = data.all(2 * n).reshape(n, n, 2)[:, r]
    got = done(group.all_to_all(data.mine(2 * n).reshape(n, 2), async_op=a), a)
    check(got, expected, "all_to_all")


def v_movers(group, data, a):
    n, r = group.size, group.rank
    counts = [i + 1 for i in range(n)]
    joined = numpy.concatenate([data.of(i, i + 1) for i in range(n)])
    check(done(group.all_gather_v(data.mine(r + 1), counts, async_op=a), a), joined, "all_gather_v")
    got = done(group.gather_v(data.mine(r + 1), counts, root=0, async_op=a), a)
    if r == 0:
        check(got, joined, "gather_v")
    out = numpy.empty(r + 1, data.dtype)
    given = (joined, counts) if r == 0 else ()
    check(done(group.scatter_v(out, *given, async_op=a), a), data.mine(r + 1), "scatter_v")
    to = [(r + i) % 3 for i in range(n)]
    mine = data.mine(sum(to))
    got = done(group.all_to_all_v(mine, to, to, async_op=a), a)
    parts = [data.of(i, sum((i + j) % 3 for j in range(n))) for i in range(n)]
    begins = [sum((i + j) % 3 for j in range(r)) for i in range(n)]
    blocks = [p[b : b + (i + r) % 3] for i, (p, b) in enumerate(zip(parts, begins))]
    check(got, numpy.concatenate(blocks), "all_to_all_v")


def messages(group):
    n, r = group.size, group.rank
    got = numpy.zeros(2, "int64")
    sent = group.isend(numpy.array([r, 7]), (r + 1) % n, tag=3)
    work = group.irecv(got, tag=3)
    assert work.wait() is got and work.source == (r - 1) % n
    check(got, [(r - 1) % n, 7], "irecv")
    sent.wait()
    with dist.batch():
        group.send(numpy.array([r, 8]), (r + 1) % n)
        group.recv(got, (r - 1) % n)
    check(got, [(r - 1) % n, 8], "batch")
    if n > 1 and r < 2:
        with group.isend(numpy.array([5, 5]), 1 - r):
            assert group.recv(got, 1 - r) == 1 - r


async def awaited(group):
    works = [group.all_reduce(numpy.full(3, i), async_op=True) for i in range(10)]
    for i, x in enumerate(await asyncio.gather(*works)):
        check(x, [i * group.size] * 3, "await")


def callbacks(group):
    seen = []
    work = group.all_reduce(numpy.ones(3), async_op=True)
    work.add_done_callback(seen.append)
    work.wait()
    assert seen == [work]
    work.add_done_callback(seen.append)
    assert len(seen) == 2
    for _ in range(100):  # dropped immediately; the library still uses the memory
        group.all_reduce(numpy.ones(1000), async_op=True)


def groups(group):
    half = group.split(group.rank % 2, key=-group.rank)
    assert half.global_rank(half.rank) == group.rank
    check(half.all_reduce(numpy.ones(2)), [half.size] * 2, "split")
    half.destroy()
    first = group.new_group([0])
    assert (first is None) == (group.rank != 0)
    if first:
        first.destroy()
    with group.dup(timeout=30) as same:
        same.monitored_barrier(10)


def memory(group):
    x = dist.empty((3, 1000), "float32")
    assert x.shape == (3, 1000) and not x.any()
    x[:] = group.rank + 1
    group.all_reduce(x, op="max")
    assert (x == group.size).all()
    part = x[1]
    del x  # the part keeps the memory alive
    group.all_reduce(part)
    assert (part == group.size**2).all()
    group.barrier()


def operations(group):
    op = dist.create_op(lambda dst, a, b: numpy.add(a, b, out=dst))
    check(group.all_reduce(numpy.arange(3.0), op=op), numpy.arange(3.0) * group.size, "created")
    op.check()
    op.free()
    op = dist.premul_sum(0.5)
    check(group.all_reduce(numpy.ones(2), op=op), [group.size / 2] * 2, "premul_sum")
    op.free()


def bfloat16(group):
    try:
        import ml_dtypes
    except ImportError:
        return
    x = numpy.ones(4, ml_dtypes.bfloat16)
    assert (group.all_reduce(x) == group.size).all()


def main():
    with dist.init_process_group(*sys.argv[1:2]) as group:
        plain(group)
        if numpy is None:
            print("collectives.py: without numpy, the buffer protocol only")
            return
        for dtype in ("float32", "float64", "float16", "int8", "uint8", "int32", "uint64"):
            for async_op in (False, True):
                for part in (reductions, movers, v_movers):
                    part(group, Data(group, dtype), async_op)
        assert group.all_reduce(numpy.array([group.rank == 0]))[0]
        for part in (messages, callbacks, groups, memory, operations, bfloat16):
            part(group)
        asyncio.run(awaited(group))


if __name__ == "__main__":
    main()

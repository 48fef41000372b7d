# SPDX-License-Identifier: BSD-3-Clause
"""Run by each rank: collectives on CUDA tensors are ordered by PyTorch's streams, and the host does
not wait.

Without a launcher, a world of one rank; with torchrun, one rank per GPU. Ranks that share a GPU use
the host. With `--exit`, exits without destroying the group.
"""
import gc
import os
import sys
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist

import libdist.torch

COUNT = 4096
TICKS = 100_000_000  # of the GPU's clock: about 50 ms


class Rank:
    """The default group, and the inputs and results of each rank."""

    def __init__(self, **options):
        alone = {} if "RANK" in os.environ else {"init_method": "tcp://127.0.0.1:0", "rank": 0, "world_size": 1}
        self.local = int(os.environ.get("LOCAL_RANK", 0))
        self.device = torch.device("cuda", self.local % torch.cuda.device_count())
        torch.cuda.set_device(self.device)
        if options:
            options["device_id"] = self.device
        dist.init_process_group("libdist", timeout=timedelta(seconds=60), **alone, **options)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.sum = self.size * (self.size + 1) / 2
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dist.all_reduce(self.full(1))
        self.over_nccl = dist.group.WORLD._cuda.group is not None
        assert self.over_nccl or self.local >= torch.cuda.device_count() or self.size > torch.cuda.device_count()

    def full(self, value, count=COUNT):
        """Returns a tensor written by a kernel on the current stream."""
        return torch.full((count,), float(value), device=self.device)


def reductions(at):
    def all_reduce(async_op):
        x = at.full(at.rank + 1)
        return dist.all_reduce(x, async_op=async_op), x, at.sum

    def strided(async_op):
        x = at.full(at.rank + 1).view(64, -1).t()
        return dist.all_reduce(x, async_op=async_op), x, at.sum

    def average(async_op):
        x = at.full(at.rank + 1)
        return dist.all_reduce(x, dist.ReduceOp.AVG, async_op=async_op), x, at.sum / at.size

    def premul(async_op):
        x = at.full(at.rank + 1)
        return dist.all_reduce(x, dist._make_nccl_premul_sum(2.0), async_op=async_op), x, 2 * at.sum

    def reduce(async_op):
        x = at.full(at.rank + 1)
        work = dist.reduce(x, 0, async_op=async_op)
        return work, x, at.sum if at.rank == 0 else None

    def reduce_scatter(async_op):
        x, given = at.full(0), [at.full(at.rank + 1) for _ in range(at.size)]
        return dist.reduce_scatter(x, given, async_op=async_op), x, at.sum

    def reduce_scatter_tensor(async_op):
        x = at.full(0)
        given = at.full(at.rank + 1, COUNT * at.size)
        return dist.reduce_scatter_tensor(x, given, async_op=async_op), x, at.sum

    def coalesced(async_op):
        parts = [at.full(at.rank + 1), at.full(at.rank + 1)]
        with dist._coalescing_manager(dist.group.WORLD, at.device, async_ops=async_op) as manager:
            for x in parts:
                dist.all_reduce(x)
        return manager if async_op else None, parts[1], at.sum

    return [all_reduce, strided, average, premul, reduce, reduce_scatter, reduce_scatter_tensor, coalesced]


def movers(at):
    last = at.size - 1

    def broadcast(async_op):
        x = at.full(at.rank).to(torch.complex64)
        return dist.broadcast(x, last, async_op=async_op), x, last

    def all_gather(async_op):
        out = [at.full(-1) for _ in range(at.size)]
        return dist.all_gather(out, at.full(at.rank), async_op=async_op), out[-1], last

    def all_gather_into_tensor(async_op):
        out = at.full(-1, COUNT * at.size)
        work = dist.all_gather_into_tensor(out, at.full(at.rank), async_op=async_op)
        return work, out[-COUNT:], last

    def gather(async_op):
        out = [at.full(-1) for _ in range(at.size)] if at.rank == 0 else None
        work = dist.gather(at.full(at.rank), out, async_op=async_op)
        return work, out[-1] if out else at.full(last), last

    def scatter(async_op):
        x, given = at.full(-1), [at.full(r) for r in range(at.size)] if at.rank == 0 else None
        return dist.scatter(x, given, async_op=async_op), x, at.rank

    def all_to_all(async_op):
        out, given = [at.full(-1) for _ in range(at.size)], [at.full(at.rank) for _ in range(at.size)]
        return dist.all_to_all(out, given, async_op=async_op), out[-1], last

    def all_to_all_single(async_op):
        out, given = at.full(-1, COUNT * at.size), at.full(at.rank, COUNT * at.size)
        return dist.all_to_all_single(out, given, async_op=async_op), out[-COUNT:], last

    return [broadcast, all_gather, all_gather_into_tensor, gather, scatter, all_to_all, all_to_all_single]


def order(at):
    """A call runs after a long kernel on the current stream, later work sees its result, and the
    host does not wait.
    """
    stream = torch.cuda.Stream()
    for run in reductions(at) + movers(at):
        for ticks in (0, TICKS):  # the first call connects the ranks
            for async_op in (False, True):
                with torch.cuda.stream(stream):
                    torch.cuda._sleep(ticks)
                    work, result, expected = run(async_op)
                    if work is not None:
                        work.wait()
                    seen = result.clone()
                    result.zero_()  # ordered after the use of the result
                ahead = not stream.query()
                stream.synchronize()
                what = f"{run.__name__}, async {async_op}"
                assert expected is None or (seen == expected).all(), f"{what}: {seen}, not {expected}"
                assert ahead or not ticks or not at.over_nccl, f"{what}: the host waited"
                assert work is None or not hasattr(work, "is_completed") or work.is_completed(), what


def other_streams(at):
    """Work on another stream that waits sees the result, and PyTorch does not reuse the memory
    before that.
    """
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    for _ in range(5):
        with torch.cuda.stream(first):
            torch.cuda._sleep(TICKS // 4)
            x = at.full(at.rank + 1).view(64, -1).t()
            work = dist.all_reduce(x, async_op=True)
        with torch.cuda.stream(second):
            work.wait()
            twice = x * 2
            x.record_stream(second)  # as the program must do for its own use
        del x, work
        with torch.cuda.stream(first):
            spoilers = [at.full(-1) for _ in range(8)]
        second.synchronize()
        assert (twice == 2 * at.sum).all(), twice
        del spoilers


def futures(at):
    stream = torch.cuda.Stream()
    for ticks in (0, TICKS):  # the first iteration imports modules
        torch.cuda._sleep(ticks)
        work = dist.all_reduce(at.full(at.rank + 1), async_op=True)
        chained = work.get_future().then(lambda future: future.value()[0] * 2)
        ahead = not work.is_completed()
        with torch.cuda.stream(stream):
            seen = chained.wait() + 1
        ahead = ahead and not stream.query()
        stream.synchronize()
        assert (seen == 2 * at.sum + 1).all(), seen
        assert ahead or not ticks or not at.over_nccl, "the host waited"
        work.wait()


def dropped(at):
    """Works that are not waited for release their memory after completion."""
    torch.cuda.synchronize()
    gc.collect()
    before = torch.cuda.memory_allocated()
    for _ in range(50):
        x = at.full(at.rank + 1)
        dist.all_reduce(x, async_op=True)
        del x
        at.full(-1)
    torch.cuda.synchronize()
    for _ in range(2):  # starting a call frees completed works
        dist.all_reduce(torch.ones(1), async_op=True).wait()
    gc.collect()
    kept = torch.cuda.memory_allocated() - before
    assert kept <= 0, f"{kept} bytes are kept"


def by_host(at):
    """Operations that NCCL does not support."""
    for async_op in (False, True):
        flags = torch.arange(at.size, device=at.device) == at.rank
        bits = torch.tensor([1 << at.rank], device=at.device)
        works = [
            dist.all_reduce(flags, dist.ReduceOp.MAX, async_op=async_op),
            dist.all_reduce(bits, dist.ReduceOp.BOR, async_op=async_op),
        ]
        values = [work.get_future().wait() for work in works if work is not None]
        for work in works:
            assert work is None or work.wait()
        assert flags.all() and bits.item() == (1 << at.size) - 1 and len(values) in (0, 2)
    refused(
        lambda: dist.all_reduce(torch.zeros(2, dtype=torch.int16, device=at.device)),
        "tensor: libdist does not reduce torch.int16",
    )
    refused(
        lambda: dist.group.WORLD.all_gather_single(torch.zeros(at.size), torch.zeros(1, device=at.device)),
        "output: devices cpu and cuda",
    )


def refused(call, words):
    try:
        call()
    except RuntimeError as error:
        assert str(error).startswith(words), error
    else:
        raise AssertionError(f"it passed: {words}")


def messages(at):
    """Messages around the ring, with and without a tag; with one rank to itself, which torch's
    functions reject.
    """
    group, stream = dist.group.WORLD, torch.cuda.Stream()
    to, origin = (at.rank + 1) % at.size, (at.rank - 1) % at.size
    if at.size == 1 and not group._cuda.pairs:
        return
    for tag in (0, 3) if at.size > 1 else (0,):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(TICKS // 4)
            x, y = at.full(at.rank), at.full(-1).view(64, -1).t()
            works = [group.send([x], to, tag), group.recv([y], origin, tag)]
            for work in works:
                work.wait()
            seen = y + 1
        stream.synchronize()
        assert (seen == origin + 1).all(), seen
    group.send([x], to, 0)  # not waited for
    assert group.recv([y], origin, 0).get_future().wait()
    if group._cuda.pairs:
        refused(lambda: group.recv_anysource([y]), "src: ")


def graph(at):
    """A captured all_reduce, blocking and asynchronous, is part of the graph."""
    if not at.over_nccl:
        return
    x, captured = at.full(1), torch.cuda.CUDAGraph()
    dist.all_reduce(x.clone())
    torch.cuda.synchronize()
    with torch.cuda.graph(captured):
        dist.all_reduce(x)
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        x.mul_(2)
    for _ in range(3):
        captured.replay()
    torch.cuda.synchronize()
    assert (x == (2 * at.size**2) ** 3).all(), x
    captured.reset()


def both_devices(at):
    """CPU tensors still use the CPU group, and a barrier waits for the GPU."""
    x = torch.ones(3)
    dist.all_reduce(x)
    assert (x == at.size).all()
    dist.all_gather_object([None] * at.size, at.rank)
    torch.cuda._sleep(TICKS)
    dist.barrier()
    assert torch.cuda.current_stream().query()
    half = dist.new_group(list(range(at.size)))
    y = at.full(1)
    dist.all_reduce(y, group=half)
    assert (y == at.size).all()
    dist.destroy_process_group(half)


def main():
    if not torch.cuda.is_available():
        print("SKIP: no CUDA")
        sys.exit(77)
    at = Rank()
    if "--exit" in sys.argv:
        dist.all_reduce(at.full(1), async_op=True)
        return
    for part in (order, other_streams, futures, dropped, by_host, messages, graph, both_devices):
        part(at)
        print(f"rank {at.rank}: {part.__name__}", flush=True)
    dist.destroy_process_group()
    at = Rank(device_id=True)  # sends and receives use NCCL, too
    for part in (order, messages, both_devices):
        part(at)
    dist.destroy_process_group()
    if at.rank == 0:
        way = "over NCCL" if at.over_nccl else "through the host"
        print(f"torch {torch.__version__}, ranks: {at.size}, {way}")


if __name__ == "__main__":
    main()

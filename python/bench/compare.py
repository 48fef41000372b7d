# SPDX-License-Identifier: BSD-3-Clause
"""Compares gloo and libdist as backends of torch.distributed. Runs as a rank of any launcher.

    distrun -n 2 python3 python/bench/compare.py [--smallest MIB] [--largest MIB] [--rounds N]

Prints the median over the rounds, in microseconds, of all-reduce of float32 tensors (in ordinary
memory, and in memory shared by the ranks), of the library's call alone, and of DDP steps. The
column "alone" is the same step without communication except for a barrier at its end, which is a
lower bound.
"""
import argparse
import random
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import libdist.torch
from libdist import memory
from libdist._library import lib


def timed(call, calls):
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls * 1e6


def in_turns(calls, count, rounds):
    """Returns the medians. Each round runs all calls, in a random order that is equal on all ranks.
    """
    for call in calls:
        timed(call, max(count // 10, 2))
    times = [[] for _ in calls]
    order, chance = list(range(len(calls))), random.Random(1)
    for _ in range(rounds):
        chance.shuffle(order)
        for which in order:
            times[which].append(timed(calls[which], count))
    return [statistics.median(one) for one in times]


def row(*cells):
    if dist.get_rank() == 0:
        print("".join(f"{cell:>14}" for cell in cells), flush=True)


def all_reduce(groups, smallest, largest, rounds):
    row("bytes", "gloo", "libdist", "ratio", "shared", "ratio", "C call")
    gloo, ours = groups
    sizes = [8 * 8**step for step in range(24) if smallest <= 8 * 8**step < largest] + [largest]
    for size in sizes:
        x = torch.zeros(size // 4)
        shared = torch.frombuffer(memory.allocate(size), dtype=torch.float32)
        address, handle = x.data_ptr(), ours._group._handle
        calls = [
            lambda x=x: dist.all_reduce(x, group=gloo),
            lambda x=x: dist.all_reduce(x, group=ours),
            lambda x=shared: dist.all_reduce(x, group=ours),
            lambda n=size // 4, a=address: lib.dist_all_reduce(handle, a, a, n, 0, 0),
        ]
        times = in_turns(calls, max(4, min(500, 2**24 // size)), rounds)
        cells = [f"{t:.1f}" for t in times]
        ratios = [f"{times[0] / t:.1f}" for t in times]
        row(size, cells[0], cells[1], ratios[1], cells[2], ratios[2], cells[3])
    dist.barrier()


def step_of(batch, group, shared=False):
    """Returns a DDP step over a group. group None: each rank computes alone, followed by a barrier.
    """
    torch.manual_seed(1)
    net = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip
    model = net
    if group:
        model = DistributedDataParallel(net, process_group=group, gradient_as_bucket_view=True)
    if shared:
        model.register_comm_hook(libdist.torch.Buckets(group), libdist.torch.shared_buckets)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x, y = torch.randn(batch, 1, 28, 28), torch.randint(10, (batch,))

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if not group:
            dist.barrier()

    return step


def training(groups, rounds):
    gloo, ours = groups
    row("DDP, batch", "gloo", "libdist", "ratio", "shared", "ratio", "alone", "ratio")
    for batch in (4, 16, 64):
        steps = [step_of(batch, gloo), step_of(batch, ours), step_of(batch, ours, True), step_of(batch, None)]
        times = in_turns(steps, 256 // batch, rounds)
        cells, ratios = [f"{t:.0f}" for t in times], [f"{times[0] / t:.2f}" for t in times]
        row(batch, cells[0], cells[1], ratios[1], cells[2], ratios[2], cells[3], ratios[3])


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--smallest", type=float, default=0, help="MiB of the smallest all-reduce")
    options.add_argument("--largest", type=float, default=64, help="MiB of the largest, 0: only DDP")
    options.add_argument("--rounds", type=int, default=7, help="rounds of each measurement")
    options = options.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("libdist")
    groups = dist.new_group(backend="gloo"), dist.group.WORLD
    smallest, largest = (int(mib * 2**20) // 4 * 4 for mib in (options.smallest, options.largest))
    if largest:
        all_reduce(groups, smallest, largest, options.rounds)
    training(groups, options.rounds)
    dist.destroy_process_group()


main()

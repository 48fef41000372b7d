# SPDX-License-Identifier: BSD-3-Clause
"""Run by each rank: a compiled DDP model, and compiled functions with collectives, give the same
results as uncompiled ones.
"""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import libdist.torch


def steps(compiled):
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16)))
    run = torch.compile(model, backend="aot_eager") if compiled else model
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = torch.Generator().manual_seed(dist.get_rank() + 7)
    for _ in range(4):
        run(torch.randn(6, 8, generator=data)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def calls(x):
    y = x + dist.get_rank()
    dist.all_reduce(y, async_op=True).wait()
    dist.broadcast(y, 1)
    parts = [torch.zeros_like(y) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, y + dist.get_rank())
    return torch.cat(parts) * 2


def main():
    torch.set_num_threads(1)
    dist.init_process_group("libdist")
    torch.testing.assert_close(steps(True), steps(False))
    x = torch.ones(3)
    torch.testing.assert_close(torch.compile(calls, backend="aot_eager")(x), calls(x))
    dist.destroy_process_group()


main()

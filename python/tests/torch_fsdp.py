# SPDX-License-Identifier: BSD-3-Clause
"""Run by each rank: parameters sharded with both versions of PyTorch's FSDP, over the backend in
argv[1].

The losses must equal those of a single process, which every rank computes too.
"""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

import libdist.torch


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(24, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 4))


def batch(step, rank=None):
    """Returns a batch of all ranks, or one rank's part of it."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(dist.get_world_size(), 8, 24, generator=generator)
    x = x.flatten(0, 1) if rank is None else x[rank]
    return x, x[:, :4].argmax(1)


def losses(model, rank):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    found = []
    for step in range(30):
        x, labels = batch(step, rank)
        loss = nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        if rank is not None:
            dist.all_reduce(mean)
            mean /= dist.get_world_size()
        found.append(mean.item())
    return torch.tensor(found)


def sharded():
    """FSDP version 2: each layer's parameters are sharded over a mesh of the ranks."""
    model = net()
    mesh = DeviceMesh("cpu", list(range(dist.get_world_size())))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def main():
    torch.set_num_threads(1)
    dist.init_process_group(sys.argv[1])
    rank = dist.get_rank()
    expected = losses(net(), None)
    first = FullyShardedDataParallel(net(), device_id=torch.device("cpu"))
    torch.testing.assert_close(losses(first, rank), expected, rtol=1e-4, atol=1e-6)
    if hasattr(torch.cpu.Stream, "record_event"):  # torch 2.6 needs a GPU for version 2
        torch.testing.assert_close(losses(sharded(), rank), expected, rtol=1e-4, atol=1e-6)
    dist.destroy_process_group()


main()

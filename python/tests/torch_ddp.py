# SPDX-License-Identifier: BSD-3-Clause
"""Run by each rank: DDP has the same losses in 50 steps over gloo, over libdist, and with shared
buckets.
"""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import libdist.torch


def losses(group, buckets=None):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 5))
    model = DistributedDataParallel(
        net, process_group=group, bucket_cap_mb=0.1, gradient_as_bucket_view=True
    )
    if buckets:
        model.register_comm_hook(buckets, libdist.torch.shared_buckets)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    data = torch.Generator().manual_seed(dist.get_rank() + 7)
    found = []
    for _ in range(50):
        x = torch.randn(16, 20, generator=data)
        loss = nn.functional.cross_entropy(model(x), x[:, :5].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return torch.tensor(found)


def uneven(group, layers, static):
    """Trains with DDP's join() and fewer batches on rank 0; returns the parameters.

    Without `static` the reducer divides by the number of remaining ranks, which it obtains from a
    work that only C++ holds.
    """
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(*layers()), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with model.join(divide_by_initial_world_size=static):
        for i in range(3 + 2 * dist.get_rank()):
            optimizer.zero_grad()
            model(torch.ones(4, 8) * i).pow(2).sum().backward()
            optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def main():
    torch.set_num_threads(1)
    dist.init_process_group("libdist")
    gloo, ours = dist.new_group(backend="gloo"), dist.group.WORLD
    expected = losses(gloo)
    assert expected[-1] < expected[0]
    torch.testing.assert_close(losses(ours), expected, rtol=1e-5, atol=0)
    buckets = libdist.torch.Buckets(ours)
    torch.testing.assert_close(losses(ours, buckets), expected, rtol=1e-5, atol=0)
    assert buckets._shared
    for layers in (
        lambda: [nn.Linear(8, 16), nn.BatchNorm1d(16)],
        lambda: [nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)],
    ):
        for static in (False, True):
            expected = uneven(gloo, layers, static)
            torch.testing.assert_close(uneven(ours, layers, static), expected, rtol=1e-5, atol=1e-6)
    dist.destroy_process_group()


main()

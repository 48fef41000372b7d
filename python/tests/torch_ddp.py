# SPDX-License-Identifier: BSD-3-Clause
"""A rank: trains a small net for 50 steps, and prints its losses.

    torch_ddp.py BACKEND [buckets]
"""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import libdist.torch

torch.manual_seed(1)
torch.set_num_threads(1)


def main():
    dist.init_process_group(sys.argv[1])
    rank = dist.get_rank()
    net = nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 5))
    model = DistributedDataParallel(net, bucket_cap_mb=0.1, gradient_as_bucket_view=True)
    if "buckets" in sys.argv:
        model.register_comm_hook(libdist.torch.Buckets(), libdist.torch.shared_buckets)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    data = torch.Generator().manual_seed(rank + 7)
    for step in range(50):
        x = torch.randn(16, 20, generator=data)
        loss = nn.functional.cross_entropy(model(x), x[:, :5].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"{step} {mean.item() / dist.get_world_size():.9g}", flush=True)
    dist.destroy_process_group()


main()

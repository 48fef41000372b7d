# SPDX-License-Identifier: BSD-3-Clause
"""Data-parallel training, similar to PyTorch's tutorial, over any backend.

    torchrun --nproc-per-node 2 examples/pytorch/ddp_tutorial.py --dist-backend libdist
"""
import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import libdist.torch  # registers backend "libdist"


def dataset():
    torch.manual_seed(0)
    inputs = torch.randn(4096, 64)
    return TensorDataset(inputs, (inputs @ torch.randn(64, 10)).argmax(1))


def train(model, loader, sampler, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for step, (inputs, labels) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mean = loss.detach()
            dist.all_reduce(mean)
            if dist.get_rank() == 0:
                print(f"epoch {epoch} step {step} loss {mean / dist.get_world_size():.7f}")


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--dist-backend", default="libdist")
    options.add_argument("--epochs", type=int, default=3)
    options = options.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(options.dist_backend)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    data = dataset()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    begin = time.perf_counter()
    train(DistributedDataParallel(model), loader, sampler, options.epochs)
    if dist.get_rank() == 0:
        print(f"{options.dist_backend}: {time.perf_counter() - begin:.2f} s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

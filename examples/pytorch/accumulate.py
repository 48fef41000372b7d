# SPDX-License-Identifier: BSD-3-Clause
"""Gradient accumulation, clipping and a sharded optimizer (ZeRO-1), over any backend.

    torchrun --nproc-per-node 2 examples/pytorch/accumulate.py --dist-backend libdist
"""
import argparse
import contextlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import libdist.torch  # registers backend "libdist"


def batch(step, size=16):
    """Returns this rank's part of a batch that depends only on the step."""
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(dist.get_world_size(), size, 32, generator=generator)[dist.get_rank()]
    return inputs, inputs.square().mean(1, keepdim=True).tanh()


def update(model, optimizer, step, accumulate, clip):
    """Runs one update with the gradients of `accumulate` batches; only the last batch communicates.
    """
    total = torch.zeros(1)
    for part in range(accumulate):
        last = part == accumulate - 1
        with contextlib.nullcontext() if last else model.no_sync():
            inputs, wanted = batch(step * accumulate + part)
            loss = nn.functional.mse_loss(model(inputs), wanted) / accumulate
            loss.backward()
            total += loss.detach()
    norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size(), norm.item()


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--dist-backend", default="libdist")
    options.add_argument("--steps", type=int, default=50)
    options.add_argument("--accumulate", type=int, default=4)
    options.add_argument("--clip", type=float, default=0.05)
    options = options.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(options.dist_backend)
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))
    model = DistributedDataParallel(net)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
    begin = time.perf_counter()
    for step in range(options.steps):
        loss, norm = update(model, optimizer, step, options.accumulate, options.clip)
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss:.7f} norm {norm:.5f}")
    if dist.get_rank() == 0:
        print(f"{options.dist_backend}: {time.perf_counter() - begin:.2f} s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

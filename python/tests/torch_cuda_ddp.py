# SPDX-License-Identifier: BSD-3-Clause
"""Run by each rank: DDP and FSDP on GPUs have the same losses over libdist as over PyTorch's nccl.

Prints the time of a step and of a call for both backends. With one rank, also compares with
training without DDP.
"""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import libdist.torch

STEPS = 60


def net():
    torch.manual_seed(1)
    layers = [nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(4)]
    return nn.Sequential(*layers, nn.Linear(1024, 10)).cuda()


def train(model):
    """Returns the losses, and the time of a step in microseconds."""
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    torch.manual_seed(dist.get_rank() + 7)
    x, labels = torch.randn(64, 1024, device="cuda"), torch.randint(10, (64,), device="cuda")
    found = []
    for step in range(STEPS):
        if step == STEPS // 3:
            torch.cuda.synchronize()
            start = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    torch.cuda.synchronize()
    step = (time.perf_counter() - start) / (STEPS - STEPS // 3) * 1e6
    found = torch.stack(found).cpu()
    assert found[-1] < found[0], found
    return found, step


def ddp(**options):
    return train(DistributedDataParallel(net(), bucket_cap_mb=2, **options))


def fsdp():
    """FSDP version 2."""
    model = net()
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return train(model)


def call(count=2000):
    """Returns the host's time for a call in microseconds."""
    x = torch.ones(16, device="cuda")
    for repeat in range(count + 100):
        if repeat == 100:
            torch.cuda.synchronize()
            start = time.perf_counter()
        dist.all_reduce(x, dist.ReduceOp.MAX)
    took = (time.perf_counter() - start) / count * 1e6
    torch.cuda.synchronize()
    return took


def over(backend):
    """Returns the losses of all trainings with a backend; prints the times."""
    alone = {} if "RANK" in os.environ else {"init_method": "tcp://127.0.0.1:0", "rank": 0, "world_size": 1}
    dist.init_process_group(backend, **alone)
    ways = {
        "DDP": ddp(),
        "DDP, views": ddp(gradient_as_bucket_view=True),
        "DDP, static": ddp(static_graph=True),
        "FSDP": fsdp(),
    }
    if dist.get_world_size() == 1:
        ways["plain"] = train(net())
    cost = call()
    if dist.get_rank() == 0:
        steps = ", ".join(f"{name} {step:.0f}" for name, (_, step) in ways.items())
        print(f"{backend}: us a step: {steps}; a call {cost:.1f}", flush=True)
    dist.destroy_process_group()
    return {name: losses for name, (losses, _) in ways.items()}


def main():
    if not torch.cuda.is_available():
        print("SKIP: no CUDA")
        sys.exit(77)
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    expected, found = over("nccl"), over("libdist")
    for name, losses in found.items():
        torch.testing.assert_close(losses, expected[name], rtol=1e-4, atol=1e-5)
        if "plain" in found:
            torch.testing.assert_close(losses, found["plain"], rtol=1e-4, atol=1e-5)
    over("nccl")
    over("libdist")


main()

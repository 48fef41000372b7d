# SPDX-License-Identifier: BSD-3-Clause
"""Supported arrays: dtypes, DLPack, the buffer protocol; also spawn and communicators."""
import array
import os

import pytest

import libdist as dist
from libdist import buffers
from libdist.buffers import DTYPES, dtype_of, look

numpy = pytest.importorskip("numpy")


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "bfloat16"])
def test_dtypes(name):
    found = look(numpy.zeros((2, 3), name), "array")
    assert found.dtype == DTYPES[name] == dtype_of(numpy.dtype(name)) == dtype_of(name)
    assert found.count == 6


def test_scalar_types():
    assert dtype_of(numpy.float32) == DTYPES["float32"]
    assert dtype_of(bool) == DTYPES["bool"]


def test_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert look(numpy.zeros(3, ml_dtypes.bfloat16), "array").dtype == DTYPES["bfloat16"]
    assert dist.empty(3, "bfloat16").dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("code", "bBhHiIlLqQfd")
def test_array_module(code):
    data = array.array(code, [1, 2, 3])
    kind = "float" if code in "fd" else "int" if code.islower() else "uint"
    if data.itemsize == 2 and kind != "float":
        with pytest.raises(dist.InvalidArgumentError, match="format"):
            look(data, "array")
    else:
        assert look(data, "array").dtype == DTYPES[f"{kind}{8 * data.itemsize}"]
        assert look(data, "array").address == data.buffer_info()[0]


class OnlyDlpack:
    """An array of another library."""

    def __init__(self, inner):
        self.inner = inner

    def __dlpack__(self, **options):
        return self.inner.__dlpack__(**options)


def test_dlpack():
    inner = numpy.arange(6, dtype="float32").reshape(2, 3)
    found = look(OnlyDlpack(inner), "array")
    assert found.address == inner.ctypes.data and found.count == 6
    assert found.dtype == DTYPES["float32"]
    with pytest.raises(dist.InvalidArgumentError, match="contiguous"):
        look(OnlyDlpack(inner.T), "array")
    with dist.init_process_group("self") as group:
        group.all_reduce(inner, OnlyDlpack(numpy.empty_like(inner)))


class OldDlpack(OnlyDlpack):
    """An array whose library supports only DLPack before version 1."""

    def __dlpack__(self):
        return self.inner.__dlpack__()


def test_dlpack_read_only():
    inner = numpy.arange(6, dtype="float32")
    assert look(OldDlpack(inner), "array").count == 6
    assert look(OldDlpack(inner), "out", write=True).count == 6
    with pytest.raises(dist.InvalidArgumentError, match="read-only"):
        look(OldDlpack(inner), "array", write=True)
    inner.flags.writeable = False
    with pytest.raises(dist.InvalidArgumentError, match="read-?only"):
        look(OnlyDlpack(inner), "array", write=True)


def test_dlpack_device():
    """Rejects memory that the library cannot read: here of Vulkan, device type 7."""
    inner = numpy.arange(6, dtype="float32")

    class Elsewhere(OnlyDlpack):
        def __dlpack__(self, **options):
            capsule = super().__dlpack__(**options)
            buffers._tensor_of(capsule, "array").device.kind = 7
            return capsule

    with pytest.raises(dist.InvalidArgumentError, match="neither of the CPU"):
        look(Elsewhere(inner), "array")


def test_torch():
    torch = pytest.importorskip("torch")
    tensor = torch.ones(3, dtype=torch.bfloat16)
    found = look(tensor, "array")
    assert (found.address, found.dtype) == (tensor.data_ptr(), DTYPES["bfloat16"])
    assert look(OnlyDlpack(tensor), "array")[:3] == found[:3]
    with dist.init_process_group("self") as group:
        assert group.all_gather(tensor).shape == (1, 3)


def test_empty_arrays():
    with dist.init_process_group("self") as group:
        assert group.all_reduce(numpy.zeros(0)).size == 0
        assert dist.empty((0, 3)).shape == (0, 3)


class Communicator:
    """The part of an mpi4py communicator that is used, for one rank."""

    def Get_rank(self):  # pylint: disable=invalid-name  # mpi4py's name
        return 0

    def Get_size(self):  # pylint: disable=invalid-name
        return 1

    def allgather(self, data):
        return [data]


def test_group_from_comm():
    with dist.group_from_comm(Communicator()) as group:
        assert group.all_reduce(numpy.ones(2))[0] == 1


def environment(rank, text):
    assert os.environ["RANK"] == str(rank) and text == "given"
    with dist.init_process_group() as group:
        assert group.rank == rank and group.size == 3


def broken_batch(rank):
    group = dist.init_process_group(timeout=30)
    if rank == 0:
        with pytest.raises(KeyError):
            with dist.batch():
                group.recv(numpy.zeros(4), 1)
                raise KeyError("the program's own")
    else:
        with pytest.raises(dist.AbortedError):
            group.recv(numpy.zeros(4), 0)


def test_batch_that_raises():
    dist.spawn(broken_batch, nprocs=2)


def talkative(_):
    print("said before")
    raise KeyError("after")


def test_failure_keeps_output(capfd, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    with pytest.raises(dist.SpawnError):
        dist.spawn(talkative)
    assert "said before" in capfd.readouterr().out


def test_spawn():
    dist.spawn(environment, ("given",), 3)

# SPDX-License-Identifier: BSD-3-Clause
"""An argument of the wrong type or range is rejected with its name, before anything starts."""
import sys

import pytest

import libdist as dist

numpy = pytest.importorskip("numpy")


@pytest.fixture(name="group", scope="module")
def fixture_group():
    with dist.init_process_group("self") as group:
        yield group


def x():
    return numpy.ones(4, "float32")


CALLS = [
    ("root", lambda group: group.broadcast(x(), root=None)),
    ("root", lambda group: group.broadcast(x(), root="0")),
    ("root", lambda group: group.broadcast(x(), root=0.7)),
    ("peer", lambda group: group.isend(x(), None)),
    ("tag", lambda group: group.isend(x(), 0, None)),
    ("counts", lambda group: group.all_gather_v(x(), None)),
    ("counts", lambda group: group.all_gather_v(x(), ["4"])),
    ("counts", lambda group: group.all_gather_v(x(), [4.0])),
    ("in_counts", lambda group: group.all_to_all_v(x(), [1 << 64], [4])),
    ("in_offsets", lambda group: group.all_to_all_v(x(), [4], [4], in_offsets=[1 << 63])),
    ("arrays", lambda group: group.all_reduce_coalesced(None)),
    ("ranks", lambda group: group.new_group(None)),
    ("ranks", lambda group: group.new_group(["a"])),
    ("color", lambda group: group.split("a")),
    ("backend", lambda group: group.dup(backend=3)),
    ("timeout", lambda group: group.dup(timeout=-1)),
    ("timeout", lambda group: group.dup(timeout=float("nan"))),
    ("timeout", lambda group: group.monitored_barrier("1")),
    ("timeout", lambda group: group.all_reduce(x(), async_op=True).wait("1")),
    ("function", lambda group: group.all_reduce(x(), async_op=True).add_done_callback(None)),
    ("stream", lambda group: group.set_stream("a")),
    ("backend", lambda _: dist.init_process_group(3)),
    ("init_method", lambda _: dist.init_process_group(init_method="tcp://a\0b:1")),
    ("rank", lambda _: dist.init_process_group(rank=1 << 33, world_size=1)),
    ("world_size", lambda _: dist.init_process_group(rank=0, world_size="1")),
    ("all_gather", lambda _: dist.init_process_group(all_gather=lambda _: None, rank=0, world_size=2)),
    ("comm", lambda _: dist.group_from_comm(None)),
    ("shape", lambda _: dist.empty(-1)),
    ("shape", lambda _: dist.empty(1.5)),
    ("shape", lambda _: dist.empty((1 << 40, 1 << 40))),
    ("function", lambda _: dist.create_op(None)),
    ("factor", lambda _: dist.premul_sum("a")),
    ("path", lambda _: dist.flight_dump(3)),
    ("nprocs", lambda _: dist.spawn(print, nprocs=0)),
    ("function", lambda _: dist.spawn(None)),
]


@pytest.mark.parametrize("name, call", CALLS)
def test_refused(group, name, call):
    with pytest.raises(dist.InvalidArgumentError, match=f"^{name}: "):
        call(group)


def test_callback_that_raises(group, capsys, monkeypatch):
    """The default hook reports the exception, and the next callback is called."""
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    called = []
    work = group.all_reduce(x(), async_op=True)

    def raises(_):
        raise KeyError("of a callback")

    work.add_done_callback(raises)
    work.add_done_callback(called.append)
    work.wait()
    assert called == [work]
    assert "of a callback" in capsys.readouterr().err


def test_torch():
    torch = pytest.importorskip("torch")
    with dist.init_process_group("self") as group:
        for wrong, why in [
            (torch.zeros(4, 4).to_sparse(), "sparse"),
            (torch.zeros(4, device="meta"), "meta"),
            (torch.zeros(4, 4)[:, 1], "not contiguous"),
            (torch.zeros(1, dtype=torch.cfloat).conj().imag, "not contiguous"),
        ]:
            with pytest.raises(dist.InvalidArgumentError, match=f"array: .*{why}"):
                group.all_reduce(wrong)
        assert group.all_reduce(torch.nn.Parameter(torch.ones(2))).sum() == 2

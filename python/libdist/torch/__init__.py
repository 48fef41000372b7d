# SPDX-License-Identifier: BSD-3-Clause
"""libdist as a backend of torch.distributed.

    import libdist.torch
    torch.distributed.init_process_group("libdist")
"""
import torch.distributed as _dist
from libdist_replace import replace

from . import _collectives, _cuda, _cuda_work, _group, _monitor, _running, _tensors, _work
from ._buckets import Buckets, shared_buckets
from ._eager import run_eagerly
from ._group import DeviceBackend, ProcessGroup, SUPPORTS_DEVICES, mixing_obstacle
from ._group import create as _create, create_as_gloo as _create_as_gloo
from ._shared import shared
from ._work import Work

run_eagerly(_collectives, _cuda, _cuda_work, _group, _monitor, _running, _tensors, _work)
for _name, _function in ("libdist", _create), ("libdist_gloo", _create_as_gloo):
    if _name.upper() not in _dist.Backend._plugins:
        _dist.Backend.register_backend(_name, _function, extended_api=True, devices=["cpu", "cuda"])

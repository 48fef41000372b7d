# SPDX-License-Identifier: BSD-3-Clause
"""libdist as a backend of torch.distributed.

    import libdist.torch
    torch.distributed.init_process_group("libdist")
"""
import torch.distributed as _dist

from . import _collectives, _cuda, _cuda_work, _group, _monitor, _running, _tensors, _work
from ._buckets import Buckets, shared_buckets
from ._eager import run_eagerly
from ._group import DeviceBackend, ProcessGroup, create as _create
from ._work import Work

run_eagerly(_collectives, _cuda, _cuda_work, _group, _monitor, _running, _tensors, _work)
if "LIBDIST" not in _dist.Backend._plugins:
    _dist.Backend.register_backend("libdist", _create, extended_api=True, devices=["cpu", "cuda"])

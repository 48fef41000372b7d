# SPDX-License-Identifier: BSD-3-Clause
"""libdist as a backend of torch.distributed.

    import libdist.torch
    torch.distributed.init_process_group("libdist")
"""
import torch.distributed as _dist

from ._buckets import Buckets, shared_buckets
from ._group import DeviceBackend, ProcessGroup, create as _create
from ._work import Work

if "LIBDIST" not in _dist.Backend._plugins:
    _dist.Backend.register_backend("libdist", _create, extended_api=True, devices=["cpu", "cuda"])

# SPDX-License-Identifier: BSD-3-Clause
"""libdist as a backend of torch.distributed.

    import libdist.torch
    torch.distributed.init_process_group("libdist")
"""
# pylint: disable=wrong-import-position  # the modules below require PyTorch 2.6
try:
    import torch as _torch
    import torch.distributed as _dist
except ModuleNotFoundError:
    raise ImportError(
        "libdist.torch requires PyTorch 2.6 or later, and it is not installed: pip install torch"
    ) from None

if not hasattr(getattr(_dist, "ProcessGroup", None), "_set_default_backend"):
    raise ImportError(
        f"libdist.torch requires PyTorch 2.6 or later, not {_torch.__version__}: pip install -U torch"
    )

from libdist_torch import register, replace

from . import _collectives, _cuda, _cuda_work, _group, _monitor, _running, _tensors, _work
from ._buckets import Buckets, shared_buckets
from ._eager import run_eagerly
from ._group import (
    SUPPORTS_DEVICES,
    DeviceBackend,
    GlooDeviceBackend,
    GlooProcessGroup,
    ProcessGroup,
    create,
    mixing_obstacle,
)
from ._shared import shared
from ._work import Work

run_eagerly(_collectives, _cuda, _cuda_work, _group, _monitor, _running, _tensors, _work)
register()

# SPDX-License-Identifier: BSD-3-Clause
"""Registers libdist as a backend of torch.distributed, and lets it serve groups of gloo on request.

PyTorch 2.5 and later calls load() at the end of `import torch`, through the package's entry point
in torch.backends. The package libdist, whose import loads the library, is imported when the first
group is created. Therefore this module is not part of the package.

    LIBDIST_REPLACE=gloo torchrun --nproc-per-node 2 train.py
"""
import os
import sys

_VARIABLE = "LIBDIST_REPLACE"
_REPORT = "LIBDIST_REPORT"
# The module of torch that refuses gloo by name for a feature that works with libdist.
_REFUSES_GLOO = "torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook"
_MISSING_CHECK_SECONDS = 0.5


def load():
    """Registers the backend, and replaces gloo if the environment requests it."""
    register()
    name = os.environ.get(_VARIABLE)
    if name:
        replace(name)


def register():
    """Registers the backend libdist, and libdist_gloo, its form for groups of gloo."""
    import torch.distributed

    if not torch.distributed.is_available():
        return
    backend = torch.distributed.Backend
    for name, function in ("libdist", _create), ("libdist_gloo", _create_as_gloo):
        if name.upper() not in backend._plugins:
            backend.register_backend(name, function, extended_api=True, devices=["cpu", "cuda"])


def _create(options, backend_options):
    del backend_options
    from libdist.torch import DeviceBackend, ProcessGroup, create

    return create(options, sys._getframe(1), ProcessGroup, DeviceBackend)


def _create_as_gloo(options, backend_options):
    del backend_options
    from libdist.torch import GlooDeviceBackend, GlooProcessGroup, create

    return create(options, sys._getframe(1), GlooProcessGroup, GlooDeviceBackend)


def replace(name="gloo"):
    """Creates all later CPU process groups of the backend `name` with libdist; all ranks must call
    it.

    `name` must be "gloo". A group for which not all ranks can use libdist is created with gloo, and
    its first rank prints the reason. Calling this function again has no effect.
    """
    if name.lower() != "gloo":
        raise ValueError(f"{_VARIABLE} or replace(): libdist replaces only gloo, not {name!r}: set it to gloo")
    import torch.distributed

    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        return  # no program can create such groups
    from torch.distributed import distributed_c10d as c10d

    if not hasattr(c10d._new_process_group_helper, "_libdist_report"):
        c10d._new_process_group_helper = _helper(c10d)
        torch.distributed.get_backend = _get_backend(c10d)


def _helper(c10d):
    """Returns the replacement of torch's function that creates all groups."""
    import functools
    import inspect

    original = c10d._new_process_group_helper
    signature = inspect.signature(original)
    report = _Report()

    @functools.wraps(original)
    def create(*args, **kwargs):
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        given = call.arguments
        devices = _devices_of_gloo(c10d, given)
        if not devices:
            return original(*args, **kwargs)
        rank, size = given["group_rank"], given["group_size"]
        store = c10d.PrefixStore(f"{given['group_name']}/", given["store"])
        reasons = _agree(c10d, store, rank, size, next(iter(devices)), _obstacle(devices))
        if reasons:
            report.add_gloo(given["group_name"], rank, size, reasons)
            return original(*args, **kwargs)
        backend = given["backend"]
        shown = str(c10d.BackendConfig(c10d.Backend(backend)))
        given["backend"] = ",".join(
            f"{device}:{'libdist_gloo' if name == 'gloo' else name}" for device, name in devices.items()
        )
        group, prefix_store = original(*call.args, **call.kwargs)
        # get_backend() and torch's own code see the name that the program used.
        c10d._world.pg_map[group] = (backend, prefix_store)
        c10d._world.pg_backend_config[group] = shown
        report.add_libdist(rank)
        return group, prefix_store

    create._libdist_report = report
    return create


def _get_backend(c10d):
    """Returns the replacement of torch.distributed.get_backend, with one exception from its result.
    """
    import functools

    original = c10d.get_backend

    @functools.wraps(original)
    def get_backend(group=None):
        name = original(group)
        if name == "gloo" and sys._getframe(1).f_globals.get("__name__") == _REFUSES_GLOO:
            group = group or c10d._get_default_group()
            return getattr(group, "_registered_name", name)
        return name

    return get_backend


def _devices_of_gloo(c10d, given):
    """Returns the backends by device of a group that is about to be created on this rank, or None
    if none of them is gloo.
    """
    ranks, tag = given["global_ranks_in_group"], given["pg_tag"]
    if ranks and c10d._get_default_group().rank() not in ranks:
        return None  # this rank is not in the group
    if tag and c10d._find_pg_by_ranks_and_tag(tag, ranks):
        return None  # torch returns an existing group
    try:
        devices = c10d.BackendConfig(c10d.Backend(given["backend"])).get_device_backend_map()
    except (KeyError, ValueError):
        return None  # torch reports the error
    return devices if "gloo" in devices.values() else None


def _obstacle(devices):
    """Returns why this rank cannot use libdist for a group, or an empty string."""
    if os.environ.get("TORCH_DISTRIBUTED_USE_TORCHCOMMS"):
        return "TORCH_DISTRIBUTED_USE_TORCHCOMMS is set: unset it to use libdist"
    try:
        import libdist.torch as package
    except ImportError as error:
        return str(error)
    return package.mixing_obstacle(set(devices.values()) - {"gloo"})


def _agree(c10d, store, rank, size, device, obstacle):
    """Returns the obstacles of all ranks by rank, after each has stored its own.

    A rank without the variable creates a group of gloo, which is an error. Such a rank is noticed
    by its address in the store, under the key of torch's gloo. To end its wait for the other ranks,
    an invalid address of this rank is stored, which gloo rejects.
    """
    import time

    # The store may outlive a group, so each creation of a group has its own keys.
    turn = f"libdist/{store.add(f'libdist/{rank}', 1)}"
    store.set(f"{turn}/{rank}", obstacle or "-")
    gloo = c10d.PrefixStore(f"{device}/", store)
    obstacles = {}
    begin = time.monotonic()
    for peer in range(size):
        pause = 0.001
        while not store.check([f"{turn}/{peer}"]):
            waited = time.monotonic() - begin
            if waited > _MISSING_CHECK_SECONDS and gloo.check([f"0/{peer}"]):
                gloo.set(f"0/{rank}", "\0" * 17)
                raise RuntimeError(
                    f"{_VARIABLE}=gloo is set on rank {rank} of a group of {size}, but not on rank {peer}:"
                    " set it on all ranks or on none"
                )
            if waited > store.timeout.total_seconds():
                break  # get() reports the timeout
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        text = store.get(f"{turn}/{peer}").decode()
        if text != "-":
            obstacles[peer] = text
    return obstacles


class _Report:
    """Counts the groups, and prints the counts at exit if the environment requests it."""

    def __init__(self):
        self.libdist = 0
        self.gloo = {}  # number of groups by reason
        self.rank = None  # of this process in the first group

    def add_libdist(self, rank):
        """Counts a group that libdist serves."""
        self._prepare(rank)
        self.libdist += 1

    def add_gloo(self, name, rank, size, obstacles):
        """Counts a group that gloo serves; its first rank prints the reason."""
        self._prepare(rank)
        peer, reason = next(iter(obstacles.items()))
        who = "all ranks" if len(obstacles) == size else f"rank {peer}"
        text = f"{who}: {' '.join(reason.split())}"
        if rank == 0 and text not in self.gloo:
            _print_line(f"gloo serves group {name} of {size} ranks, not libdist: {text}")
        self.gloo[text] = self.gloo.get(text, 0) + 1

    def _prepare(self, rank):
        """Registers the report when the first group is counted."""
        if self.rank is not None:
            return
        self.rank = rank
        if os.environ.get(_REPORT, "0") in ("", "0"):
            return
        import atexit
        import multiprocessing.util

        if multiprocessing.parent_process() is None:
            atexit.register(self._print)
        else:  # a forked child skips atexit
            multiprocessing.util.Finalize(None, self._print, exitpriority=-100)

    def _print(self):
        parts = [f"{self.libdist} by libdist"]
        parts += [f"{count} by gloo ({text})" for text, count in self.gloo.items()]
        _print_line(f"process groups of gloo on rank {self.rank}: {', '.join(parts)}")


def _print_line(text):
    print(f"libdist: {text}", file=sys.stderr, flush=True)

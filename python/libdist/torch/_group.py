# SPDX-License-Identifier: BSD-3-Clause
"""The process group for torch.distributed; its ranks find each other through torch's store."""
import itertools
import os
import sys
import warnings
import weakref
from datetime import timedelta
from typing import Any, Dict, Iterable, List, Optional, Sequence

import torch
from torch.distributed import ProcessGroup as _ProcessGroup

from .. import init_process_group
from ..errors import Error, InvalidArgumentError
from ..group import Group
from ..work import EXIT_SECONDS
from ._collectives import Collectives
from ._cuda import Cuda
from ._running import TORCH_TIMEOUT
from ._tell import before_exit
from ._work import Several, Work

_Backend = torch._C._distributed_c10d.Backend


def _supports_devices() -> bool:
    """Returns whether Python can create a backend for one device; torch 2.11 and older only support
    process groups.
    """
    try:
        _Backend(0, 1)
    except TypeError:
        return False
    return True


SUPPORTS_DEVICES = _supports_devices()


def mixing_obstacle(others: Iterable[str]) -> str:
    """Returns why PyTorch cannot use libdist and other backends, by name, for different devices of
    a group, or an empty string.
    """
    types = torch.distributed.Backend.backend_type_map
    custom = _ProcessGroup.BackendType.CUSTOM
    for name in others:
        if not SUPPORTS_DEVICES:
            return (
                f"PyTorch {torch.__version__} accepts a Python backend only for all devices of a group,"
                f" and this group also has {name}: install PyTorch 2.15"
            )
        if types.get(name, custom) == custom:
            return f"PyTorch accepts only one backend of its type CUSTOM in a group, and {name} is another one"
    return ""


_instances: "weakref.WeakSet[_GroupBase]" = weakref.WeakSet()


def _leave() -> None:
    """Ends all works, because no thread of the library may use memory or call the interpreter after
    its end.
    """
    for life in list(_instances):
        for work in list(life._works.values()):
            try:
                if not work.is_completed():
                    life.abort()
                work.wait(timedelta(seconds=EXIT_SECONDS))
            except Exception:  # pylint: disable=broad-except  # exit in any case
                pass


before_exit(_leave)


def _devices() -> List[torch.device]:
    names = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    return [torch.device(name) for name in names]


class _GroupBase(Collectives):
    """The common part of a process group and a backend for one device."""

    def _begin(self, group: Group, timeout: timedelta, cuda: Cuda) -> None:
        self._group = group
        self._timeout = timeout
        self._cuda = cuda
        self._works: Dict[int, Work] = {}
        _instances.add(self)

    def shutdown(self) -> None:
        """Leaves the group. Ignores errors of other ranks that have left already.

        A receive without a message, or a message that is not received within EXIT_SECONDS, is
        abandoned, which aborts the group.
        """
        for work in list(self._works.values()):
            try:
                if work._source is not None and not work.is_completed():
                    self.abort()
                work.wait(timedelta(seconds=EXIT_SECONDS) if work._is_message else None)
            except Exception:  # pylint: disable=broad-except  # nobody is waiting for it
                if not work.is_completed():
                    self.abort()
        self._cuda.destroy()
        try:
            self._group.destroy()
        except Error:
            pass

    def abort(self) -> None:
        """Ends the group on all its ranks."""
        self._cuda.abort()
        self._group.abort()

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of this rank's later calls."""
        self._group.set_timeout(timeout)
        self._timeout = timeout

    _set_default_timeout = set_timeout

    def eager_connect_single_device(self, device: torch.device) -> None:
        """Called if init_process_group was given a device_id."""
        if device.type == "cuda":
            self._cuda.connect(device)

    def perform_nocolor_split(self, device: Any) -> None:
        """Called on ranks that are not in a new group; does nothing."""

    def _set_sequence_number_for_group(self) -> None:
        """Does nothing, because the library counts operations itself."""

    def _get_sequence_number_for_group(self) -> int:
        """Returns 0, because the library counts operations itself."""
        return 0

    def _wait_for_pending_works(self) -> None:
        for work in list(self._works.values()):
            work.wait()

    _registered_name = "libdist"
    _shown_name = "libdist"

    def getBackendName(self) -> str:  # pylint: disable=invalid-name  # torch's name
        """Returns the name that torch's C++ code sees, which casts a backend with the name gloo to
        its own class.
        """
        return "libdist"

    def name(self) -> str:
        """Returns the name of the backend that programs see."""
        return self._shown_name

    def _get_backend_name(self) -> str:
        return self._shown_name

    @property
    def supports_splitting(self) -> bool:
        """True: split_group is implemented."""
        return True

    @property
    def supports_coalescing(self) -> bool:
        """False: sends and receives run concurrently without a batch."""
        return False


class DeviceBackend(_GroupBase, _Backend):
    """The backend of a process group for some devices."""

    def __init__(self, group: Group, timeout: timedelta, cuda: Cuda):
        _Backend.__init__(self, group.rank, group.size)
        self._begin(group, timeout, cuda)
        self._options = _Backend.Options("libdist", timeout)

    @property
    def options(self) -> Any:
        """The options of the backend; there are none to choose."""
        return self._options


class ProcessGroup(_GroupBase, _ProcessGroup):
    """A process group without other backends.

    Python's calls reach it directly, without torch's dispatcher. For calls of torch to the backends
    of a group it contains one with the same ranks.
    """

    _device_backend = DeviceBackend

    def __init__(self, group: Group, timeout: timedelta):
        _ProcessGroup.__init__(self, group.rank, group.size)
        self._begin(group, timeout, Cuda(group, timeout))
        self._splits = itertools.count()
        if SUPPORTS_DEVICES:
            self._register_for(_devices())
        self._set_default_backend(_ProcessGroup.BackendType.CUSTOM)

    def _register_for(self, devices: List[torch.device]) -> None:
        backend = self._device_backend(self._group, self._timeout, self._cuda)
        backend._works = self._works
        for device in devices:
            self._register_backend(device, _ProcessGroup.BackendType.CUSTOM, backend)

    # torch stores name and description in the group's backends, of which there may be none.

    def setGroupName(self, name: str) -> None:  # pylint: disable=invalid-name  # torch's name
        """Sets the name with which torch finds the group."""
        self._group_name = name

    def getGroupName(self) -> str:  # pylint: disable=invalid-name  # torch's name
        """Returns the name with which torch finds the group."""
        return self._group_name

    def setGroupDesc(self, text: str) -> None:  # pylint: disable=invalid-name  # torch's name
        """Sets the program's description of the group."""
        self._group_desc = text

    def getGroupDesc(self) -> str:  # pylint: disable=invalid-name  # torch's name
        """Returns the program's description of the group."""
        return self._group_desc

    _group_name = _group_desc = ""

    @property
    def _device_types(self) -> List[torch.device]:
        return _devices()

    def _get_backend(self, device: Any) -> Any:
        return _ProcessGroup._get_backend(self, device) if SUPPORTS_DEVICES else self

    def size(self) -> int:
        """Returns the number of ranks."""
        return self._group.size

    def rank(self) -> int:
        """Returns this process's rank."""
        return self._group.rank

    def _start_coalescing(self, device: Any) -> None:
        """Begins a batch. Each of its calls is started separately."""
        del device
        self._coalesced = []

    def _end_coalescing(self, device: Any) -> Several:
        """Returns a Work for all calls of the batch; sends and receives may complete in any order.
        """
        del device
        works, self._coalesced = self._coalesced, None
        return Several(works or [])

    def split_group(
        self,
        new_ranks: Sequence[int],
        timeout: Optional[timedelta] = None,
        opts: Any = None,
        group_name: Optional[str] = None,
        group_desc: Optional[str] = None,
        device_types: Any = None,
    ) -> Optional["ProcessGroup"]:
        """Creates a group of some of the ranks."""
        del opts, device_types
        desc = group_desc or f"{self.getGroupDesc()}:split:{next(self._splits)}"
        if self._group.rank not in new_ranks:
            return None
        timeout = timeout or self._timeout
        made = type(self)(self._group.new_group(new_ranks, timeout=timeout), timeout)
        made._set_group_name(group_name or "")
        made._set_group_desc(desc)
        return made


class _AsGloo:
    """The part of a group that libdist serves in place of gloo: torch and programs that check for
    gloo take it for gloo.
    """

    _registered_name = "libdist_gloo"
    _shown_name = "gloo"

    @property
    def __class__(self) -> type:  # isinstance() accepts it as ProcessGroupGloo
        return torch.distributed.ProcessGroupGloo


class GlooDeviceBackend(_AsGloo, DeviceBackend):
    """A backend for some devices in place of gloo."""


class GlooProcessGroup(_AsGloo, ProcessGroup):
    """A process group in place of one of gloo."""

    _device_backend = GlooDeviceBackend


def _gather_by(store: Any, rank: int, size: int) -> Any:
    """Returns an all-gather through torch's store, with which the ranks find each other."""
    rounds = itertools.count()
    # The store may outlive a group, and the next group of the same ranks must not read its
    # addresses.
    join = store.add(f"libdist/joins/{rank}", 1)

    def gather(data: bytes) -> List[bytes]:
        turn = f"libdist/{join}/{next(rounds)}"
        store.set(f"{turn}/{rank}", data.hex())
        return [bytes.fromhex(store.get(f"{turn}/{r}").decode()) for r in range(size)]

    return gather


def _is_alone(options: Any, caller: Any, name: str) -> bool:
    """Returns whether the backend `name` is the only one of init_process_group, for all devices.

    Before torch 2.12 the options do not contain this information, so it is read from the variable
    backend_config of torch's function, which all versions have.
    """
    config = caller.f_locals.get("backend_config")
    if config is not None:
        return {name.lower() for name in config.get_device_backend_map().values()} == {name}
    process_group = getattr(options, "process_group", None)
    try:
        return process_group._get_backend_name().lower() in ("custom", name, "undefined")
    except (AttributeError, RuntimeError):
        return False


def create(options: Any, caller: Any, whole: type, part: type) -> Any:
    """Creates a group of torch.distributed, on the ranks of the group. Returns the object that
    torch's function, whose frame is `caller`, expects: a `whole` process group, or `part` of one,
    for some devices.
    """
    rank, size, timeout = options.group_rank, options.group_size, options.timeout
    # A timeout of the program takes precedence over DIST_TIMEOUT, which takes precedence over
    # torch's default.
    seconds = os.environ.get("DIST_TIMEOUT") if timeout == TORCH_TIMEOUT else None
    group = init_process_group(
        backend=os.environ.get("DIST_BACKEND", "gloo"),
        rank=rank,
        world_size=size,
        timeout=None if seconds else timeout,
        all_gather=_gather_by(options.store, rank, size),
    )
    if seconds:  # init_process_group has checked that it is a number
        timeout = timedelta(seconds=int(seconds))
    alone = _is_alone(options, caller, whole._registered_name)
    if SUPPORTS_DEVICES and not alone:
        config = caller.f_locals["backend_config"].get_device_backend_map()
        obstacle = mixing_obstacle(set(config.values()) - {whole._registered_name})
        if obstacle:
            raise InvalidArgumentError(f"backend: {obstacle}")
        return part(group, timeout, Cuda(group, timeout))
    if not alone:
        warnings.warn(
            f"libdist is used for all devices: torch {torch.__version__} accepts backends for single devices only from C++"
        )
    made = whole(group, timeout)
    device = caller.f_locals.get("device_id")
    if device is not None:  # torch only sets it on groups that it creates itself
        made.bound_device_id = device
    return made

# SPDX-License-Identifier: BSD-3-Clause
"""Finds libdist.so, and gives its functions the types that the header declares."""
import ctypes
import ctypes.util
import os
import subprocess
from pathlib import Path
from typing import Iterator

from . import _header

NAME = "libdist.so.0"


def _pkg_config() -> Iterator[str]:
    command = ["pkg-config", "--variable=libdir", "libdist"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return
    yield str(Path(found.stdout.strip()) / NAME)


def _candidates() -> Iterator[str]:
    """Where the library may be: beside this package, where the loader looks, where pkg-config says."""
    beside = Path(__file__).with_name(NAME)
    if beside.exists():
        os.environ.setdefault("DIST_PLUGIN_PATH", str(beside.parent / "dist"))
        yield str(beside)
    yield NAME
    yield from _pkg_config()


def _open() -> ctypes.CDLL:
    given = os.environ.get("LIBDIST")
    if given:
        return ctypes.CDLL(given)
    reasons = []
    for path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            reasons.append(str(error))
    raise ImportError(
        "libdist.so was not found: install it, or set LIBDIST to its path (" + "; ".join(reasons) + ")"
    )


def _declare(library: ctypes.CDLL) -> None:
    for name, (result, arguments) in _header.FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(
                f"{library._name} has no {name}: it is older than this package, {_header.VERSION}: "
                "install libdist and its Python package from one release"
            )
        function.restype, function.argtypes = result, arguments


lib = _open()
_declare(lib)

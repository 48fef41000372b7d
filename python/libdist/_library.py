# SPDX-License-Identifier: BSD-3-Clause
"""Loads libdist.so and sets the types of its functions."""
import ctypes
import ctypes.util
import os
import subprocess
from pathlib import Path
from typing import Iterator

from . import _header

NAME = "libdist.so.0"
_ADVICE = "Set LIBDIST to the path of libdist.so, or unset it to use the installed library"


def _pkg_config() -> Iterator[str]:
    command = ["pkg-config", "--variable=libdir", "libdist"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return
    yield str(Path(found.stdout.strip()) / NAME)


def _candidates() -> Iterator[str]:
    """Yields possible paths: next to this package, the loader's search path, pkg-config's libdir.
    """
    beside = Path(__file__).with_name(NAME)
    if beside.exists():
        yield str(beside)
    yield NAME
    yield from _pkg_config()


def _open() -> ctypes.CDLL:
    given = os.environ.get("LIBDIST")
    if given:
        try:
            return ctypes.CDLL(given)
        except OSError as error:
            raise ImportError(f"cannot load the library that LIBDIST names: {error}. {_ADVICE}") from None
    reasons = []
    for path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            reasons.append(str(error))
    raise ImportError(
        "libdist.so was not found: install it, or set LIBDIST to its path (" + "; ".join(reasons) + ")"
    )


def _not_libdist(path: str) -> str:
    """Returns why a shared library without libdist's functions cannot be used."""
    name, source = Path(path).name, " (LIBDIST)" if os.environ.get("LIBDIST") else ""
    kind = "a module of libdist" if name.startswith("dist_") else "not libdist: it has no dist_version()"
    return f"{path}{source} is {kind}. {_ADVICE}"


def _declare(library: ctypes.CDLL) -> None:
    if not hasattr(library, "dist_version"):
        raise ImportError(_not_libdist(library._name))
    for name, (result, arguments) in _header.FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(
                f"{library._name} has no {name}(): it is older than this package, {_header.VERSION}. "
                "Install libdist and its Python package from the same release"
            )
        function.restype, function.argtypes = result, arguments


lib = _open()
_declare(lib)

# SPDX-License-Identifier: BSD-3-Clause
"""python -m libdist.config: prints the flags that a C program needs to use the library of the wheel.

cc hello.c $(python -m libdist.config --cflags --libs) -o hello
"""
import argparse
import shlex
import sys
from pathlib import Path

from . import _library

_FOLDER = Path(__file__).parent
_ADVICE = "Use a wheel that contains it (pip install libdist, or make wheel)"


def _cflags() -> str:
    headers = _FOLDER / "include"
    if not headers.is_dir():
        sys.exit(
            f"libdist.config: this package contains no headers, and uses {_library.lib._name}. "
            f"{_ADVICE}, or the installed library's flags: pkg-config --cflags --libs libdist"
        )
    return "-I" + shlex.quote(str(headers))


def _libs() -> str:
    if not (_FOLDER / _library.NAME).exists():
        sys.exit(
            f"libdist.config: this package contains no library, and uses {_library.lib._name}. "
            f"{_ADVICE}, or the installed library's flags: pkg-config --cflags --libs libdist"
        )
    folder = shlex.quote(str(_FOLDER))
    return f"-L{folder} -l:{_library.NAME} -Wl,-rpath,{folder}"


def _preload(mpi: str) -> str:
    library = _FOLDER / "dist" / mpi / "libdist_mpi.so"
    if not library.exists():
        sys.exit(f"libdist.config: this package contains no {library}. {_ADVICE}")
    return str(library)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m libdist.config",
        description="Prints the flags that a C program needs to use the library of this package.",
    )
    parser.add_argument("--cflags", action="store_true", help="print the folder of the headers (-I)")
    parser.add_argument("--libs", action="store_true", help="print the library and its run path")
    parser.add_argument(
        "--preload",
        choices=("openmpi", "mpich"),
        help="print the path of libdist_mpi.so for LD_PRELOAD, for programs of this MPI",
    )
    options = parser.parse_args()
    words = []
    if options.cflags:
        words.append(_cflags())
    if options.libs:
        words.append(_libs())
    if options.preload:
        words.append(_preload(options.preload))
    if not words:
        parser.error("choose --cflags, --libs or --preload")
    print(*words)


if __name__ == "__main__":
    main()

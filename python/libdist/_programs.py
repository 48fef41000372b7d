# SPDX-License-Identifier: BSD-3-Clause
"""The console scripts distrun, dist_info and dist_bench: start the programs of the wheel."""
import os
import shutil
import sys
from pathlib import Path


def _start(name: str) -> None:
    packaged = Path(__file__).parent / "bin" / name
    program = str(packaged) if packaged.exists() else shutil.which(name)
    if not program:
        sys.exit(
            f"{name}: this package contains no programs, and PATH has no {name}: "
            "install libdist, or a wheel that contains it (pip install libdist)"
        )
    os.execv(program, [name, *sys.argv[1:]])


def distrun() -> None:
    _start("distrun")


def dist_info() -> None:
    _start("dist_info")


def dist_bench() -> None:
    _start("dist_bench")

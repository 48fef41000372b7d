# SPDX-License-Identifier: BSD-3-Clause
"""The console scripts distrun, dist_info and dist_bench: start the programs of the wheel."""
import os
import shutil
import sys
from pathlib import Path
from typing import Optional


def _installed(name: str) -> Optional[str]:
    """Returns the program of an installed libdist, which follows this console script in PATH."""
    script = Path(sys.argv[0]).resolve()
    folders = os.get_exec_path()
    own = [i for i, folder in enumerate(folders) if Path(folder).resolve() == script.parent]
    for folder in folders[own[-1] + 1 if own else 0 :]:
        found = shutil.which(name, path=folder)
        if found and Path(found).resolve() != script:
            return found
    return None


def _start(name: str) -> None:
    packaged = Path(__file__).parent / "bin" / name
    program = str(packaged) if packaged.exists() else _installed(name)
    if not program:
        sys.exit(
            f"{name}: this package contains no programs, and no installed {name} follows in PATH: "
            "install libdist, or install a wheel that contains it (pip install libdist)"
        )
    sys.stdout.flush()
    os.execv(program, [name, *sys.argv[1:]])


def distrun() -> None:
    _start("distrun")


def dist_info() -> None:
    _start("dist_info")


def dist_bench() -> None:
    _start("dist_bench")

# SPDX-License-Identifier: BSD-3-Clause
"""libdist/_header.py matches dist.h. Does not use the library. Run as a script or with pytest."""
import subprocess
import sys
from pathlib import Path

PYTHON = Path(__file__).resolve().parent.parent


def test_header_is_generated():
    command = [sys.executable, PYTHON / "generate", PYTHON.parent / "include/dist/dist.h"]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert made == (PYTHON / "libdist/_header.py").read_text(), (
        "python/libdist/_header.py differs from dist.h: run "
        "python/generate include/dist/dist.h >python/libdist/_header.py"
    )


if __name__ == "__main__":
    test_header_is_generated()

# SPDX-License-Identifier: BSD-3-Clause
"""Errors of the import if LIBDIST is not the path of libdist.so."""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import libdist


@pytest.fixture(name="folder")
def fixture_folder():
    with tempfile.TemporaryDirectory() as folder:  # tmp_path would not be removed
        yield Path(folder)


def error_with(path):
    """Imports the package with LIBDIST; returns the last line of the error."""
    failed = subprocess.run(
        [sys.executable, "-c", "import libdist"],
        env={**os.environ, "LIBDIST": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed.returncode == 1
    return failed.stderr.splitlines()[-1]


def test_missing(folder):
    text = error_with(folder / "libdist.so")
    assert text.startswith("ImportError: cannot load the library that LIBDIST names: ")
    assert f"{folder}/libdist.so: " in text and "No such file" in text and "unset it" in text


def test_no_library(folder):
    (folder / "libdist.so").write_text("not a library")
    text = error_with(folder / "libdist.so")
    assert text.startswith("ImportError: cannot load the library that LIBDIST names: ") and "unset it" in text


def test_another_library(folder):
    """Uses one file in place of a module, and of a library of another project."""
    other = Path(sys.modules["_ctypes"].__file__)
    for name, kind in ("dist_mpi.so", "a module of libdist"), ("libdist.so", "no dist_version()"):
        shutil.copy(other, folder / name)
        text = error_with(folder / name)
        assert f"{folder}/{name} (LIBDIST) is " in text and kind in text and "unset it" in text


def test_older(monkeypatch):
    monkeypatch.setitem(libdist._header.FUNCTIONS, "dist_of_tomorrow", (None, []))
    with pytest.raises(ImportError, match=r"no dist_of_tomorrow\(\): it is older than this package"):
        libdist._library._declare(libdist._library.lib)

# SPDX-License-Identifier: BSD-3-Clause
"""Settings that pyproject.toml cannot express: a wheel that contains the library is for one
platform.
"""
from pathlib import Path

from setuptools import setup

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel


class Wheel(bdist_wheel):
    """For any Python 3, and for this platform only if the wheel contains the library."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = not Path("libdist/libdist.so.0").exists()

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(cmdclass={"bdist_wheel": Wheel})

# SPDX-License-Identifier: BSD-3-Clause
"""Settings that pyproject.toml cannot express: a wheel that contains the library is for one
platform.
"""
from pathlib import Path

from setuptools import Distribution, setup

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel


class Package(Distribution):
    """Installed below platlib if it contains the library, else below purelib."""

    def has_ext_modules(self):
        return Path("libdist/libdist.so.0").exists()


class Wheel(bdist_wheel):
    """For any Python 3. setuptools chooses the platform by has_ext_modules()."""

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(distclass=Package, cmdclass={"bdist_wheel": Wheel})

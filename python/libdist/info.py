# SPDX-License-Identifier: BSD-3-Clause
"""python -m libdist.info: runs dist_info, which describes the library and this machine."""
from ._programs import dist_info

if __name__ == "__main__":
    dist_info()

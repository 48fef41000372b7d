# SPDX-License-Identifier: BSD-3-Clause
# Recipes for packages of a release. README.md in this directory lists where each has been tested.
EXTRA_DIST += \
	debian/changelog \
	debian/control \
	debian/copyright \
	debian/libdist-dev.install \
	debian/libdist-mpi-mpich.install \
	debian/libdist-mpi-openmpi.install \
	debian/libdist-nccl.install \
	debian/libdist-tools.install \
	debian/libdist-ucx.install \
	debian/libdist0.install \
	debian/libdist0.symbols \
	debian/rules \
	debian/source/format \
	debian/source/lintian-overrides \
	debian/tests/common.sh \
	debian/tests/compiled \
	debian/tests/control \
	debian/tests/mpi \
	debian/tests/plain_mpi.c \
	debian/tests/programs \
	debian/tests/python \
	packaging/conda/meta.yaml \
	packaging/rpm/libdist.spec \
	packaging/spack/package.py \
	scripts/check-packages

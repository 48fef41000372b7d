# SPDX-License-Identifier: BSD-3-Clause
# Training: how much of its communication is hidden, and how fast it is beside PyTorch's.
noinst_PROGRAMS += bench/training/overlap
bench_training_overlap_SOURCES = \
	bench/training/overlap.c
bench_training_overlap_CFLAGS = $(AM_CFLAGS) $(KERNEL_CFLAGS)
bench_training_overlap_LDADD = libcommon.la libdist.la

EXTRA_DIST += \
	bench/training/compare bench/training/pytorch.py \
	bench/training/scaling bench/training/zero

# SPDX-License-Identifier: BSD-3-Clause
# Programs to learn from. README.md shows the first.
noinst_PROGRAMS += examples/hello_all_reduce
examples_hello_all_reduce_SOURCES = examples/hello_all_reduce.c
examples_hello_all_reduce_LDADD = libdist.la

# SPDX-License-Identifier: BSD-3-Clause
# train_mnist's kernels compiled for the CPU: a module that takes the place of the real one, over
# the stand-in's driver.
if HAVE_SHARED
if HAVE_CXX17
check_LTLIBRARIES += tests/standin/kernels/train_mnist_cuda.la
endif
endif
tests_standin_kernels_train_mnist_cuda_la_SOURCES = \
	tests/standin/kernels/cublas.cc \
	tests/standin/kernels/cuda_on_host.h \
	tests/standin/kernels/runtime.cc \
	tests/standin/kernels/train.cc \
	train/gemm.c
tests_standin_kernels_train_mnist_cuda_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)
tests_standin_kernels_train_mnist_cuda_la_CFLAGS = $(train_cflags)
tests_standin_kernels_train_mnist_cuda_la_CXXFLAGS = -std=c++17 -O2 -ffp-contract=off -Wall -Wextra \
	-Wshadow -fvisibility=hidden -ftls-model=initial-exec -pthread $(DISTI_LDFLAGS)
tests_standin_kernels_train_mnist_cuda_la_LDFLAGS = $(module_ldflags) -Wl,-z,nodelete \
	-rpath $(abs_builddir)
tests_standin_kernels_train_mnist_cuda_la_LIBADD = $(CBLAS_LIBS) -ldl

# SPDX-License-Identifier: BSD-3-Clause
# train_mnist and train_cifar10. All but main is a library of its own, so that the unit tests can have it.
noinst_LTLIBRARIES += libtrain.la
libtrain_la_LIBTOOLFLAGS = $(static_only)
libtrain_la_SOURCES = \
	train/buffer.c train/buffer.h \
	train/comm.c train/comm.h \
	train/failure.c train/failure.h \
	train/hash.c train/hash.h \
	train/options.c train/options.h \
	train/options_facts.c \
	train/options_table.c \
	train/program.c \
	train/report.c train/report.h \
	train/task.c train/task.h

# The loops over arrays are marked for vectors; that needs no errno from sqrtf and no traps.
train_cflags = $(AM_CFLAGS) $(CBLAS_CFLAGS) $(JANSSON_CFLAGS) $(ZLIB_CFLAGS) \
	-fopenmp-simd -fno-math-errno -fno-trapping-math
libtrain_la_CFLAGS = $(train_cflags)
libtrain_la_LIBADD = libcommon.la libtopology.la $(JANSSON_LIBS)

train_libs = libtrain.la libdist.la $(CBLAS_LIBS) $(ZLIB_LIBS) -lm
bin_PROGRAMS += train_mnist train_cifar10
train_mnist_SOURCES = train/train_mnist.c
train_mnist_CFLAGS = $(train_cflags)
train_mnist_LDADD = $(train_libs)
train_cifar10_SOURCES = train/train_cifar10.c
train_cifar10_CFLAGS = $(train_cflags)
train_cifar10_LDADD = $(train_libs)

dist_man_MANS += man/train_mnist.1 man/train_cifar10.1

# SPDX-License-Identifier: BSD-3-Clause
# Unit tests of train_mnist, in one process.
train_tests = \
	tests/unit/train/test_blas \
	tests/unit/train/test_buffer \
	tests/unit/train/test_checkpoint \
	tests/unit/train/test_cifar10 \
	tests/unit/train/test_device \
	tests/unit/train/test_files \
	tests/unit/train/test_idx \
	tests/unit/train/test_layers \
	tests/unit/train/test_loader \
	tests/unit/train/test_mnist \
	tests/unit/train/test_optimizer \
	tests/unit/train/test_options \
	tests/unit/train/test_page \
	tests/unit/train/test_ranks \
	tests/unit/train/test_records \
	tests/unit/train/test_residual
check_PROGRAMS += $(train_tests)
TESTS += $(train_tests)

train_test_cppflags = $(AM_CPPFLAGS) -I$(top_srcdir) $(CMOCKA_CFLAGS) $(ZLIB_CFLAGS)
train_test_libs = libtrain.la $(unit_test_libs) $(CBLAS_LIBS) $(ZLIB_LIBS) -lm

tests_unit_train_test_blas_SOURCES = tests/unit/train/test_blas.c
tests_unit_train_test_blas_CPPFLAGS = $(train_test_cppflags)
tests_unit_train_test_blas_LDADD = $(train_test_libs)
tests_unit_train_test_buffer_SOURCES = tests/unit/train/test_buffer.c tests/unit/train/unit.h \
	tests/unit/core/alone.h
tests_unit_train_test_buffer_CPPFLAGS = $(train_test_cppflags)
tests_unit_train_test_buffer_LDADD = $(train_test_libs)
tests_unit_train_test_checkpoint_SOURCES = tests/unit/train/test_checkpoint.c tests/unit/train/unit.h
tests_unit_train_test_checkpoint_CPPFLAGS = $(train_test_cppflags)
tests_unit_train_test_checkpoint_LDADD = $(train_test_libs)
tests_unit_train_test_cifar10_SOURCES = tests/unit/train/test_cifar10.c tests/unit/train/unit.h
tests_unit_train_test_cifar10_CPPFLAGS = $(train_test_cppflags)
tests_unit_train_test_cifar10_LDADD = $(train_test_libs)
tests_unit_train_test_device_SOURCES = tests/unit/train/test_device.c tests/unit/train/unit.h
tests_unit_train_test_device_CPPFLAGS = $(train_test_cppflags)
tests_unit_train_test_device_LDADD = $(train_test_libs)
tests_unit_train_test_files_SOURCES = tests/unit/train/test_files.c tests/unit/train/unit.h
tests_unit_train_test_files_CPPFLAGS = $(train_test_cppflags)
tests_unit_train_test_files_LDADD = $(train_test_libs)
tests_unit_train_test_idx_SOURCES = tests/unit/train/test_idx.c tests/unit/train/unit.h
tests_unit_train_test_idx_CPPFLAGS = $(train_test_cppflags)
tests_unit_train_test_idx_LDADD = $(train_test_libs)
tests_unit_train_test_layers_SOURCES = tests/unit/train/test_layers.c tests/unit/train/unit.h
tests_unit_train_test_layers_CPPFLAGS = $(train_test_cppflags)
tests_unit_train_test_layers_LDADD = $(train_test_libs)
tests_unit_train_test_loader_SOURCES = tests/unit/train/test_loader.c tests/unit/train/unit.h
tests_unit_train_test_loader_CPPFLAGS = $(train_test_cppflags)
tests_unit_train_test_loader_LDADD = $(train_test_libs)
tests_unit_train_test_mnist_SOURCES = tests/unit/train/test_mnist.c tests/unit/train/unit.h
tests_unit_train_test_mnist_CPPFLAGS = $(train_test_cppflags)
tests_unit_train_test_mnist_LDADD = $(train_test_libs)
tests_unit_train_test_optimizer_SOURCES = tests/unit/train/test_optimizer.c tests/unit/train/unit.h
tests_unit_train_test_optimizer_CPPFLAGS = $(train_test_cppflags)
tests_unit_train_test_optimizer_LDADD = $(train_test_libs)
tests_unit_train_test_options_SOURCES = tests/unit/train/test_options.c tests/unit/train/unit.h
tests_unit_train_test_options_CPPFLAGS = $(train_test_cppflags)
tests_unit_train_test_options_LDADD = $(train_test_libs)
tests_unit_train_test_ranks_SOURCES = tests/unit/train/test_ranks.c tests/unit/train/unit.h
tests_unit_train_test_ranks_CPPFLAGS = $(train_test_cppflags)
tests_unit_train_test_ranks_LDADD = $(train_test_libs)
tests_unit_train_test_residual_SOURCES = tests/unit/train/test_residual.c tests/unit/train/unit.h
tests_unit_train_test_residual_CPPFLAGS = $(train_test_cppflags)
tests_unit_train_test_residual_LDADD = $(train_test_libs)
tests_unit_train_test_page_SOURCES = tests/unit/train/test_page.c tests/unit/train/unit.h
tests_unit_train_test_page_CPPFLAGS = $(train_test_cppflags)
tests_unit_train_test_page_LDADD = $(train_test_libs)
tests_unit_train_test_records_SOURCES = tests/unit/train/test_records.c tests/unit/train/unit.h
tests_unit_train_test_records_CPPFLAGS = $(train_test_cppflags)
tests_unit_train_test_records_LDADD = $(train_test_libs)

# SPDX-License-Identifier: BSD-3-Clause
# train_mnist and train_cifar10. Everything but main is a library, so that unit tests can link it.
noinst_LTLIBRARIES += libtrain.la
libtrain_la_LIBTOOLFLAGS = $(static_only)
libtrain_la_SOURCES = \
	train/arch_cnn.c \
	train/arch_mlp.c \
	train/arch_resnet20.c \
	train/checkpoint.c train/checkpoint.h \
	train/dataset.c train/dataset.h \
	train/device.c train/device.h \
	train/failure.c train/failure.h \
	train/file.c train/file.h \
	train/gemm.c train/gemm.h \
	train/kernel.h \
	train/layer.h \
	train/layers.c \
	train/model.c train/model.h \
	train/options.c train/options.h \
	train/page.c train/page.h \
	train/records.c train/records.h \
	train/rng.h \
	train/tile_body.h \
	train/trainer.c train/trainer.h \
	train/trainer_keep.c

# Vectorize loops over arrays: sqrtf must not set errno, and operations must not trap.
train_cflags = $(AM_CFLAGS) $(CBLAS_CFLAGS) $(JANSSON_CFLAGS) $(ZLIB_CFLAGS) \
	-fopenmp-simd -fno-math-errno -fno-trapping-math
libtrain_la_CFLAGS = $(train_cflags)
libtrain_la_LIBADD = libcommon.la libtopology.la $(JANSSON_LIBS)

train_libs = libtrain.la libdist.la $(CBLAS_LIBS) $(ZLIB_LIBS) -lm
bin_PROGRAMS += train_mnist train_cifar10
train_mnist_SOURCES = train/main.c
train_mnist_CPPFLAGS = $(AM_CPPFLAGS) -DTRAIN_TASK=task_mnist
train_mnist_CFLAGS = $(train_cflags)
train_mnist_LDADD = $(train_libs)
train_cifar10_SOURCES = train/main.c
train_cifar10_CPPFLAGS = $(AM_CPPFLAGS) -DTRAIN_TASK=task_cifar10
train_cifar10_CFLAGS = $(train_cflags)
train_cifar10_LDADD = $(train_libs)

dist_man_MANS += man/train_mnist.1 man/train_cifar10.1

# train_mnist's GPU kernels: a module that is loaded only for --device cuda. It links cuBLAS and CUDA's
# runtime, which loads the driver.
cuda_module_sources = train/cuda.cu
EXTRA_DIST += $(cuda_module_sources)

# Sources that the module shares with the program.
cuda_module_shared = train/dataset.h train/device.h train/kernel.h train/layer.h train/model.h train/rng.h

# No fused multiply-add and no fast divisions or square roots, so that results equal the CPU's.
cuda_module_flags = -std=c++17 -O2 -fmad=false $(NVCC_ARCHITECTURES) $(NVCC_WERROR) \
	-Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra -D_GNU_SOURCE -I$(abs_top_srcdir) -I$(abs_top_srcdir)/include

if HAVE_NVCC
# In the build tree the module is in the library's directory, where train_mnist also looks for it.
cudamoduledir = $(moduledir)
nodist_cudamodule_DATA = .libs/train_mnist_cuda.so
.libs/train_mnist_cuda.so: $(cuda_module_sources) $(cuda_module_shared)
	$(AM_V_GEN)$(MKDIR_P) .libs && cd $(srcdir) && $(NVCC) $(cuda_module_flags) $(NVCCFLAGS) \
		-shared -t 0 -o $(abs_builddir)/$@.tmp $(cuda_module_sources) -lcublas \
		-Xlinker -z,defs -Xlinker --exclude-libs=ALL && mv $(abs_builddir)/$@.tmp $(abs_builddir)/$@
endif

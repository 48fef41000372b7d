# SPDX-License-Identifier: BSD-3-Clause
# train_mnist's kernels for GPUs: a module that is loaded for --device cuda alone. It links CUDA's
# runtime itself, and cuBLAS; the driver comes with the runtime.
cuda_module_sources = \
	train/cuda/device.cu \
	train/cuda/layers.cu \
	train/cuda/open.cu \
	train/cuda/sums.cu
cuda_module_headers = \
	train/cuda/cuda.h \
	train/cuda/open.h
EXTRA_DIST += $(cuda_module_sources) $(cuda_module_headers)

# What the module shares with the program.
cuda_module_shared = train/model/anywhere.h train/data/batch.h train/device/device.h train/device/device_cuda.h \
	train/model/grid.h train/model/layer.h train/model/loss.h train/model/model.h train/model/optimizer.h train/model/rng.h

# No contraction of a * b + c, and no fast divisions or roots: the CPU's bits.
cuda_module_flags = -std=c++17 -O2 -fmad=false $(NVCC_ARCHITECTURES) $(NVCC_WERROR) \
	-Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra -D_GNU_SOURCE -I$(abs_top_srcdir) -I$(abs_top_srcdir)/include

if HAVE_NVCC
# Beside the library, as long as nothing is installed: where it looks for its modules too.
cudamoduledir = $(moduledir)
nodist_cudamodule_DATA = .libs/train_mnist_cuda.so
.libs/train_mnist_cuda.so: $(cuda_module_sources) $(cuda_module_headers) $(cuda_module_shared)
	$(AM_V_GEN)$(MKDIR_P) .libs && cd $(srcdir) && $(NVCC) $(cuda_module_flags) $(NVCCFLAGS) \
		-shared -t 0 -o $(abs_builddir)/$@.tmp $(cuda_module_sources) -lcublas \
		-Xlinker -z,defs -Xlinker --exclude-libs=ALL && mv $(abs_builddir)/$@.tmp $(abs_builddir)/$@
endif

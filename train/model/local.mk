# SPDX-License-Identifier: BSD-3-Clause
# The arithmetic: layers, loss, optimizers, sums.
libtrain_la_SOURCES += \
	train/model/anywhere.h \
	train/model/gemm.c train/model/gemm.h \
	train/model/grid.c train/model/grid.h \
	train/model/kernel.h \
	train/model/layer.h \
	train/model/layer_bias.c \
	train/model/layer_conv.c \
	train/model/layer_dense.c \
	train/model/layer_dropout.c \
	train/model/layer_pool.c \
	train/model/loss.c train/model/loss.h \
	train/model/model.c train/model/model.h \
	train/model/optimizer.c train/model/optimizer.h \
	train/model/rng.h

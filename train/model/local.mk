# SPDX-License-Identifier: BSD-3-Clause
# The arithmetic: layers, loss, optimizers, sums.
libtrain_la_SOURCES += \
	train/model/anywhere.h \
	train/model/blame.c \
	train/model/gemm.c train/model/gemm.h \
	train/model/grid.c train/model/grid.h \
	train/model/kernel.h \
	train/model/layer.c train/model/layer.h \
	train/model/loss.c train/model/loss.h \
	train/model/model.c train/model/model.h \
	train/model/optimizer.c train/model/optimizer.h \
	train/model/rng.h

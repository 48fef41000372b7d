# SPDX-License-Identifier: BSD-3-Clause
# Each kind of layer.
libtrain_la_SOURCES += \
	train/model/layers/layer_add.c \
	train/model/layers/layer_batchnorm.c \
	train/model/layers/layer_bias.c \
	train/model/layers/layer_conv.c \
	train/model/layers/layer_dense.c \
	train/model/layers/layer_dropout.c \
	train/model/layers/layer_mean.c \
	train/model/layers/layer_pool.c \
	train/model/layers/tile.c train/model/layers/tile.h train/model/layers/tile_body.h

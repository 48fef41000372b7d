# SPDX-License-Identifier: BSD-3-Clause
# The samples: read or drawn, chosen, changed, gathered.
libtrain_la_SOURCES += \
	train/data/augment.c train/data/augment.h \
	train/data/batch.c train/data/batch.h \
	train/data/cifar10.c \
	train/data/dataset.c train/data/dataset.h \
	train/data/digits.c train/data/digits.h \
	train/data/glyphs.c train/data/glyphs.h \
	train/data/idx.c train/data/idx.h \
	train/data/loader.c train/data/loader.h \
	train/data/mnist.c \
	train/data/pictures.c train/data/pictures.h \
	train/data/source.c train/data/source.h

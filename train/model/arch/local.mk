# SPDX-License-Identifier: BSD-3-Clause
# Which layers the architectures have.
libtrain_la_SOURCES += \
	train/model/arch/arch.c train/model/arch/arch.h \
	train/model/arch/arch_cnn.c \
	train/model/arch/arch_mlp.c \
	train/model/arch/arch_resnet.c

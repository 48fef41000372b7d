# SPDX-License-Identifier: BSD-3-Clause
# One rank's training.
libtrain_la_SOURCES += \
	train/trainer/trainer.c train/trainer/trainer.h \
	train/trainer/trainer_ddp.c \
	train/trainer/trainer_keep.c \
	train/trainer/trainer_records.c \
	train/trainer/trainer_schedule.c \
	train/trainer/trainer_setup.c \
	train/trainer/trainer_step.c \
	train/trainer/trainer_zero.c

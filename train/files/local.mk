# SPDX-License-Identifier: BSD-3-Clause
# A model in a file.
libtrain_la_SOURCES += \
	train/files/checkpoint.c train/files/checkpoint.h \
	train/files/file.c train/files/file.h \
	train/files/folder.c train/files/folder.h \
	train/files/image.c train/files/image.h \
	train/files/tensors.c train/files/tensors.h \
	train/files/tensors_json.c train/files/tensors_json.h \
	train/files/writer.c train/files/writer.h

# SPDX-License-Identifier: BSD-3-Clause
# Endpoints: open transports that the groups of a world share.
libdist_core_sources += \
	src/endpoint/endpoint.c \
	src/endpoint/endpoint.h

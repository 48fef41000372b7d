# SPDX-License-Identifier: BSD-3-Clause
libdist_core_sources += \
	src/rendezvous/meet.c \
	src/rendezvous/meet.h \
	src/rendezvous/pmix_abi.h \
	src/rendezvous/pmix.c \
	src/rendezvous/rendezvous.c src/rendezvous/rendezvous.h

# SPDX-License-Identifier: BSD-3-Clause
libdist_core_sources += \
	src/rendezvous/discovery.c src/rendezvous/discovery.h \
	src/rendezvous/facts.c src/rendezvous/facts.h \
	src/rendezvous/launchers/launch.c \
	src/rendezvous/launchers/mindspore.c src/rendezvous/launchers/mindspore.h \
	src/rendezvous/launchers/process.c src/rendezvous/launchers/process.h \
	src/rendezvous/launchers/slurm.c src/rendezvous/launchers/slurm.h \
	src/rendezvous/meet.h \
	src/rendezvous/meet_file.c \
	src/rendezvous/meet_local.c \
	src/rendezvous/meet_oob.c \
	src/rendezvous/meet_pmix.c \
	src/rendezvous/meet_secret.c \
	src/rendezvous/meet_scheduled.c \
	src/rendezvous/meet_tcp.c \
	src/rendezvous/pmix/abi.h \
	src/rendezvous/pmix/library.c src/rendezvous/pmix/library.h \
	src/rendezvous/pmix/pmix.c src/rendezvous/pmix/pmix.h \
	src/rendezvous/rendezvous.c src/rendezvous/rendezvous.h \
	src/rendezvous/url.c \
	src/base/net/interface.c \
	src/base/net/resolve.c \
	src/base/net/socket.c src/base/net/socket.h

# SPDX-License-Identifier: BSD-3-Clause
# Code that the programs share: command lines, output, plots, GPU memory.
noinst_LTLIBRARIES += libcommon.la
libcommon_la_LIBTOOLFLAGS = $(static_only)
libcommon_la_SOURCES = \
	tools/common/args.c tools/common/args.h \
	tools/common/gpu.c tools/common/gpu.h \
	tools/common/number.c tools/common/number.h \
	tools/common/plot.c tools/common/plot.h \
	tools/common/text.c tools/common/text.h \
	tools/common/launched.c tools/common/launched.h \
	tools/common/output.c tools/common/output.h
libcommon_la_LIBADD = -lm

# dist_info uses only the library's public headers.
bin_PROGRAMS += dist_info
dist_info_SOURCES = \
	tools/dist_info.c \
	tools/explain.c \
	tools/explain.h \
	tools/memory.c \
	tools/memory.h
dist_info_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(OPENSSL_CFLAGS)
dist_info_LDADD = libselftest.la libtopology.la libcommon.la libdist.la $(JANSSON_LIBS) $(OPENSSL_LIBS) -lm

# One file for all programs, linked under each name: bash-completion searches by the program's name.
EXTRA_DIST += tools/common/completion.bash
completiondir = $(datadir)/bash-completion/completions
install-data-local:
	$(MKDIR_P) '$(DESTDIR)$(completiondir)'
	$(INSTALL_DATA) $(srcdir)/tools/common/completion.bash '$(DESTDIR)$(completiondir)/dist_info'
	cd '$(DESTDIR)$(completiondir)' && for name in $(completed); do ln -sf dist_info $$name; done
uninstall-local:
	cd '$(DESTDIR)$(completiondir)' && rm -f dist_info $(completed)
completed = dist_bench dist_sim distrun train_mnist train_cifar10

# dist_sim, the simulator of plans. It links the library's internals, since plans are not public.
bin_PROGRAMS += dist_sim
dist_sim_SOURCES = tools/sim/main.c
dist_sim_LDADD = libverify.la libcommon.la libdist_core.la

# dist_info doctor.
dist_info_SOURCES += \
	tools/doctor/findings.c \
	tools/doctor/doctor.c \
	tools/doctor/doctor.h \
	tools/doctor/network.c

# dist_info flight.
dist_info_SOURCES += \
	tools/flight.h \
	tools/flight.c

# Machines and the ranks on them: used by dist_info topology and train_mnist.
noinst_LTLIBRARIES += libtopology.la
libtopology_la_LIBTOOLFLAGS = $(static_only)
libtopology_la_CPPFLAGS = $(AM_CPPFLAGS) $(HWLOC_CFLAGS)
libtopology_la_SOURCES = \
	tools/topology/topology.c \
	tools/topology/topology.h
libtopology_la_LIBADD = $(HWLOC_LIBS)

# The conformance battery for backends and transports: used by dist_info selftest and the tests.
noinst_LTLIBRARIES += libselftest.la
libselftest_la_LIBTOOLFLAGS = $(static_only)
libselftest_la_SOURCES = \
	tools/selftest/battery.h \
	tools/selftest/cases.c \
	tools/selftest/command.c \
	tools/selftest/run.c \
	tools/selftest/selftest.h
libselftest_la_LIBADD = libcommon.la

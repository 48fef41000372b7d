# SPDX-License-Identifier: BSD-3-Clause
# Parsers, fed with what nobody meant for them. With --enable-fuzzers it is libFuzzer that makes the
# inputs (make fuzz); else the program only takes the kept ones, which are a test.
check_PROGRAMS += tests/fuzz/fuzz
tests_fuzz_fuzz_SOURCES = \
	tests/fuzz/fuzz.h tests/fuzz/main.c tests/fuzz/input.c tests/fuzz/streams.c \
	tests/fuzz/agents.c \
	tests/fuzz/baseline.c \
	tests/fuzz/checkpoint.c \
	tests/fuzz/clock.c \
	tests/fuzz/command.c \
	tests/fuzz/dataset.c \
	tests/fuzz/module.c \
	tests/fuzz/settings.c \
	tests/fuzz/shm.c \
	tests/fuzz/store_client.c \
	tests/fuzz/store_server.c \
	tests/fuzz/tcp.c \
	tests/fuzz/tuning.c \
	 bench/result.c
if !HAVE_FUZZER
tests_fuzz_fuzz_SOURCES += tests/fuzz/replay.c
endif
tests_fuzz_fuzz_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)
tests_fuzz_fuzz_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
tests_fuzz_fuzz_LDFLAGS = $(job_ldflags) $(FUZZ_LDFLAGS) \
	-Wl,--wrap=clock_gettime,--wrap=timerfd_settime
tests_fuzz_fuzz_LDADD = librun.la libtrain.la libdist_core.la $(CBLAS_LIBS) \
	$(JANSSON_LIBS) $(ZLIB_LIBS) -lm
TESTS += tests/fuzz/corpus.sh
EXTRA_DIST += tests/README.md tests/fuzz/corpus tests/fuzz/corpus.py tests/fuzz/corpus.sh tests/fuzz/run.sh \
	tests/fuzz/coverage.sh tests/fuzz/parsers

FUZZ_SECONDS = 10
fuzz: tests/fuzz/fuzz
	$(AM_TESTS_ENVIRONMENT) FUZZ_SECONDS='$(FUZZ_SECONDS)' $(BASH) $(srcdir)/tests/fuzz/run.sh
# What the kept inputs reach of the parsers, in the same build.
fuzz-coverage: tests/fuzz/fuzz
	$(AM_TESTS_ENVIRONMENT) $(BASH) $(srcdir)/tests/fuzz/coverage.sh
.PHONY: fuzz fuzz-coverage

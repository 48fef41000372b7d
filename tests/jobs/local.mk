# SPDX-License-Identifier: BSD-3-Clause
# Multi-process cases: each script is lines "launcher ranks program arguments" (see job.sh).
# The program that runs the battery (tools/selftest) in the tests, and a backend with planted faults.
check_PROGRAMS += tests/conformance/conformance
tests_conformance_conformance_SOURCES = tests/conformance/main.c
tests_conformance_conformance_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/tools
tests_conformance_conformance_LDADD = libselftest.la libdist.la -lm
tests_conformance_conformance_LDFLAGS = $(job_ldflags)

# -rpath makes libtool build a shared object although it is not installed. These modules are in a separate
# directory from the users' modules, which dist_info lists.
if HAVE_SHARED
check_LTLIBRARIES += tests/conformance/dist_faulty.la tests/conformance/dist_plain.la
endif
tests_conformance_dist_faulty_la_LIBTOOLFLAGS = $(shared_only)
tests_conformance_dist_faulty_la_SOURCES = tests/conformance/faulty.c
tests_conformance_dist_faulty_la_LDFLAGS = $(module_ldflags) -rpath $(abs_builddir)

# A backend without faults that declares missing capabilities: tags, receives from any source, NaN in MIN
# and MAX.
tests_conformance_dist_plain_la_LIBTOOLFLAGS = $(shared_only)
tests_conformance_dist_plain_la_SOURCES = tests/conformance/faulty.c
tests_conformance_dist_plain_la_CPPFLAGS = $(AM_CPPFLAGS) -DFAULTY_NAME='"plain"' -DFAULTY_LACKS=7u
tests_conformance_dist_plain_la_LDFLAGS = $(module_ldflags) -rpath $(abs_builddir)

check_PROGRAMS += tests/jobs/mishap
tests_jobs_mishap_SOURCES = tests/jobs/mishap.c
tests_jobs_mishap_LDADD = libdist.la
tests_jobs_mishap_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/kills
tests_jobs_kills_SOURCES = tests/jobs/kills.c tests/jobs/kills.h
tests_jobs_kills_LDADD = libdist.la
tests_jobs_kills_LDFLAGS = $(job_ldflags)
check_PROGRAMS += tests/jobs/deaths
tests_jobs_deaths_SOURCES = tests/jobs/deaths.c tests/jobs/kills.h
tests_jobs_deaths_LDADD = libdist.la
tests_jobs_deaths_LDFLAGS = $(job_ldflags)
check_PROGRAMS += tests/jobs/kills_training
tests_jobs_kills_training_SOURCES = tests/jobs/kills_training.c tests/jobs/kills.h

check_PROGRAMS += tests/jobs/agent
tests_jobs_agent_SOURCES = tests/jobs/agent.c
tests_jobs_agent_LDADD = libagents.la libdist_core.la
tests_jobs_agent_LDFLAGS = $(job_ldflags)
check_PROGRAMS += tests/jobs/denied
tests_jobs_denied_SOURCES = tests/jobs/denied.c

if HAVE_SHARED
check_LTLIBRARIES += newer_runtime.la
endif
newer_runtime_la_LIBTOOLFLAGS = $(shared_only)
newer_runtime_la_SOURCES = tests/jobs/newer_runtime.c
newer_runtime_la_LDFLAGS = $(standin_ldflags)

check_PROGRAMS += tests/jobs/shrink
tests_jobs_shrink_SOURCES = tests/jobs/shrink.c
tests_jobs_shrink_LDADD = libdist.la
tests_jobs_shrink_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/leaves
tests_jobs_leaves_SOURCES = tests/jobs/leaves.c
tests_jobs_leaves_LDADD = libdist.la
tests_jobs_leaves_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/first_thread
tests_jobs_first_thread_SOURCES = tests/jobs/first_thread.c
tests_jobs_first_thread_LDADD = libdist.la
tests_jobs_first_thread_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/aborts
tests_jobs_aborts_SOURCES = tests/jobs/aborts.c
tests_jobs_aborts_LDADD = libdist.la
tests_jobs_aborts_LDFLAGS = $(job_ldflags)
check_PROGRAMS += tests/jobs/hooked
tests_jobs_hooked_SOURCES = tests/jobs/hooked.c
tests_jobs_hooked_LDADD = libdist.la -ldl
tests_jobs_hooked_LDFLAGS = $(job_ldflags)
check_PROGRAMS += tests/jobs/forked
tests_jobs_forked_SOURCES = tests/jobs/forked.c
tests_jobs_forked_LDADD = libdist.la
tests_jobs_forked_LDFLAGS = $(job_ldflags)
check_PROGRAMS += tests/jobs/pmix
tests_jobs_pmix_SOURCES = tests/jobs/pmix.c
tests_jobs_pmix_LDADD = libdist.la
tests_jobs_pmix_LDFLAGS = $(job_ldflags)
check_PROGRAMS += tests/jobs/two_groups
tests_jobs_two_groups_SOURCES = tests/jobs/two_groups.c
tests_jobs_two_groups_LDADD = libdist.la
tests_jobs_two_groups_LDFLAGS = $(job_ldflags)
check_PROGRAMS += tests/jobs/any_order
tests_jobs_any_order_SOURCES = \
	tests/jobs/any_order.c \
	tests/jobs/any_order.h \
	tests/jobs/any_order_calls.c
tests_jobs_any_order_LDADD = libdist.la
tests_jobs_any_order_LDFLAGS = $(job_ldflags)
check_PROGRAMS += tests/jobs/any_arguments
tests_jobs_any_arguments_SOURCES = tests/jobs/any_arguments.c
tests_jobs_any_arguments_LDADD = libdist.la
tests_jobs_any_arguments_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/bad_calls
tests_jobs_bad_calls_SOURCES = tests/jobs/bad_calls.c
tests_jobs_bad_calls_LDADD = libdist.la
tests_jobs_bad_calls_LDFLAGS = $(job_ldflags)
check_PROGRAMS += tests/jobs/bad_matches
tests_jobs_bad_matches_SOURCES = tests/jobs/bad_matches.c
tests_jobs_bad_matches_LDADD = libdist.la
tests_jobs_bad_matches_LDFLAGS = $(job_ldflags)
check_PROGRAMS += tests/jobs/rooted
tests_jobs_rooted_SOURCES = tests/jobs/rooted.c
tests_jobs_rooted_LDADD = libdist.la
tests_jobs_rooted_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/short_calls
tests_jobs_short_calls_SOURCES = tests/jobs/short_calls.c
tests_jobs_short_calls_LDADD = libdist.la
tests_jobs_short_calls_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/flight
tests_jobs_flight_SOURCES = tests/jobs/flight.c
tests_jobs_flight_LDADD = libdist.la
tests_jobs_flight_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/call_cost
tests_jobs_call_cost_SOURCES = tests/jobs/call_cost.c
tests_jobs_call_cost_LDADD = libdist.la
tests_jobs_call_cost_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/start_grows
tests_jobs_start_grows_SOURCES = tests/jobs/start_grows.c tests/jobs/descriptors.h
tests_jobs_start_grows_LDADD = libdist.la
tests_jobs_start_grows_LDFLAGS = $(job_ldflags)

listeners_sources = tests/jobs/listeners.c tests/jobs/listeners.h
check_PROGRAMS += tests/jobs/churn
tests_jobs_churn_SOURCES = tests/jobs/churn.c tests/jobs/descriptors.h $(listeners_sources)
tests_jobs_churn_LDADD = libdist.la
tests_jobs_churn_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/strangers
tests_jobs_strangers_SOURCES = tests/jobs/strangers.c $(listeners_sources)

check_PROGRAMS += tests/jobs/nth
tests_jobs_nth_SOURCES = tests/jobs/nth.c
tests_jobs_nth_LDADD = libdist.la -ldl
tests_jobs_nth_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/different
tests_jobs_different_SOURCES = tests/jobs/different.c
tests_jobs_different_LDADD = libdist.la
tests_jobs_different_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/ahead
tests_jobs_ahead_SOURCES = tests/jobs/ahead.c
tests_jobs_ahead_LDADD = libdist.la
tests_jobs_ahead_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/unloaded
tests_jobs_unloaded_SOURCES = tests/jobs/unloaded.c
tests_jobs_unloaded_LDADD = -ldl
check_PROGRAMS += tests/jobs/unreadable
tests_jobs_unreadable_SOURCES = tests/jobs/unreadable.c
tests_jobs_unreadable_LDADD = libdist.la
tests_jobs_unreadable_LDFLAGS = $(job_ldflags)
check_PROGRAMS += tests/jobs/short_memory
tests_jobs_short_memory_SOURCES = tests/jobs/short_memory.c tests/jobs/scarce.c tests/jobs/scarce.h
tests_jobs_short_memory_LDADD = libdist.la
tests_jobs_short_memory_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/idle
tests_jobs_idle_SOURCES = tests/jobs/idle.c
tests_jobs_idle_LDADD = libdist.la
tests_jobs_idle_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/movers
tests_jobs_movers_SOURCES = tests/jobs/movers.c tests/jobs/refuse.h
tests_jobs_movers_LDADD = libdist.la
tests_jobs_movers_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/uneven
tests_jobs_uneven_SOURCES = tests/jobs/uneven.c tests/jobs/refuse.h
tests_jobs_uneven_LDADD = libdist.la
tests_jobs_uneven_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/far_blocks
tests_jobs_far_blocks_SOURCES = tests/jobs/far_blocks.c
tests_jobs_far_blocks_LDADD = libdist.la
tests_jobs_far_blocks_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/stopped
tests_jobs_stopped_SOURCES = tests/jobs/stopped.c
tests_jobs_stopped_LDADD = libdist.la
tests_jobs_stopped_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/many_groups
tests_jobs_many_groups_SOURCES = tests/jobs/many_groups.c tests/jobs/descriptors.h
tests_jobs_many_groups_LDADD = libdist.la
tests_jobs_many_groups_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/reproducible
tests_jobs_reproducible_SOURCES = tests/jobs/reproducible.c tests/unit/base/environment.h
tests_jobs_reproducible_LDADD = libdist.la -lm
tests_jobs_reproducible_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/registered
tests_jobs_registered_SOURCES = tests/jobs/registered.c
tests_jobs_registered_LDADD = libdist.la
tests_jobs_registered_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/plugin_hccl
tests_jobs_plugin_hccl_SOURCES = tests/jobs/plugin_hccl.c
tests_jobs_plugin_hccl_LDADD = libdist.la -ldl
tests_jobs_plugin_hccl_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/bench_fake
tests_jobs_bench_fake_SOURCES = tests/jobs/bench_fake.c

# Needs the simulated GPU driver.
check_PROGRAMS += tests/jobs/nccl_streams
tests_jobs_nccl_streams_SOURCES = \
	src/base/settings/env.c \
	src/device/driver.c \
	src/device/driver.h \
	tests/jobs/nccl_streams.c \
	tests/jobs/nccl_streams.h \
	tests/jobs/nccl_streams_data.c \
	tests/jobs/nccl_streams_order.c
tests_jobs_nccl_streams_LDADD = libdist.la -ldl
tests_jobs_nccl_streams_LDFLAGS = $(job_ldflags)

check_PROGRAMS += tests/jobs/nccl_launch
tests_jobs_nccl_launch_SOURCES = \
	src/base/settings/env.c \
	src/device/driver.c \
	src/device/driver.h \
	tests/jobs/nccl_launch.c
tests_jobs_nccl_launch_LDADD = libdist.la -ldl
tests_jobs_nccl_launch_LDFLAGS = $(job_ldflags)

# An MPI program that does not use libdist, for each MPI.
preload_program_sources = \
	tests/jobs/preload_again.c \
	tests/jobs/preload_blocked.c \
	tests/jobs/preload_buffers.c \
	tests/jobs/preload_comms.c \
	tests/jobs/preload_compare.c \
	tests/jobs/preload_cost.c \
	tests/jobs/preload_memory.c \
	tests/jobs/preload_movers.c \
	tests/jobs/preload_others.c \
	tests/jobs/preload_program.c \
	tests/jobs/preload_program.h \
	tests/jobs/preload_reductions.c \
	tests/jobs/preload_refused.c

tests_jobs_preload_openmpi_SOURCES = $(preload_program_sources)
tests_jobs_preload_openmpi_CPPFLAGS = $(AM_CPPFLAGS) $(OPENMPI_CFLAGS)
tests_jobs_preload_openmpi_LDADD = $(OPENMPI_LIBS) -ldl
if HAVE_OPENMPI
check_PROGRAMS += tests/jobs/preload_openmpi
endif

# gcc assumes that MPICH writes to its MPI_STATUSES_IGNORE.
tests_jobs_preload_mpich_SOURCES = $(preload_program_sources)
tests_jobs_preload_mpich_CPPFLAGS = $(AM_CPPFLAGS) $(MPICH_CFLAGS)
tests_jobs_preload_mpich_CFLAGS = $(AM_CFLAGS) $(STATUSES_CFLAGS)
tests_jobs_preload_mpich_LDADD = $(MPICH_LIBS) -ldl
if HAVE_MPICH
check_PROGRAMS += tests/jobs/preload_mpich
endif

# Counts the MPI calls of libdist_mpi.so for each MPI.
preload_calls_openmpi_la_LIBTOOLFLAGS = $(shared_only)
preload_calls_openmpi_la_SOURCES = tests/jobs/preload_calls.c
preload_calls_openmpi_la_CPPFLAGS = $(AM_CPPFLAGS) $(OPENMPI_CFLAGS)
preload_calls_openmpi_la_LDFLAGS = $(standin_ldflags)
preload_calls_openmpi_la_LIBADD = $(OPENMPI_LIBS) -ldl
if HAVE_OPENMPI
check_LTLIBRARIES += preload_calls_openmpi.la
endif
preload_calls_mpich_la_LIBTOOLFLAGS = $(shared_only)
preload_calls_mpich_la_SOURCES = tests/jobs/preload_calls.c
preload_calls_mpich_la_CPPFLAGS = $(AM_CPPFLAGS) $(MPICH_CFLAGS)
preload_calls_mpich_la_LDFLAGS = $(standin_ldflags)
preload_calls_mpich_la_LIBADD = $(MPICH_LIBS) -ldl
if HAVE_MPICH
check_LTLIBRARIES += preload_calls_mpich.la
endif

job_scripts = \
	tests/jobs/configure.sh \
	tests/jobs/cross.sh \
	tests/jobs/ports.sh \
	tests/jobs/conformance_mpi.sh \
	tests/jobs/conformance_gloo.sh \
	tests/jobs/conformance_ucx.sh \
	tests/jobs/preload.sh \
	tests/jobs/preload_fortran.sh \
	tests/jobs/preload_foreign.sh \
	tests/jobs/conformance_faulty.sh \
	tests/jobs/conformance_algorithms.sh \
	tests/jobs/conformance_nccl.sh \
	tests/jobs/plugin_hccl.sh \
	tests/jobs/conformance_nodes.sh \
	tests/jobs/launchers.sh \
	tests/jobs/leaves.sh \
	tests/jobs/first_thread.sh \
	tests/jobs/launcher_killed.sh \
	tests/jobs/distrun.sh \
	tests/jobs/distrun_late.sh \
	tests/jobs/mindspore.sh \
	tests/jobs/roles.sh \
	tests/jobs/secrets.sh \
	tests/jobs/other_user.sh \
	tests/jobs/strangers.sh \
	tests/jobs/tls.sh \
	tests/jobs/slurm.sh \
	tests/jobs/pmix.sh \
	tests/jobs/ways.sh \
	tests/jobs/mpirun_nodes.sh \
	tests/jobs/examples_cluster.sh \
	tests/jobs/two_groups.sh \
	tests/jobs/any_order.sh \
	tests/jobs/mishaps.sh \
	tests/jobs/networks.sh \
	tests/jobs/kills.sh \
	tests/jobs/deaths.sh \
	tests/jobs/faults.sh \
	tests/jobs/flight.sh \
	tests/jobs/ddp.sh \
	tests/jobs/zero.sh \
	tests/jobs/shrink.sh \
	tests/jobs/ahead.sh \
	tests/jobs/short_calls.sh \
	tests/jobs/short_memory.sh \
	tests/jobs/unreadable.sh \
	tests/jobs/denied.sh \
	tests/jobs/nccl_streams.sh \
	tests/jobs/nccl_faults.sh \
	tests/jobs/namespaces.sh \
	tests/jobs/netns_cluster.sh \
	tests/jobs/agents.sh \
	tests/jobs/elastic.sh \
	tests/jobs/soak.sh \
	tests/jobs/hosts.sh \
	tests/jobs/churn.sh \
	tests/jobs/many_groups.sh \
	tests/jobs/movers.sh \
	tests/jobs/uneven.sh \
	tests/jobs/far_blocks.sh \
	tests/jobs/reproducible.sh \
	tests/jobs/registered.sh \
	tests/jobs/hooked.sh \
	tests/jobs/bad_input.sh \
	tests/jobs/bad_modules.sh \
	tests/jobs/aborts.sh \
	tests/jobs/bad_calls.sh \
	tests/jobs/call_cost.sh \
	tests/jobs/nth.sh \
	tests/jobs/resources.sh \
	tests/jobs/start_grows.sh \
	tests/jobs/different.sh \
	tests/jobs/rooted.sh \
	tests/jobs/embedding.sh \
	tests/jobs/packages.sh \
	tests/jobs/site.sh \
	tests/jobs/check_gpu.sh \
	tests/jobs/static_build.sh \
	tests/jobs/forked.sh \
	tests/jobs/completion.sh \
	tests/jobs/dist_info.sh \
	tests/jobs/doctor.sh \
	tests/jobs/dist_sim.sh \
	tests/jobs/output.sh \
	tests/jobs/progress.sh \
	tests/jobs/training.sh \
	tests/jobs/bench_peers.sh \
	tests/jobs/black_hole.sh \
	tests/jobs/dist_bench.sh \
	tests/jobs/topology.sh \
	tests/jobs/train.sh \
	tests/jobs/train_accuracy.sh \
	tests/jobs/train_blas.sh \
	tests/jobs/train_checkpoint.sh \
	tests/jobs/train_cifar10.sh \
	tests/jobs/train_resume.sh \
	tests/jobs/train_cuda.sh \
	tests/jobs/train_modes.sh \
	tests/jobs/train_records.sh \
	tests/jobs/train_torch.sh \
	tests/jobs/python.sh \
	tests/jobs/python_examples.sh \
	tests/jobs/python_torch.sh \
	tests/jobs/wheel.sh

measuring_job_scripts = tests/jobs/idle.sh tests/jobs/predicted.sh tests/jobs/debian13.sh

TESTS += $(job_scripts)
EXTRA_DIST += $(job_scripts) $(measuring_job_scripts) tests/jobs/bad_module.c tests/jobs/losses.awk
EXTRA_DIST += tests/jobs/examples_cluster.py tests/jobs/other_user.py tests/jobs/train_records.py tests/jobs/train_torch.py
EXTRA_DIST += \
	tests/jobs/preload_foreign.c \
	tests/jobs/preload_foreign.h \
	tests/jobs/preload_foreign_mpi.c \
	tests/jobs/preload_fortran.F90 \
	tests/jobs/preload_fortran_collectives.F90 \
	tests/jobs/preload_tool.c

training_sources = \
	tests/jobs/ddp_model.c tests/jobs/ddp_model.h \
	tests/jobs/settings.c tests/jobs/settings.h
fault_sources = \
	tests/jobs/faults.c tests/jobs/faults.h \
	tests/jobs/scarce.c tests/jobs/scarce.h

check_PROGRAMS += tests/jobs/ddp
tests_jobs_ddp_SOURCES = tests/jobs/ddp.c $(training_sources)
tests_jobs_ddp_LDADD = libdist.la -lm
tests_jobs_ddp_LDFLAGS = $(job_ldflags)
check_PROGRAMS += tests/jobs/ddp_faults
tests_jobs_ddp_faults_SOURCES = tests/jobs/ddp_faults.c $(fault_sources)
tests_jobs_ddp_faults_LDADD = libdist.la -lm
tests_jobs_ddp_faults_LDFLAGS = $(job_ldflags)
check_PROGRAMS += tests/jobs/train_pass
tests_jobs_train_pass_SOURCES = tests/jobs/train_pass.c
tests_jobs_train_pass_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)
tests_jobs_train_pass_LDADD = libtrain.la libdist.la $(CBLAS_LIBS) $(ZLIB_LIBS) -lm
check_PROGRAMS += tests/jobs/zero
tests_jobs_zero_SOURCES = tests/jobs/zero.c $(training_sources)
tests_jobs_zero_LDADD = libdist.la -lm
tests_jobs_zero_LDFLAGS = $(job_ldflags)
check_PROGRAMS += tests/jobs/zero_faults
tests_jobs_zero_faults_SOURCES = tests/jobs/zero_faults.c $(fault_sources)
tests_jobs_zero_faults_LDADD = libdist.la -lm
tests_jobs_zero_faults_LDFLAGS = $(job_ldflags)

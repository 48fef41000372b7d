# SPDX-License-Identifier: BSD-3-Clause

check_PROGRAMS += tests/unit/transports/test_match
TESTS += tests/unit/transports/test_match
tests_unit_transports_test_match_SOURCES = tests/unit/transports/test_match.c
tests_unit_transports_test_match_LDADD = $(unit_test_libs)

tcp_fixture = tests/unit/transports/tcp_fixture.c tests/unit/transports/tcp_fixture.h

check_PROGRAMS += tests/unit/transports/test_tcp_conn
TESTS += tests/unit/transports/test_tcp_conn
tests_unit_transports_test_tcp_conn_SOURCES = tests/unit/transports/test_tcp_conn.c
tests_unit_transports_test_tcp_conn_LDADD = $(unit_test_libs)

check_PROGRAMS += tests/unit/transports/test_tcp_flow
TESTS += tests/unit/transports/test_tcp_flow
tests_unit_transports_test_tcp_flow_SOURCES = tests/unit/transports/test_tcp_flow.c $(tcp_fixture)
tests_unit_transports_test_tcp_flow_LDADD = $(unit_test_libs)

check_PROGRAMS += tests/unit/transports/test_tcp_silence
TESTS += tests/unit/transports/test_tcp_silence
tests_unit_transports_test_tcp_silence_SOURCES = \
	tests/unit/transports/test_tcp_silence.c $(tcp_fixture)
tests_unit_transports_test_tcp_silence_LDADD = $(unit_test_libs)

check_PROGRAMS += tests/unit/transports/test_tcp_congestion
TESTS += tests/unit/transports/test_tcp_congestion
tests_unit_transports_test_tcp_congestion_SOURCES = \
	tests/unit/transports/test_tcp_congestion.c $(tcp_fixture)
tests_unit_transports_test_tcp_congestion_LDADD = $(unit_test_libs)

check_PROGRAMS += tests/unit/transports/test_tcp_wire
TESTS += tests/unit/transports/test_tcp_wire
tests_unit_transports_test_tcp_wire_SOURCES = tests/unit/transports/test_tcp_wire.c $(tcp_fixture)
tests_unit_transports_test_tcp_wire_LDADD = $(unit_test_libs)

check_PROGRAMS += tests/unit/transports/test_tcp_hostile
TESTS += tests/unit/transports/test_tcp_hostile
tests_unit_transports_test_tcp_hostile_SOURCES = \
	tests/unit/transports/test_tcp_hostile.c $(tcp_fixture)
tests_unit_transports_test_tcp_hostile_LDADD = $(unit_test_libs)

check_PROGRAMS += tests/unit/transports/test_tcp_proof
TESTS += tests/unit/transports/test_tcp_proof
tests_unit_transports_test_tcp_proof_SOURCES = \
	tests/unit/transports/test_tcp_proof.c $(tcp_fixture)
tests_unit_transports_test_tcp_proof_LDADD = $(unit_test_libs)

# Tests that every transport must pass. The test of a transport supplies the transport.
transport_battery = \
	tests/unit/transports/transport_battery.c \
	tests/unit/transports/transport_battery.h \
	tests/unit/transports/transport_battery_ahead.c \
	tests/unit/transports/transport_battery_cancel.c \
	tests/unit/transports/transport_battery_data.c \
	tests/unit/transports/transport_battery_fault.c \
	tests/unit/transports/transport_battery_probe.c \
	tests/unit/transports/transport_battery_rank.c \
	tests/unit/transports/transport_battery_rank.h \
	tests/unit/transports/transport_battery_reduce.c

check_PROGRAMS += tests/unit/transports/test_shm
TESTS += tests/unit/transports/test_shm
tests_unit_transports_test_shm_SOURCES = tests/unit/transports/test_shm.c $(transport_battery)
tests_unit_transports_test_shm_LDADD = $(unit_test_libs)

check_PROGRAMS += tests/unit/transports/test_shm_accept
TESTS += tests/unit/transports/test_shm_accept
tests_unit_transports_test_shm_accept_SOURCES = tests/unit/transports/test_shm_accept.c
tests_unit_transports_test_shm_accept_LDADD = $(unit_test_libs)

# The example plug-in is not part of the library: it is compiled into its test.
check_PROGRAMS += tests/unit/transports/test_minimal
TESTS += tests/unit/transports/test_minimal
tests_unit_transports_test_minimal_SOURCES = \
	tests/unit/transports/test_minimal.c examples/plugin-minimal/minimal.c \
	$(transport_battery)
tests_unit_transports_test_minimal_LDADD = $(unit_test_libs)

check_PROGRAMS += tests/unit/transports/test_tcp
TESTS += tests/unit/transports/test_tcp
tests_unit_transports_test_tcp_SOURCES = \
	tests/unit/transports/test_tcp.c $(tcp_fixture) $(transport_battery)
tests_unit_transports_test_tcp_LDADD = $(unit_test_libs)

check_PROGRAMS += tests/unit/transports/test_tcp_striped
TESTS += tests/unit/transports/test_tcp_striped
tests_unit_transports_test_tcp_striped_SOURCES = \
	tests/unit/transports/test_tcp_striped.c $(tcp_fixture) $(transport_battery)
tests_unit_transports_test_tcp_striped_LDADD = $(unit_test_libs)

# The test loads the module, if it was built.
check_PROGRAMS += tests/unit/transports/test_ucx
TESTS += tests/unit/transports/test_ucx
tests_unit_transports_test_ucx_SOURCES = tests/unit/transports/test_ucx.c $(transport_battery)
tests_unit_transports_test_ucx_LDADD = $(unit_test_libs)

check_PROGRAMS += tests/unit/transports/test_tcp_ways
TESTS += tests/unit/transports/test_tcp_ways
tests_unit_transports_test_tcp_ways_SOURCES = tests/unit/transports/test_tcp_ways.c
tests_unit_transports_test_tcp_ways_LDADD = $(unit_test_libs)

check_PROGRAMS += tests/unit/transports/test_tcp_sockets
TESTS += tests/unit/transports/test_tcp_sockets
tests_unit_transports_test_tcp_sockets_SOURCES = \
	tests/unit/transports/test_tcp_sockets.c $(tcp_fixture)
tests_unit_transports_test_tcp_sockets_LDADD = $(unit_test_libs)

check_PROGRAMS += tests/unit/transports/test_tcp_checksum
TESTS += tests/unit/transports/test_tcp_checksum
tests_unit_transports_test_tcp_checksum_SOURCES = \
	tests/unit/transports/test_tcp_checksum.c $(tcp_fixture)
tests_unit_transports_test_tcp_checksum_LDADD = $(unit_test_libs)

check_PROGRAMS += tests/unit/transports/test_tcp_zerocopy
TESTS += tests/unit/transports/test_tcp_zerocopy
tests_unit_transports_test_tcp_zerocopy_SOURCES = \
	tests/unit/transports/test_tcp_zerocopy.c $(tcp_fixture)
tests_unit_transports_test_tcp_zerocopy_LDADD = $(unit_test_libs)

check_PROGRAMS += tests/unit/transports/test_shm_phase
TESTS += tests/unit/transports/test_shm_phase
tests_unit_transports_test_shm_phase_SOURCES = tests/unit/transports/test_shm_phase.c
tests_unit_transports_test_shm_phase_LDADD = $(unit_test_libs)

check_PROGRAMS += tests/unit/transports/test_ucx_phase
TESTS += tests/unit/transports/test_ucx_phase
tests_unit_transports_test_ucx_phase_SOURCES = tests/unit/transports/test_ucx_phase.c
tests_unit_transports_test_ucx_phase_LDADD = $(unit_test_libs)

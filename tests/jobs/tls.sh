#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# TLS between store and ranks, and between ranks over tcp: everything works as without TLS, no data
# is sent in clear, and a process without a valid certificate cannot join.
. "$srcdir/tests/support/job.sh"

. "$srcdir/tests/support/tls.sh"
tls_possible || { job_skip "tls" "built without OpenSSL, or no openssl command"; exit; }
JOB_LIMIT=100
hello=examples/hello_all_reduce
export DIST_TIMEOUT=20 DIST_DEBUG=warn DIST_TUNING=off DIST_TRANSPORT=tcp DIST_AUTH=none

says() { grep -qF -- "$1" "$job_output"; }

tls_authority ca
tls_authority ca2
tls_certificate good ca 2 IP:127.0.0.1,DNS:localhost
tls_certificate elsewhere ca 2 IP:192.0.2.1
tls_certificate other ca2 2 IP:127.0.0.1
tls_expired expired ca IP:127.0.0.1
export -f tls_use
export job_folder builddir hello

# Everything that works without TLS.
tls_use good ca
job self 1 tests/conformance/conformance gloo --spawn 4 --brief
[ -z "${CHECK_LONG-}" ] || DIST_TCP_SOCKETS=3 job self 1 tests/conformance/conformance gloo --spawn 3 --brief
job shell 3 tests/jobs/aborts gloo
# Buffers that split records, and are shorter than the loopback's segments.
DIST_TCP_BUFFER=4K job self 1 tests/conformance/conformance gloo --spawn 3 --brief

# Checks the sent data as the kernel sees them. Frames between ranks begin with dmsg, the store's
# with DIST.
seen()
{
    local trace=$job_folder/trace.$RANDOM
    # A traced process cannot run the leak check.
    export ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0"
    strace -f -o "$trace" -e trace=sendto,sendmsg,write,writev "$builddir/$hello" || return
    if grep -qE 'send.*"(dmsg|DIST)' "$trace"; then echo in clear; fi
}
export -f seen
if strace -o /dev/null true 2>/dev/null; then
    job shell 2 "$BASH" -c seen
    job_check "no data is sent in clear" eval '! says "in clear"'
    (
        unset DIST_TLS_CERT DIST_TLS_KEY DIST_TLS_CA
        job shell 2 "$BASH" -c seen
        says "in clear"
    )
    job_check "without TLS data is sent in clear" [ $? = 0 ]
else
    job_skip "data that is sent in clear" "no strace, or it may not trace"
fi

# rank1 CERTIFICATE AUTHORITY: rank 1 has those, or none; rank 0 has the valid ones.
first_and_second()
{
    if [ "$RANK" = 0 ]; then tls_use "$1" "$2"; else tls_use "$3" "$4"; fi
    [ -s "$DIST_TLS_CERT" ] || unset DIST_TLS_CERT DIST_TLS_KEY DIST_TLS_CA
    exec "$builddir/$hello"
}
export -f first_and_second
refused()
{
    local text=$1
    shift
    DIST_TIMEOUT=$((3 * job_patience)) job_fails "$text" shell 2 "$BASH" -c 'first_and_second "$@"' first "$@"
}
refused "its certificate is not valid" good ca other ca2
job_check "the store reports it too" says "refused this end's certificate"
refused "mismatch" elsewhere ca good ca
refused "renew it" good ca expired ca
refused "requires TLS, but this rank does not use it: set DIST_TLS_CERT" good ca none none
job_check "the store reports a connection without TLS" says "it does not use TLS"
refused "a TLS handshake failed there" none none good ca
job_check "a store without TLS reports a connection with TLS" says "it uses TLS, but the store does not"
unset DIST_TLS_KEY
job_fails "DIST_TLS_KEY is not set" shell 2 $hello
tls_use good ca
job shell 3 $hello

# A killed rank is detected and named as without TLS.
for phase in connect middle; do
    DIST_TIMEOUT=10 job shell 4 tests/jobs/kills gloo $phase 1
done

# distrun's agents and what they send.
two_agents()
{
    local port node pids=()
    port=$(job_port)
    for node in 0 1; do
        "$builddir/distrun" --nnodes 2 --nproc-per-node 1 --node-rank $node --rdzv-id tls \
            --rdzv-endpoint "127.0.0.1:$port" "$builddir/$hello" &
        pids+=($!)
    done
    wait "${pids[0]}" && wait "${pids[1]}"
}
export -f two_agents job_port
job self 2 "$BASH" -c two_agents
job_check "the ranks of both nodes sum" says "rank 1 of 2: sum 1"

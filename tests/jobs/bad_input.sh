#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Misuse ends with a clear error, a non-zero exit code, no hang, and no process left.
. "$srcdir/tests/support/job.sh"

JOB_LIMIT=60
quick=(--max-steps 2 --train-samples 128 --test-samples 64 --arch mlp)
spawn=(--multiprocessing-distributed --world-size 2 --dist-backend gloo)
export DIST_TIMEOUT=30

# Backends
job_fails "backend 'glue' cannot be used" self 1 train_mnist --dist-backend glue "${quick[@]}"
job_fails "self   yes" self 1 train_mnist --dist-backend glue "${quick[@]}"
job_fails "backend self supports only one rank" self 2 train_mnist "${quick[@]}" \
    --multiprocessing-distributed --world-size 2 --dist-backend self
job_fails "mpirun -np 4" openmpi 2 train_mnist --dist-backend mpi --world-size 4 "${quick[@]}"

# Rendezvous
MASTER_ADDR='' RANK=0 WORLD_SIZE=2 job_fails "MASTER_ADDR" self 1 train_mnist --dist-backend gloo \
    --dist-url env:// "${quick[@]}"
RANK=5 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 job_fails "rank 5" self 1 train_mnist \
    --dist-backend gloo "${quick[@]}"
RANK=two WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 job_fails "RANK" self 1 train_mnist \
    --dist-backend gloo "${quick[@]}"
job_fails "pigeon://here" self 1 train_mnist --dist-url pigeon://here --rank 0 --world-size 2 \
    --dist-backend gloo "${quick[@]}"
job_fails "rank 1" self 1 train_mnist --dist-url tcp://127.0.0.1:"$(job_port)" --rank 0 \
    --world-size 2 --dist-backend gloo --timeout 2 "${quick[@]}"

# A port on which another program listens: the error names the server's address and port.
port=$(job_port)
python3 -c 'import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.1", int(sys.argv[1]))); s.listen(); time.sleep(60)' "$port" &
listener=$!
job_until job_listens "$port"
job_fails "127.0.0.1 port $port is already in use" self 1 train_mnist --dist-url "tcp://127.0.0.1:$port" --rank 0 \
    --world-size 2 --dist-backend gloo "${quick[@]}"
kill $listener

# Data
job_fails "/nonexistent" self 2 train_mnist --data /nonexistent "${spawn[@]}"
digits=$job_folder/digits
mkdir "$digits"
printf '\0\0\10\3\0\0\0\2\0\0\0\34\0\0\0\34short' >"$digits/train-images-idx3-ubyte"
printf '\0\0\10\1\0\0\0\2\1\2' >"$digits/train-labels-idx1-ubyte"
cp "$digits/train-images-idx3-ubyte" "$digits/t10k-images-idx3-ubyte"
cp "$digits/train-labels-idx1-ubyte" "$digits/t10k-labels-idx1-ubyte"
job_fails "train-images-idx3-ubyte" self 2 train_mnist --data "$digits" "${spawn[@]}"
job_check "the byte offset is in the error" grep -Eq '(byte|offset) *2?[0-9]+' "$job_output"
printf '\0\0\7\3' >"$digits/train-images-idx3-ubyte"
job_fails "train-images-idx3-ubyte" self 1 train_mnist --data "$digits"

# Options
job_fails "--epochs" self 1 train_mnist --epochs 1x
job_fails "--batch-size" self 1 train_mnist --batch-size -3
job_fails "--lr" self 1 train_mnist --lr ''
job_fails "frobnicate" self 1 train_mnist --frobnicate
DIST_ALGO=all_reduce:rung job_fails "recursive_doubling" self 2 train_mnist "${quick[@]}" "${spawn[@]}"
DIST_TUNING=/no/such job_fails "is not off, measure or a valid tuning file" self 2 train_mnist "${quick[@]}" "${spawn[@]}"
DIST_TRANSPORT=pigeon job_fails "pigeon" self 2 train_mnist "${quick[@]}" "${spawn[@]}"
DIST_TIMEOUT=soon job_fails "DIST_TIMEOUT" self 2 train_mnist "${quick[@]}" "${spawn[@]}"

# Settings that differ between ranks would leave messages unmatched.
different() { DIST_ALGO=all_reduce:$([ "$RANK" = 1 ] && echo ring || echo direct) exec "$@"; }
export -f different
job_fails "set the same values on all ranks for DIST_ALGO" shell 2 "$BASH" -c 'different "$@"' different \
    "$builddir/train_mnist" --dist-backend gloo "${quick[@]}"

# An unknown DIST_ variable: one warning per job, with the name that was probably meant, at any log
# level unless it is suppressed.
hello=examples/hello_all_reduce
told() { [ "$(grep -c "WARN.*DIST_BACKND (did you mean DIST_BACKEND, " "$job_output")" = "$1" ]; }
DIST_DEBUG=warn DIST_BACKND=mpi DIST_TIMOUT=3 job shell 3 $hello
job_check "one warning for an unknown variable" told 1
DIST_BACKND=mpi DIST_TIMOUT=3 job shell 3 $hello
job_check "one warning without a log level" told 1
DIST_DEBUG=0 DIST_BACKND=mpi job shell 2 $hello
job_check "no warning if it is suppressed" told 0
DIST_OF_SOMEBODY_ELSE=1 job shell 2 $hello
job_check "no warning for a name unlike any other without a log level" [ "$(grep -c 'does not know' "$job_output")" = 0 ]
only_last() { [ "$RANK" != 2 ] || export DIST_BACKND=mpi; exec "$@"; }
export -f only_last
DIST_DEBUG=warn job shell 3 "$BASH" -c 'only_last "$@"' only_last "$builddir/$hello"
job_check "one warning if only the last rank has the variable" told 1
touch "$job_folder/dist_theirs.so"
DIST_DEBUG=warn DIST_PLUGIN_PATH=$job_folder DIST_THEIRS_LIBRARY=x DIST_BENCH_PEERS=x job shell 2 $hello
job_check "no warning for a module's own variable" [ "$(grep -c 'does not know' "$job_output")" = 0 ]

# The library leaves no name in /dev/shm.
job_check "nothing is left in /dev/shm" test -z "$(ls /dev/shm 2>/dev/null | grep -i dist)"

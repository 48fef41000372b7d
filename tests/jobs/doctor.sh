#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# dist_info doctor finds each fault that is planted here, and its advice fixes the fault. Faults of the
# machine are planted in separate namespaces.
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/tls.sh"

# Files that the advice creates in TMPDIR are removed with the job's directory.
export TMPDIR=$job_folder

# Run the program itself: another user may not write where libtool's wrapper does.
doctor=$builddir/dist_info
[ ! -x "$builddir/.libs/dist_info" ] || doctor=$builddir/.libs/dist_info
export doctor LD_LIBRARY_PATH=$builddir/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
unset OPENBLAS_CORETYPE CUDA_VISIBLE_DEVICES

# try CHECK LEVEL SETUP OPTIONS INSTEAD WORDS, in a separate shell: plants the fault, checks that it is
# reported with WORDS, runs the reported fix (or INSTEAD, if the fix would change the machine), and checks
# that the fault is no longer reported.
try()
{
    local check=$1 level=$2 with= found fix code
    eval "$3" || { echo "the fault cannot be planted"; return 77; }
    found=$($with "$doctor" doctor $4) && code=$? || code=$?
    echo "$found"
    grep -qE "^$level +$check .*$6" <<<"$found" || { echo "it is not found"; return 1; }
    [ "$level" = note ] || [ $code = 1 ] || { echo "exit $code"; return 1; }
    fix=$(sed -nE "/^$level +$check /{n;s/^    [$] //p}" <<<"$found" | head -n 1)
    [ -n "$fix$5" ] || { echo "there is no command"; return 1; }
    echo "fix: ${5:-$fix}"
    eval "${5:-$fix}" || { echo "the command fails"; return 1; }
    found=$($with "$doctor" doctor $4)
    echo "$found"
    ! grep -E "^$level +$check " <<<"$found"
}
export -f try

# planted NAME CHECK SETUP [OPTIONS [INSTEAD [WORDS]]]
level=FAULT spaces=()
planted()
{
    "${spaces[@]}" "$BASH" -c 'try "$@"' try "$2" "$level" "$3" "${4-}" "${5-}" "${6-}" >"$job_output" 2>&1
    case $? in
    0) job_pass "$2: $1" ;;
    77) job_skip "$2: $1" "$(tail -n 1 "$job_output")" ;;
    *) job_fail "$2: $1" "see below" ;;
    esac
}

# ---- settings and limits ----

planted "a name with a missing letter" variables 'export DIST_BACKND=gloo'
planted "a name unlike any other" variables 'export DIST_ZZZZZZZZZZZZ=1'
planted "a value that jobs refuse" variables 'export DIST_TIMEOUT=abc'
planted "a host that is not there" master-addr 'export MASTER_ADDR=no.such.host.invalid'
planted "shared memory without CMA" cma 'export DIST_SHM_CMA=0'
planted "a cache that is no folder" cache 'export XDG_CACHE_HOME=/dev/null'
planted "a GPU driver that is not there" gpu 'export DIST_GPU_DRIVER=/no/driver.so'
planted "little locked memory" locked-memory 'ulimit -l 64; export DIST_TCP_ZEROCOPY=on'
# Few users may raise a hard limit again: the advice is then to open a new session.
if (ulimit -H -n 256 && ulimit -H -n 65536) 2>/dev/null; then
    planted "256 open files" open-files 'ulimit -n 256'
else
    planted "256 open files" open-files 'with="prlimit --nofile=256"' "" 'with='
fi

# uncertified NAME SETUP WORDS: certificates of a job, each defective in one way.
uncertified() { planted "$1" tls "tls_use good ca; $2" "" 'tls_use good ca' "$3"; }
if tls_possible; then
    name=$(uname -n)
    tls_authority ca
    tls_authority other
    tls_certificate good ca 30 "IP:127.0.0.1,DNS:$name"
    tls_certificate away ca 30 IP:192.0.2.1
    tls_expired expired ca IP:127.0.0.1
    tls_certificate dns ca 30 "DNS:$name"
    tls_certificate "$name" ca 30 email:rank@example.org
    tls_certificate server ca 30 $'IP:127.0.0.1\nextendedKeyUsage=serverAuth'
    tls_certificate client ca 30 $'IP:127.0.0.1\nextendedKeyUsage=clientAuth'
    for made in ca other good away expired dns "$name" server client; do
        job_check "tls: there is a certificate $made" [ -s "$job_folder/$made.pem" ]
    done
    chmod 600 "$job_folder"/*.key
    export -f tls_use
    export job_folder
    planted "a certificate without a key" tls 'tls_use good ca; unset DIST_TLS_KEY' "" "" \
        'DIST_TLS_KEY is not set'
    planted "a key that every user can open" tls 'tls_use good ca; chmod 644 "$DIST_TLS_KEY"' "" "" \
        'can be opened by every user'
    uncertified "no file" 'DIST_TLS_CERT=/no/file' 'DIST_TLS_CERT=/no/file cannot be read'
    uncertified "no certificate" 'DIST_TLS_CERT=/etc/passwd' 'begins with no certificate'
    uncertified "no authority" 'DIST_TLS_CA=/etc/passwd' 'contains no certificate of an authority'
    uncertified "another's key" 'DIST_TLS_KEY=$job_folder/away.key' 'is not the key of DIST_TLS_CERT'
    uncertified "another authority" 'tls_use good other' 'is not valid: .*issuer'
    uncertified "an expired certificate" 'tls_use expired ca' 'has expired'
    uncertified "another machine's" 'tls_use away ca' 'names no address of this machine'
    uncertified "a DNS name only" 'tls_use dns ca' 'by its host name only'
    uncertified "a common name only" "tls_use $name ca" 'names no address of this machine'
    uncertified "for servers only" 'tls_use server ca' 'is not valid: .*purpose'
    uncertified "for clients only" 'tls_use client ca' 'is not valid: .*purpose'
else
    job_skip "tls" "built without OpenSSL, or no openssl command"
fi

unset OMPI_MCA_rmaps_base_oversubscribe PRTE_MCA_rmaps_default_mapping_policy
unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
if [ -n "$OPENMPI_RUN" ]; then
    export OPENMPI_RUN
    planted "more ranks than slots" slots : "--ranks 4096"
    if [ "$(id -u)" = 0 ]; then
        planted "root" root :
        planted "root, and mpirun says so" root '! $OPENMPI_RUN -np 1 true'
        planted "mpirun agrees about slots" slots 'export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
            ! $OPENMPI_RUN -np 100 true' "--ranks 100"
    fi
else
    job_skip "slots, root" "no Open MPI here"
fi
. "$srcdir/scripts/openmpi.sh"

# ---- the machine ----

if unshare -m -n -u true 2>/dev/null; then
    spaces=(unshare -m -n -u)
    files=$job_folder/files
    mkdir "$files"
    export files

    # A pair of connected interfaces; one looks like a container's bridge.
    wire='ip link set lo up; ip link add docker0 type veth peer name eth7 &&
        ip addr add 10.9.8.1/24 dev docker0 && ip addr add 10.9.7.1/24 dev eth7 &&
        ip link set docker0 up && ip link set eth7 up'
    names='echo "hosts: files" >$files/nss; mount --bind $files/nss /etc/nsswitch.conf &&
        mount --bind $files/hosts /etc/hosts && hostname planted'
    planted "docker0 before others" interface "$wire && ip route add default dev docker0"
    planted "docker0 towards MASTER_ADDR" interface "$wire; export MASTER_ADDR=10.9.8.77"
    planted "no route to MASTER_ADDR" route "$wire; export MASTER_ADDR=10.99.0.1"
    planted "no such interface" interface "$wire; export DIST_SOCKET_IFNAME=ib"
    # The fix writes to the file itself.
    debian="printf '127.0.0.1 localhost\n127.0.1.1 planted.example planted\n' >\$files/hosts; $wire; $names
        unset HYDRA_IFACE"
    level=note planted "127.0.1.1 in /etc/hosts" host-name "$debian"
    planted "127.0.1.1 and MPICH over several hosts" host-name "$debian; export HYDRA_HOST_FILE=hosts"
    planted "MASTER_ADDR is this machine, which is not the first" master-addr "$debian
        export MASTER_ADDR=planted WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 LOCAL_RANK=0 RANK=2" "" 'export RANK=0'
    echo '127.0.0.1 localhost' >"$files/hosts"
    planted "a name without an address" host-name "$wire; $names"

    planted "a small /dev/shm" dev-shm 'mount -t tmpfs -o size=1m tmpfs /dev/shm' "" \
        'mount -o remount,size=256m /dev/shm'
    planted "a full /dev/shm" dev-shm 'mount -t tmpfs -o size=100m tmpfs /dev/shm &&
        fallocate -l 90m /dev/shm/old && touch -d "2 hours ago" /dev/shm/old'
    planted "no /dev/shm" dev-shm 'mount -t tmpfs tmpfs /dev && mknod -m 666 /dev/null c 1 3'
    planted "no /proc" shared-memory 'mount -t tmpfs tmpfs /proc'
    level=note planted "no huge pages" huge-pages 'mount -t tmpfs tmpfs /sys/kernel/mm/transparent_hugepage &&
        echo "always [never]" >/sys/kernel/mm/transparent_hugepage/shmem_enabled'
    planted "a slow clock" clock 'echo hpet >$files/clock &&
        mount --bind $files/clock /sys/devices/system/clocksource/clocksource0/current_clocksource'
    if [ "$(nproc)" -gt 1 ]; then
        planted "a quota of half a CPU" cpu-quota 'unset OMP_NUM_THREADS
            mount -t tmpfs tmpfs /sys/fs/cgroup && mkdir /sys/fs/cgroup/cpu && cd /sys/fs/cgroup &&
            echo 50000 100000 >cpu.max && echo 50000 >cpu/cpu.cfs_quota_us &&
            echo 100000 >cpu/cpu.cfs_period_us'
    else
        job_skip "cpu-quota" "one CPU only"
    fi
    planted "a BLAS kernel for another CPU" blas 'echo "flags : fpu sse2 avx" >$files/cpu &&
        mount --bind $files/cpu /proc/cpuinfo && export OPENBLAS_CORETYPE=Haswell'
    planted "UCX is forbidden, and there is InfiniBand" openmpi-ucx 'mount -t tmpfs tmpfs /sys/class &&
        mkdir -p /sys/class/infiniband/mlx5_0 && mount -t tmpfs tmpfs /usr/local/etc &&
        echo "pml = ^ucx" >/usr/local/etc/openmpi-mca-params.conf'

    # GPUs on the bus, and drivers for them.
    bus='mount -t tmpfs tmpfs /sys/bus/pci/devices && mkdir /sys/bus/pci/devices/x &&
        echo 0x10de >/sys/bus/pci/devices/x/vendor && echo 0x030200 >/sys/bus/pci/devices/x/class'
    if job_has_modules; then
        ln -s "$builddir/.libs/standin_cuda.so" "$files/libcuda.so.1"
        if ldconfig -p | grep -q 'libcuda\.so\.1'; then
            job_skip "gpu: no driver" "this machine has one"
        else
            planted "no driver" gpu "$bus" "" 'export LD_LIBRARY_PATH=$files:$LD_LIBRARY_PATH'
        fi
        ln -s "$builddir/.libs/newer_runtime.so" "$files/libcudart.so.13"
        planted "a driver that is too old" gpu 'export DIST_GPU_DRIVER=$files/libcuda.so.1 \
            LD_LIBRARY_PATH=$files:$LD_LIBRARY_PATH' "" 'rm $files/libcudart.so.13'
        planted "all GPUs are hidden" gpu "$bus; "'export CUDA_VISIBLE_DEVICES= \
            DIST_GPU_DRIVER=$files/libcuda.so.1'
    fi

    # Limits of a user who is not root.
    spaces=(unshare -m setpriv --reuid 54321 --clear-groups)
    if [ "$(id -u)" = 0 ] && "${spaces[@]}" "$doctor" --version >/dev/null 2>&1; then
        planted "few processes" processes 'ulimit -S -u 40'
    else
        job_skip "processes" "no other user can run the program here"
    fi
else
    job_skip "faults of the machine" "no right to make namespaces"
fi

# Faults that no command can fix from within the sandbox: they disappear without the sandbox.
refused()
{
    "$builddir/tests/jobs/denied" "$1" "$doctor" doctor >"$job_output" 2>&1
    [ $? = 77 ] && { job_skip "$1 is refused" "$(tail -n 1 "$job_output")"; return; }
    job_check "$2: the refusal is found" grep -qE "^FAULT +$2 " "$job_output"
    job_check "$2: with advice" grep -q 'seccomp=unconfined' "$job_output"
    "$doctor" doctor >"$job_output"
    job_check "$2: not found without the filter" grep -qE "^ok +$2 " "$job_output"
}
refused memfd shared-memory
refused cma cma

# ---- forms ----

job_launch self 1 dist_info doctor --format json
job_check "its output is valid JSON" python3 -c 'import json, sys
rows = json.load(open(sys.argv[1]))
assert {"ok", "note", "fault"} >= {row["level"] for row in rows} and len(rows) > 15' "$job_output"
job_fails "--ranks" self 1 dist_info doctor --ranks 0
job_check "misuse: exit 2" [ "$job_status" = 2 ]
job_fails "no launcher has started" self 1 dist_info doctor --job

# ---- the ranks of a job ----

says() { grep -qE -- "$1" "$job_output"; }
job_launch shell 4 dist_info doctor --job
job_check "all ranks answer in one report" says '^4 ranks on 1 host$'
job_check "equal results are printed once" [ "$(grep -cE '^ok +system ' "$job_output")" = 1 ]
job_check "nothing differs" says ', 0 differences$'
job_launch shell 3 "$BASH" -c '[ $RANK != 1 ] || export DIST_SHM_CMA=0; exec "$doctor" doctor --job'
job_check "a difference is printed with the rank" says '^FAULT +cma +\[rank 1 on '
job_check "the number of differences" says ', 1 difference$'
if [ -n "$OPENMPI_RUN" ]; then
    job_launch openmpi 2 dist_info doctor --job
    job_check "Open MPI's ranks" says '^2 ranks on 1 host$'
fi
cluster=$srcdir/bench/netns-cluster
[[ $cluster == /* ]] || cluster=$PWD/$cluster
if "$cluster" true 2>/dev/null; then
    "$cluster" -k 2 -n 2 "$BASH" -c '[ $RANK -lt 2 ] || ulimit -n 512; exec "$doctor" doctor --job' \
        >"$job_output" 2>&1
    job_check "the hosts of a job" says '^4 ranks on 2 hosts$'
    job_check "the host that differs" says '^FAULT +open-files +\[node1\] '
    job_check "the result of the other host" says '^ok +open-files +\[node0\] '
else
    job_skip "two hosts" "no right to make namespaces"
fi
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(job_port) \
    job_fails "The job cannot be set up" self 1 dist_info doctor --job --timeout 1
job_check "a rank that cannot join reports for itself" says '^ok +system '

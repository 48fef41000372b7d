# SPDX-License-Identifier: BSD-3-Clause
# A Slurm of four nodes, n1 to n4, on this machine. Source it before job.sh: it runs the script again in
# new namespaces. When the script ends, the namespaces end with all daemons.
#
#   slurm_start            starts Slurm; false: not possible, and $slurm_why is the reason
#
# The daemons' files are in $job_folder. Each node has its own host name and temporary directory, by
# which Slurm's PMIx distinguishes the nodes.

slurm_why=''
for slurm_tool in slurmctld slurmd munged srun sbatch unshare ip; do
    PATH=$PATH:/usr/sbin:/sbin type -P $slurm_tool >/dev/null ||
        slurm_why="no program $slurm_tool here: install slurmctld slurmd slurm-client munge iproute2"
done
[ "$(id -u)" = 0 ] || slurm_why="Slurm's daemons start programs as root"

slurm_namespaces=(unshare --net --mount --pid --fork --kill-child --mount-proc)
if [ -z "$slurm_why" ] && [ -z "${slurm_inside-}" ]; then
    export slurm_inside=yes PATH=$PATH:/usr/sbin:/sbin
    "${slurm_namespaces[@]}" true 2>/dev/null &&
        exec setpriv --pdeathsig KILL "${slurm_namespaces[@]}" "$BASH" "$0"
    slurm_why="no namespaces here"
fi

# Creates a network interface, because Slurm requires an address other than the loopback's, and the host
# names of the nodes.
slurm_network()
{
    ip link set lo up && ip link add slurm0 type veth peer name slurm1 &&
        ip addr add 198.18.0.1/24 dev slurm0 && ip link set slurm0 up && ip link set slurm1 up &&
        echo "127.0.0.1 localhost n1 n2 n3 n4 $(uname -n)" >"$job_folder/hosts" &&
        mount --bind "$job_folder/hosts" /etc/hosts
}

slurm_configure()
{
    cat <<END_OF_FILE
ClusterName=test
SlurmctldHost=localhost
SlurmctldPort=6817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$job_folder/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SchedulerType=sched/builtin
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation=$job_folder/state
SlurmdSpoolDir=$job_folder/spool.%n
TmpFS=$job_folder/tmp
SlurmctldPidFile=$job_folder/slurmctld.pid
SlurmdPidFile=$job_folder/slurmd.%n.pid
NodeName=n[1-4] NodeHostname=n[1-4] NodeAddr=127.0.0.1 Port=[7001-7004] CPUs=8 State=UNKNOWN
PartitionName=all Nodes=n[1-4] Default=YES State=UP OverSubscribe=FORCE:8
END_OF_FILE
}

# slurm_daemon COMMAND...: starts a daemon, without the descriptor of the test's lock.
slurm_daemon()
{
    "$@" </dev/null >>"$job_folder/daemons" 2>&1 9>&- &
    slurm_pids+=($!)
}

slurm_munge()
{
    local munge=$job_folder/munge
    mkdir -p "$munge" && chmod 755 "$job_folder" && chmod 700 "$munge" &&
        head -c 1024 /dev/urandom >"$munge/key" && chmod 400 "$munge/key" &&
        slurm_daemon munged --foreground --force --key-file="$munge/key" \
            --socket="$munge/socket" --pid-file="$munge/pid" --seed-file="$munge/seed"
}

slurm_is_up() { [ "$(timeout 2 sinfo -h -t idle -o %D 2>/dev/null)" = 4 ]; }

slurm_start()
{
    local try node
    [ -z "$slurm_why" ] || return
    slurm_pids=()
    export SLURM_CONF=$job_folder/slurm.conf
    slurm_why="its daemons do not start"
    mkdir -p "$job_folder"/{state,tmp,{spool,tmp}.n{1,2,3,4}}
    slurm_network 2>"$job_folder/why" || { slurm_why=$(tail -n 1 "$job_folder/why"); return 1; }
    slurm_configure >"$SLURM_CONF"
    slurm_munge || return
    slurm_daemon slurmctld -D
    for node in n1 n2 n3 n4; do
        slurm_daemon unshare --uts --mount sh -c \
            'hostname "$0" && mount --bind "$1/tmp.$0" "$1/tmp" && exec slurmd -D -N "$0"' \
            $node "$job_folder"
    done
    for ((try = 0; try < 100; try++)); do
        slurm_is_up && return
        sleep 0.1
    done
    tail -n 20 "$job_folder/daemons"
    return 1
}

slurm_end()
{
    local status=$?
    [ -z "${slurm_pids-}" ] || kill -KILL "${slurm_pids[@]}"
    wait 2>/dev/null
    return $status
} 2>/dev/null

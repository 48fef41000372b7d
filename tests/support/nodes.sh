# SPDX-License-Identifier: BSD-3-Clause
# Runs jobs on two machines. The second one is a network namespace, which the library considers another
# machine. Sourced after job.sh.
#
#   node_make                                  creates the second machine; false: not possible, and the
#                                              reason is on stderr
#   nodes RANKS "RANKS OF THE OTHER MACHINE" PROGRAM [ARGUMENT]...
#                                              runs a job; the listed ranks run on the second machine

export node_cpus node_name=dist-$$
# A network of four addresses. Each script has another, since scripts run in parallel.
export node_network=198.18.$(($$ / 64 % 256)).
node_subnet=$node_network$(($$ % 64 * 4))/30
export node_here=$node_network$(($$ % 64 * 4 + 1)) node_there=$node_network$(($$ % 64 * 4 + 2))

# node_cpus: the CPUs that this process may use, such as "0-3,8".
node_cpus=$(taskset -cp $$ 2>/dev/null) node_cpus=${node_cpus##*: }

node_make()
{
    ip netns add "$node_name" &&
        ip link add "dA$$" type veth peer name "dB$$" &&
        ip link set "dB$$" netns "$node_name" &&
        ip addr add "$node_here/30" dev "dA$$" &&
        ip link set "dA$$" up &&
        # Without this route, packets would be sent to the default router while the link is down,
        # and the router would refuse them.
        ip route add unreachable "$node_subnet" metric 1000 &&
        ip netns exec "$node_name" ip addr add "$node_there/30" dev "dB$$" &&
        ip netns exec "$node_name" ip link set "dB$$" up &&
        ip netns exec "$node_name" ip link set lo up
}
node_end()
{
    local status=$?
    ip route del unreachable "$node_subnet" metric 1000
    ip link del "dA$$"
    ip netns del "$node_name"
    return $status
} 2>/dev/null
trap 'node_end; job_end' EXIT

# Runs one rank: on the other machine if $node_ranks lists it. MASTER_ADDR is rank 0's machine. The
# ranks of a machine share one CPU; the two machines have different CPUs if there are two.
on_nodes()
{
    export MASTER_ADDR=$node_here
    [[ " $node_ranks " == *" 0 "* ]] && MASTER_ADDR=$node_there
    [ "${CHECK_WATCHED-}" != valgrind ] || set -- "$BASH" "$srcdir/tests/support/memcheck.sh" "$@"
    case " $node_ranks " in
    *" $RANK "*) exec taskset -c "${node_cpus##*[-,]}" ip netns exec "$node_name" "$@" ;;
    *) exec taskset -c "${node_cpus%%[-,]*}" "$@" ;;
    esac
}
export -f on_nodes

nodes()
{
    export node_ranks=$2
    job shell "$1" "$BASH" -c 'on_nodes "$@"' on_nodes "${@:3}"
}


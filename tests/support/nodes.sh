# SPDX-License-Identifier: BSD-3-Clause
# Two machines: the second is a network namespace, which the library considers a machine of its own.
# Sourced after job.sh.
#
#   node_make                                  false if that is not possible, with the reason
#   nodes RANKS "RANKS OF THE OTHER MACHINE" PROGRAM [ARGUMENT]...

export node_cpus node_name=dist-$$
# A network of four addresses, which no script that runs in parallel uses.
export node_network=198.18.$(($$ / 64 % 256)).
node_subnet=$node_network$(($$ % 64 * 4))/30
export node_here=$node_network$(($$ % 64 * 4 + 1)) node_there=$node_network$(($$ % 64 * 4 + 2))

# The CPUs that may be used, such as "0-3,8".
node_cpus=$(taskset -cp $$ 2>/dev/null) node_cpus=${node_cpus##*: }

node_make()
{
    ip netns add "$node_name" &&
        ip link add "dA$$" type veth peer name "dB$$" &&
        ip link set "dB$$" netns "$node_name" &&
        ip addr add "$node_here/30" dev "dA$$" &&
        ip link set "dA$$" up &&
        # Unless there is this route, packets would use the default route while the link is down,
        # and its router would refuse them.
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

# Runs the ranks of $node_ranks on the other machine. All ranks meet at rank 0's machine. Each
# machine has a CPU of its own, and the ranks of a machine share it.
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

# nodes RANKS "RANKS OF THE OTHER MACHINE" PROGRAM [ARGUMENT]...
nodes()
{
    export node_ranks=$2
    job shell "$1" "$BASH" -c 'on_nodes "$@"' on_nodes "${@:3}"
}


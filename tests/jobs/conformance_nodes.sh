#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The conformance tests over two machines, with shared memory inside each and TCP between them. The
# second machine is a network namespace, which the library considers a machine of its own.
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/nodes.sh"

battery=$builddir/tests/conformance/conformance
program=$builddir/tests/jobs/reproducible
export DIST_TIMEOUT=30

# As on_nodes, but ranks meet at this machine's name, which is, as in Debian, another name of its
# loopback address; the other machine resolves it to a reachable address.
on_named_nodes()
{
    local hosts=$node_hosts_here
    export MASTER_ADDR=dist-node
    case " $node_ranks " in
    *" $RANK "*) exec ip netns exec "$node_name" unshare --mount "$BASH" -c \
        'mount --bind "$0" /etc/hosts && exec "$@"' "$node_hosts_there" "$@" ;;
    esac
    exec unshare --mount "$BASH" -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$hosts" "$@"
}
export -f on_named_nodes

if ! node_make 2>"$job_folder/why"; then
    job_skip "two machines" "no network namespaces here: $(tail -n 1 "$job_folder/why")"
    exit
fi

nodes 4 "2 3" "$battery" gloo --brief
nodes 5 "1 4" "$battery" gloo --brief --mode group

export node_hosts_here=$job_folder/hosts-here node_hosts_there=$job_folder/hosts-there
printf '127.0.0.1 localhost\n127.0.1.1 dist-node\n' >"$node_hosts_here"
printf '127.0.0.1 localhost\n%s dist-node\n' "$node_here" >"$node_hosts_there"
named_nodes()
{
    export node_ranks=$2
    job shell "$1" "$BASH" -c 'unset LOCAL_RANK; on_named_nodes "$@"' on_named_nodes "${@:3}"
}
if unshare --mount true 2>/dev/null; then
    named_nodes 3 "1" "$battery" gloo --brief --only all_reduce
    DIST_SOCKET_IFNAME="=dA$$,dB$$" named_nodes 3 "2" "$battery" gloo --brief --only all_reduce
else
    job_skip "a name that is the loopback's" "no mount namespaces here"
fi

algorithms=all_reduce:hierarchical,all_gather:hierarchical,all_gather_v:hierarchical
algorithms+=,reduce_scatter:hierarchical,reduce_scatter_v:hierarchical
DIST_ALGO=$algorithms nodes 5 "2 3" "$battery" gloo --brief --mode flood
DIST_REPRODUCIBLE=1 nodes 3 "0 2" "$battery" gloo --brief --mode async

# Results must not depend on which machine a rank is on.
hash_of() { sed -n 's/^hash //p' "$job_output"; }
same() { [ -n "$reference" ] && [ "$(hash_of)" = "$reference" ]; }
for ranks in 3 5; do
    job self $ranks "$program" gloo $ranks option
    reference=$(hash_of)
    for there in "2" "0 1 4"; do
        nodes $ranks "$there" "$program" gloo 0 option
        job_check "$ranks ranks, $there on the other machine: equal bits" same
    done
done

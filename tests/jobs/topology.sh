#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# dist_info topology: the text and the picture show the ranks where they should be.
. "$srcdir/tests/support/job.sh"
# hwloc's PCI module leaks memory and is unloaded before the leak check, which cannot attribute the
# leaks.
export ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0"

says() { grep -qE -- "$1" "$job_output"; }
has_hwloc() { grep -q '^#define HAVE_HWLOC' "$builddir/config.h"; }

# boxes FILE: no two cells overlap, every box is within the page, and each rank is in the picture
# once.
cat >"$job_folder/boxes.py" <<'END'
import re, sys
text, ranks = open(sys.argv[1]).read(), int(sys.argv[2])
page = [int(n) for n in re.search(r'<svg [^>]*width="(\d+)" height="(\d+)"', text).groups()]
boxes = [([int(n) for n in m[:4]], m[4].split()[0]) for m in
         re.findall(r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)" rx="4" class="([a-z ]+)"', text)]
assert boxes and all(x + w <= page[0] and y + h <= page[1] for (x, y, w, h), _ in boxes), "beyond the page"
for kinds in (("machine",), ("package",), ("numa",), ("idle", "one", "shared", "gpu")):
    same = [box for box, kind in boxes if kind in kinds]
    for i, (x, y, w, h) in enumerate(same):
        for X, Y, W, H in same[:i]:
            assert x >= X + W or X >= x + w or y >= Y + H or Y >= y + h, ("overlap", kinds)
found = []
for title in re.findall(r'<title>core [^:]*: ranks? ([0-9,-]+)</title>', text):
    for item in title.split(","):
        ends = item.split("-")
        found += range(int(ends[0]), int(ends[-1]) + 1)
assert sorted(found) == list(range(ranks)), found
END
picture() { job_check "a picture: $1" python3 "$job_folder/boxes.py" "$job_folder/x.svg" "$2"; }

job self 1 dist_info topology
job_check "the machine" says '^[^ ]+: [0-9]+ cores'
job_check "no ranks without a job" eval '! says rank'
job self 2 dist_info topology --ranks 2
job_check "ranks" says ' ranks? 0'
job_fails "No such file" self 1 dist_info topology --svg "$job_folder/no/x.svg"
job_fails "unknown argument" self 1 dist_info topology all
has_hwloc || { job_skip "described machines" "built without hwloc"; exit; }

# On described machines each rank gets a core, and additional ranks share cores evenly.
for machine in "pack:2 numa:2 core:8 pu:2" "pack:1 core:3 pu:1" "numa:1 core:96 pu:1" "pack:8 numa:1 core:2 pu:1"; do
    for ranks in 1 5 16; do
        HWLOC_SYNTHETIC=$machine job self $ranks dist_info topology --ranks $ranks --svg "$job_folder/x.svg"
        picture "$machine, $ranks ranks" $ranks
    done
done
HWLOC_SYNTHETIC="pack:2 numa:2 core:8 pu:2" job self 4 dist_info topology --ranks 4
job_check "each NUMA node has a rank" [ "$(grep -c ' rank ' "$job_output")" = 4 ]
job_check "the first core of a package" says '^ +core 16 +rank 2$'
HWLOC_SYNTHETIC="pack:1 core:4 pu:1" job shell 4 dist_info topology
job_check "the ranks of a launcher" says '^ +core 3 +rank 3$'

# GPUs: two devices below the only core, another one below the machine.
device() { echo "<object type=\"PCIDev\" name=\"$3\" gp_index=\"$1\" pci_busid=\"0000:$2:00.0\" pci_type=\"0302 [10de:2330] [10de:16c1] a1\" pci_link_speed=\"0.0\"/>"; }
sets='cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1"'
cat >"$job_folder/gpus.xml" <<END
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
<object type="Machine" os_index="0" $sets allowed_cpuset="0x1" allowed_nodeset="0x1" gp_index="1">
<object type="Package" os_index="0" $sets gp_index="2">
<object type="NUMANode" os_index="0" $sets gp_index="3" local_memory="1073741824"/>
<object type="Core" os_index="0" $sets gp_index="4">
<object type="PU" os_index="0" $sets gp_index="5"/>
</object>
<object type="Bridge" gp_index="6" bridge_type="0-1" depth="0" bridge_pci="0000:[01-02]">
$(device 7 01 "GPU A")
$(device 8 02 "GPU &lt;&amp;&gt; B")
</object>
</object>
</object>
</topology>
END
export HWLOC_XMLFILE=$job_folder/gpus.xml
job self 3 dist_info topology --ranks 3
job_check "GPUs and their ranks" says '^ +GPU 1 GPU <&> B  rank 1$'
job_check "a GPU for each of the first ranks" [ "$(grep -cE '^ +GPU .* rank ' "$job_output")" = 2 ]
DIST_DEVICE=1 job self 2 dist_info topology --ranks 2
job_check "DIST_DEVICE" says '^ +GPU 1 .*ranks 0-1$'
job self 3 dist_info topology --ranks 3 --svg "$job_folder/x.svg"
picture "GPUs" 3
job_check "the picture is valid XML" python3 -c 'import sys, xml.dom.minidom as dom; dom.parse(sys.argv[1])' "$job_folder/x.svg"
unset HWLOC_XMLFILE

# Several machines: the ranks of each machine use all of its cores.
cluster=$srcdir/bench/netns-cluster
[[ $cluster == /* ]] || cluster=$PWD/$cluster
"$cluster" true 2>"$job_folder/why" || { job_skip "machines" "$(tail -n 1 "$job_folder/why")"; exit; }
HWLOC_SYNTHETIC="pack:1 core:4 pu:1" "$cluster" -k 3 -n 2 "$builddir/dist_info" topology >"$job_output" 2>&1
job_check "three machines" [ "$(grep -c '^node[0-2]: 4 cores' "$job_output")" = 3 ]
job_check "the second rank of each machine is in the middle" [ "$(grep -cE '^ +core 2 +rank [135]$' "$job_output")" = 3 ]
HWLOC_SYNTHETIC="pack:1 core:4 pu:1" "$cluster" -k 3 -n 2 "$builddir/dist_info" topology --svg - \
    >"$job_folder/x.svg" 2>"$job_output"
picture "three machines" 6

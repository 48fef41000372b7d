# SPDX-License-Identifier: BSD-3-Clause
# Finds processes and files that tests leave behind. Sourced by the scripts that run tests. Functions
# to call before and after a test, where ID is one word:
#
#   left_before ID    sets a mark in the environment, and TMPDIR to a new folder
#   left_after ID     prints a line for each remaining process and file, kills and removes them;
#                     true if there were some
#
# Around a whole suite, in which tests run in parallel, to find names in /tmp and /dev/shm:
#
#   left_suite_before FILE    writes the list of existing files to FILE
#   left_suite_after FILE     prints new files that no process uses; false if there are none; removes
#                             nothing
#
# A test's processes are recognized by the mark, which they inherit, whatever program they run.

: "${LEFT_TRIES:=30}" # time limit in tenths of a second for processes to end

left_before()
{
    export TEST_LEFT=$1
    left_outer=${TMPDIR-}
    TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/dist-left.XXXXXX") && export TMPDIR
}

# Prints the processes that have the mark. Excludes this shell and its children, which have it if this
# shell called left_before.
left_processes()
{
    local pid
    for pid in $(grep -lsz "^TEST_LEFT=$1\$" /proc/[0-9]*/environ | tr -dc '0-9\n'); do
        [ "$pid" = "$$" ] || [ "$pid" = "$BASHPID" ] || left_is_mine "$pid" || echo "$pid"
    done
}
left_is_mine()
{
    local state parent
    # Ignore zombies, which only their parent can remove, and processes without a command line, which are
    # becoming zombies.
    read -r state parent < <(ps -o s=,ppid= -p "$1") || return 0
    [ "$state" = Z ] || [ "$parent" = "$BASHPID" ] ||
        [ -z "$(tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline")" ]
}

# Folders that MPIs share between jobs may remain if they are empty.
left_files() { find "$TMPDIR" -mindepth 1 ! \( -type d -empty -name 'ompi.*' \) 2>/dev/null; }

left_after()
{
    local id=$1 try pid left=no file
    for ((try = 0; try < LEFT_TRIES; try++)); do
        [ -n "$(left_processes "$id")" ] || break
        sleep 0.1
    done
    for pid in $(left_processes "$id"); do
        echo "left behind by $id: process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)"
        kill -KILL "$pid" 2>/dev/null
        left=yes
    done
    while read -r file; do
        echo "left behind by $id: ${file#"$TMPDIR/"}"
        left=yes
    done < <(left_files)
    rm -rf "$TMPDIR"
    unset TEST_LEFT
    if [ -n "$left_outer" ]; then TMPDIR=$left_outer; else unset TMPDIR; fi
    [ $left = yes ]
}

# Names used by this project, its tests and the MPIs.
left_named()
{
    find /tmp /dev/shm -maxdepth 1 -user "$(id -u)" \( -name 'dist*' -o -name 'train-test*' \
        -o -name 'train_mnist*' -o -name 'test_*' -o -name 'vader_segment*' -o -name 'sm_segment*' \
        -o -name 'mpich*' -o -name 'psm*' -o -name 'sem.*' \) 2>/dev/null | sort
}
# True if a process has the file open or mapped, or has its name in its environment: it then belongs to
# a suite that runs at the same time.
left_is_used()
{
    grep -qsF "$1" /proc/[0-9]*/environ /proc/[0-9]*/maps && return
    find /proc/[0-9]*/fd -lname "$1*" 2>/dev/null | grep -q .
}
left_suite_before() { left_named >"$1"; }
left_suite_after()
{
    local name
    left_named | comm -13 "$1" - | while read -r name; do
        left_is_used "$name" || echo "left behind by the suite: $name"
    done | grep .
}

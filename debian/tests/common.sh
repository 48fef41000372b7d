# SPDX-License-Identifier: BSD-3-Clause
# Functions that the tests of the installed packages share.
set -eu
common=$(cd "$(dirname "$0")" && pwd)
cd "${AUTOPKGTEST_TMP:?run it with autopkgtest}"
export HOME="$AUTOPKGTEST_TMP" DIST_TIMEOUT=60
. "$common/../../scripts/openmpi.sh"
export HYDRA_IFACE=lo

examples=/usr/share/doc/libdist-dev/examples

# expect TEXT COMMAND...: the command must succeed within 60 s and print TEXT.
expect()
{
    text=$1
    shift
    echo "== $*"
    timeout 60 "$@" >output 2>&1 </dev/null || { cat output; echo "FAIL: the command failed"; exit 1; }
    grep -qF -- "$text" output || { cat output; echo "FAIL: it does not say: $text"; exit 1; }
}

# compile COMPILER EXAMPLE OUTPUT
# shellcheck disable=SC2046
compile() { "$1" -Wall -Werror "$examples/$2.c" -o "$3" $(pkg-config --cflags --libs libdist) -lm; }

#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The token of ranks that join at a well-known address: from files, the user's cookie, or none.
. "$srcdir/tests/support/job.sh"

if ! grep -q '^#define HAVE_OPENSSL' "$builddir/config.h"; then
    job_skip "secrets" "built without OpenSSL"
    exit
fi
JOB_LIMIT=60
hello=examples/hello_all_reduce
export DIST_TIMEOUT=2 DIST_DEBUG=warn DIST_TUNING=off

# with NAME FIRST LAST PROGRAM...: the variable has the value FIRST on rank 0 and LAST on the other
# ranks.
with()
{
    local value=$2
    [ "$RANK" = 0 ] || value=$3
    [ -z "$value" ] || export "$1=$value"
    shift 3
    exec "$@"
}
export -f with
job_with() { job shell 3 "$BASH" -c 'with "$@"' with "$@" "$builddir/$hello"; }
job_with_fails()
{
    local text=$1
    shift
    job_fails "$text" shell 3 "$BASH" -c 'with "$@"' with "$@" "$builddir/$hello"
}
says() { grep -qF -- "$1" "$job_output"; }

mkdir "$job_folder/one" "$job_folder/two"
one=$job_folder/one/secret two=$job_folder/two/secret
(
    umask 077
    echo "the first secret $RANDOM$RANDOM" >"$one"
    cp "$one" "$two"
)

# Files: two files with equal text are the same token.
job_with DIST_SECRET_FILE "$one" "$two"
echo "another secret, longer" >"$two"
DIST_AUTH=none job_with DIST_SECRET_FILE "$one" "$two"
job_with_fails "is from $two: use a file with the same secret" DIST_SECRET_FILE "$one" "$two"
job_check "the store's log names the rank and its own file" says "which on host $(uname -n) is from $one"
DIST_AUTH=none job shell 3 $hello
job_with_fails "has no secret: use the same secret file" DIST_AUTH auto none
job_with_fails "the store there has no secret" DIST_AUTH none auto
chmod 640 "$two"
job_with_fails "chmod 600" DIST_SECRET_FILE "$one" "$two"
DIST_AUTH=maybe job_fails "auto, cookie or none" shell 2 $hello

# The cookie is created by the first job, readable for the user only, and not replaced.
export XDG_CONFIG_HOME=$job_folder/one
job shell 4 $hello
job_check "only the owner can read the cookie" \
    [ "$(stat -c %a "$job_folder/one/libdist/cookie" 2>&1)" = 600 ]
job_check "no temporary file remains" [ "$(ls -A "$job_folder/one/libdist")" = cookie ]
job_with_fails "is from $job_folder/two/libdist/cookie" \
    XDG_CONFIG_HOME "$job_folder/one" "$job_folder/two"

# The token is in no output, argument or environment.
looks()
{
    "$builddir/$hello"
    local status=$?
    cat "/proc/$$/environ" "/proc/$$/cmdline" | tr '\0' '\n'
    return $status
}
export -f looks
export builddir hello
DIST_DEBUG=trace job shell 3 "$BASH" -c looks
job_check "the token is not in the output" \
    eval '! grep -qF "$(cat "$job_folder/one/libdist/cookie")" "$job_output"'

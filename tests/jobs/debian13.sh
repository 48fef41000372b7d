#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The two commands of README.md in a bare root of Debian 13, which has Open MPI 5, newer compilers
# and newer tools: in the long form. The short form only tests the error if the root cannot be made.
JOB_ALONE=${CHECK_LONG:+yes}
. "$srcdir/tests/support/job.sh"
check=(env TMPDIR=/var/tmp "$BASH" "$srcdir/scripts/check" --chroot trixie --no-install)

mkdir "$job_folder/bin"
printf '#!/bin/sh\necho 1000\n' >"$job_folder/bin/id"
chmod +x "$job_folder/bin/id"
another_user()
{
    PATH=$job_folder/bin:$PATH "${check[@]}" >"$job_output" 2>&1 </dev/null
    [ $? -eq 77 ] && grep -q ': needs root$' "$job_output" &&
        [ "$(tail -n 1 "$job_output")" = "0 passed, 0 failed, 1 skipped" ]
}
job_check "scripts/check --chroot prints why it cannot make a root" another_user

name="README.md's two commands in a bare Debian 13"
if [ -z "${CHECK_LONG-}" ]; then
    job_skip "$name" "make check-long runs them"
    exit
fi
"${check[@]}" >"$job_output" 2>&1 </dev/null
case $? in
0) job_pass "$name: $(tail -n 1 "$job_output")" ;;
77) job_skip "$name" "$(head -n 1 "$job_output")" ;;
*) job_fail "$name" "$(tail -n 1 "$job_output")" ;;
esac

#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The documents and man pages as a site: it can be built, and every link has a target.
. "$srcdir/tests/support/job.sh"

built() { timeout 600 "$BASH" "$srcdir/scripts/site" "$job_folder/site" >"$job_output" 2>&1; }

# Tests the link checker: a page with a bad link and one with a bad anchor.
caught()
{
    local folder=$job_folder/planted
    mkdir -p "$folder" && echo '<p id="here"><a href="#here">x</a></p>' >"$folder/good.html"
    python3 "$srcdir/docs/site/check_links.py" "$folder" >"$job_output" || return
    echo '<a href="none.html">x</a> <a href="good.html#there">x</a>' >"$folder/bad.html"
    ! python3 "$srcdir/docs/site/check_links.py" "$folder" >"$job_output" &&
        grep -q 'none.html is not there' "$job_output" && grep -q '#there has no such place' "$job_output"
}

job_check "a broken link is found" caught
if [ -z "${CHECK_LONG-}" ]; then
    job_skip "the site builds, and its links have targets" "make check-long builds it"
elif ! command -v pandoc >/dev/null || ! command -v mandoc >/dev/null; then
    job_skip "the site builds, and its links have targets" "no pandoc or no mandoc"
else
    job_check "the site builds, and its links have targets" built
fi

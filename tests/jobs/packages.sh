#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The recipes for packages. The long form builds the Debian packages in clean roots of Debian 12,
# and installs, tests and removes them.
. "$srcdir/tests/support/job.sh"
recipes=$srcdir/packaging

# checked NAME PROGRAM COMMAND...: skipped if the program is missing.
checked()
{
    local name=$1 program=$2
    shift 2
    command -v "$program" >/dev/null || { job_skip "$name" "there is no $program"; return; }
    if "$@" >"$job_output" 2>&1; then job_pass "$name"; else job_fail "$name" "see above"; fi
}

# The version is in six places.
same_versions()
{
    local version
    version=$(sed -n 's/^AC_INIT(\[libdist\], \[\(.*\)\])/\1/p' "$srcdir/configure.ac")
    [ -n "$version" ] && head -n 1 "$srcdir/debian/changelog" | grep -qF "($version-" &&
        grep -qE "^Version: +$version\$" "$recipes/rpm/libdist.spec" &&
        grep -qF "version(\"$version\")" "$recipes/spack/package.py" &&
        grep -qF "version: \"$version\"" "$recipes/conda/meta.yaml"
}
job_check "all recipes have the version of configure.ac" same_versions

compiled() { python3 -c 'import sys; compile(open(sys.argv[1]).read(), sys.argv[1], "exec")' "$1"; }
checked "packaging/spack/package.py is Python" python3 compiled "$recipes/spack/package.py"

# Expressions in double braces are replaced before the YAML is parsed.
is_yaml()
{
    python3 -c '
import re, sys, yaml
text = re.sub(r"\{\{.*?\}\}", "filled", open(sys.argv[1]).read())
recipe = yaml.safe_load(text)
assert recipe["package"]["name"] == "libdist" and recipe["requirements"]["host"], recipe' "$1"
}
if python3 -c 'import yaml' 2>/dev/null; then
    checked "packaging/conda/meta.yaml is YAML" python3 is_yaml "$recipes/conda/meta.yaml"
else
    job_skip "packaging/conda/meta.yaml is YAML" "python3 has no yaml (Debian: python3-yaml)"
fi

checked "rpmspec reads packaging/rpm/libdist.spec" rpmspec rpmspec -P "$recipes/rpm/libdist.spec"
checked "rpmlint finds no error in it" rpmlint rpmlint "$recipes/rpm/libdist.spec"

if [ -n "${CHECK_LONG-}" ]; then
    archive=$job_folder/archive
    mkdir "$archive"
    { make -C "$builddir" dist && mv "$builddir"/libdist-*.tar.gz "$archive/"; } >"$job_output" 2>&1 ||
        job_fail "make dist" "see above"
    TMPDIR=/var/tmp "$BASH" "$srcdir/scripts/check-packages" --no-install "$archive"/libdist-*.tar.gz \
        >"$job_folder/said" 2>&1 </dev/null
    while IFS= read -r line; do
        case $line in
        'PASS: '*) job_pass "${line#PASS: }" ;;
        'FAIL: '*) cp "$job_folder/said" "$job_output"; job_fail "${line#FAIL: }" "see below" ;;
        'SKIP: '*) job_skip "Debian packages" "${line#SKIP: }" ;;
        esac
    done <"$job_folder/said"
else
    job_skip "Debian packages in a clean Debian 12" "make check-long builds and tests them"
fi

#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Checks the rules of the source tree. Prints one PASS, FAIL or SKIP line per rule; exit 1 if any fails.
#
# lint.sh [SOURCE [BUILD]]: the trees to read; by default those that make check names. Rules that need a
# build are skipped without one. LINT_ONLY=NAME checks only the rule of that name.
set -u
# shellcheck source=rules.sh
. "$(dirname "${BASH_SOURCE[0]}")/rules.sh"

if [ -n "${CHECK_SHORT-}" ]; then
    echo "SKIP: the rules of the source tree (the other suite checks them)"
    exit 77
fi
lint_build=${2-${builddir-}}
[ -z "$lint_build" ] || lint_build=$(cd "$lint_build" && pwd) || exit 99
cd "${1:-${srcdir:-.}}" || exit 99
lint_failed=0

# rule NAME FUNCTION: the function prints violations; nothing means that the rule is obeyed. A line
# that begins with "skip: " means that it could not be checked.
rule()
{
    local name=$1 found
    shift
    [ "${LINT_ONLY-$name}" = "$name" ] || return
    found=$("$@" 2>&1)
    case $found in
    '') echo "PASS: $name" ;;
    'skip: '*) echo "SKIP: $name (${found#skip: })" ;;
    *)
        echo "FAIL: $name"
        printf '%s\n' "$found" | head -n 40 | sed 's/^/    /'
        lint_failed=1
        ;;
    esac
}

rule "each layer includes only lower ones" rule_layers
rule "programs use only public headers" rule_public
rule "no dumps, logs or large files" rule_dumps
rule "every file begins with its licence and purpose" rule_heads
rule "the library never exits" rule_exit
rule "the environment is read in one place" rule_getenv
rule "parsers do not depend on the locale" rule_locale
rule "shared names begin with disti_" rule_names
rule "files named in READMEs and docs exist" rule_readmes
rule "README says the same in every language" rule_languages
rule "names use the words of docs/GLOSSARY.md" rule_words
rule "no open tasks in the source" rule_loose_ends
rule "every source is in the build" rule_listed
rule "every backend has a row and a man entry" rule_backends
rule "every algorithm is in dist(7)" rule_algorithms
rule "the numbers of types and operations agree with libdist(3)" rule_numbers
rule "source, table and dist-env(7) have the same variables" rule_environment
rule "man pages are well-formed" rule_man
rule "the layout is that of clang-format" rule_layout
rule "the library exports only the public functions" rule_exports
rule "exported symbols are in the list of symbols" rule_symbols
rule "every public function is in a man page" rule_described
rule "modules need no symbol of the library" rule_modules
rule "the programs' options are in their man pages" rule_options
exit $lint_failed

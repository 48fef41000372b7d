# SPDX-License-Identifier: BSD-3-Clause
# The rules of tests/lint/lint.sh. Each prints violations as "file:line: what", and reads the source
# tree in the current folder; the rules at the end also read $lint_build.

lint_home=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Lists the C files in the given folders, except those of build trees.
lint_sources()
{
    local folder
    for folder; do
        [ -d "$folder" ] && find "$folder" -name '*.[ch]' -print
    done | sort
}

# Prints "file:line:code" for each line of the C files in the given folders, without comments and
# without the text in strings.
lint_code() { lint_sources "$@" | xargs -r awk -f "$lint_home/code.awk"; }

# Prints what a layer may include besides <dist/...>, its own folder among them.
lint_layer()
{
    case $1 in
    base) echo base ;;
    topology | device | node | store | transports | endpoint) echo base "$1" ;;
    plan) echo base plan ;;
    collectives | verify) echo base topology plan "$1" ;;
    tuning) echo base topology plan tuning ;;
    simulate) echo base topology plan tuning simulate ;;
    engine) echo base topology plan tuning node endpoint engine ;;
    backends) echo base topology plan tuning node device transports engine backends ;;
    rendezvous) echo base store "$1" ;;
    launch) echo base topology store "$1" tools/common/args.h tools/common/output.h ;; # distrun is a program
    core) echo base topology node device endpoint engine backends store rendezvous core ;;
    ddp) echo base device ddp ;; # it also uses the public headers
    preload) echo preload base/ascii.h base/backoff.h base/collective.h backends/mpi/abi.h ;; # it links none of these
    *) return 1 ;;
    esac
}

# Prints "file:line target" for each include in quotes in the C files in the given folders.
lint_includes()
{
    lint_sources "$@" | xargs -r grep -HnE '^[ \t]*#[ \t]*include[ \t]*"' |
        sed -E 's/^([^:]*:[0-9]+):[^"]*"([^"]*)".*/\1 \2/'
}

# A plain name is a file of the same folder.
rule_layers()
{
    local layer at target
    local -A allowed=()
    for layer in $(lint_sources src | cut -d / -f 2 | sort -u); do
        allowed[$layer]=$(lint_layer "$layer") || echo "src/$layer: no such layer: $layer"
    done
    while read -r at target; do
        layer=${at#src/} layer=${layer%%/*}
        case $target in
        config.h) [ "$layer" = base ] || echo "$at: say <config.h>"; continue ;;
        */*) ;;
        *) continue ;;
        esac
        case " ${allowed[$layer]} " in
        '  ' | *" $target "* | *" ${target%%/*} "*) ;;
        *) echo "$at: $layer must not include ${target%%/*}" ;;
        esac
    done < <(lint_includes src)
}

# dist_sim uses plans, which are not public, so it alone may include the library's headers.
rule_public()
{
    local at target folders=(train bench examples tools)
    while read -r at target; do
        [[ $at == tools/sim/* ]] || [ -e "${at%/*}/$target" ] && continue
        case $target in
        config.h) echo "$at: say <config.h>"; continue ;;
        train/* | bench/* | examples/* | tools/common/*) [ -e "$target" ] && continue ;;
        tools/topology/topology.h) [[ $at == train/records.c* || $at == tools/* ]] && continue ;;
        tools/*) [[ $at == tools/* && -e $target ]] && continue ;;
        esac
        echo "$at: $target is neither a public header nor in the same folder"
    done < <(lint_includes "${folders[@]}")
    lint_sources "${folders[@]}" | grep -v '^tools/sim/' | xargs -r grep -HnE '\bdisti_[a-z]' |
        sed 's/$/ (internal name)/'
}

# Lists the files that people write, in the folders and at the top.
lint_written()
{
    find include src train bench examples tools tests man scripts m4 .ci -type f 2>/dev/null |
        grep -vE '^m4/(libtool|lt.*)\.m4$|~$'
    ls configure.ac Makefile.am bootstrap .clang-format 2>/dev/null
}

# The repository contains only files that people write: no dumps, no logs, and no file over 300 KB.
rule_dumps()
{
    [ -e .git ] && command -v git >/dev/null || { echo "skip: no repository"; return; }
    git ls-files | grep -E '(^|/)(dist-flight[^/]*\.json|core(\.[0-9]+)?|vgcore\.[^/]*|perf\.data[^/]*|nohup\.out|[^/]*\.(log|core|orig|rej|gcda|gcno|profraw))$|~$' |
        sed 's/$/: a dump or a log/'
    git ls-files -z | xargs -0 -r stat -c '%s %n' -- 2>/dev/null |
        awk '$1 > 300000 { sub(/^[0-9]+ /, ""); print $0 ": over 300 KB" }'
}

rule_heads()
{
    local file first second head
    for file in $(lint_written); do
        { read -r first; read -r second; } <"$file"
        head=$first$'\n'$second
        case $file in
        *.c | *.h)
            [[ $head == '/* SPDX-License-Identifier: BSD-3-Clause */'$'\n''/*'* ]] ||
                echo "$file:1: requires the licence line and a line of purpose" ;;
        *.map | *.[0-9] | *.[0-9].in | *.m4 | *.mk | *.am | *.ac | *.sh | *.awk | .ci/* | scripts/* | bootstrap)
            [[ $head == *'SPDX-License-Identifier: BSD-3-Clause'* ]] ||
                echo "$file:1: requires the licence line" ;;
        esac
    done
}

# A forked child of the launcher or of a probe is not the caller's process: it may exit with _exit.
rule_exit()
{
    {
        lint_code src | grep -E '[^A-Za-z0-9_>.](exit|quick_exit|abort|assert)[ \t]*\('
        lint_code src | grep -v -e '^src/launch/' -e '^src/backends/registry.c' | grep -E '[^A-Za-z0-9_>.](_exit|_Exit)[ \t]*\('
    } | sed -E 's/^([^:]*:[0-9]+):.*/\1: exit, abort or assert in the library/'
}

# A setuid program must not load modules or open files that its caller names. libdist_mpi.so
# contains no part of the library.
rule_getenv()
{
    lint_code src | grep -vE '^src/(base/settings/env\.c:|preload/)' | grep -E 'secure_getenv[ \t]*\(' |
        sed -E 's/^([^:]*:[0-9]+):.*/\1: secure_getenv: call disti_env/'
    lint_code src | grep -E '[^A-Za-z0-9_]getenv[ \t]*\(' |
        sed -E 's/^([^:]*:[0-9]+):.*/\1: getenv: call disti_env/'
}

# A program that uses the library may call setlocale(LC_ALL, ""); our programs never do.
rule_locale()
{
    lint_code src | grep -v '^src/base/ascii\.h:' |
        grep -E '[^A-Za-z0-9_](is(alpha|alnum|space|upper|lower|print|punct|graph|cntrl|blank)|to(upper|lower)|str(casecmp|ncasecmp|casestr|coll|xfrm|tod|tof|told)|atof|fnmatch|regcomp)[ \t]*\(' |
        sed -E 's/^([^:]*:[0-9]+):.*/\1: depends on the locale: use base\/ascii.h/'
    lint_code src tools train bench examples | grep -E '[^A-Za-z0-9_]setlocale[ \t]*\(' |
        sed -E 's/^([^:]*:[0-9]+):.*/\1: setlocale: the parsers depend on the "C" locale/'
}

# Shared names have a prefix, since a static library has no other namespace. A prototype begins a
# line; static functions belong to their header.
rule_names()
{
    lint_code src | sed -E 's/^([^:]*:[0-9]+:)__attribute__\(\([^()]*(\([^()]*\))?\)\) */\1/' |
        grep -E '^[^:]*\.h:[0-9]+:[a-z][A-Za-z0-9_ ]*[ *][A-Za-z_][A-Za-z0-9_]*\(' |
        grep -vE '^[^:]*:[0-9]+:((static|typedef) |[^(]*[ *]disti?_[a-z0-9_]*\()' |
        sed -E 's/^([^:]*:[0-9]+):[^(]*[ *]([A-Za-z0-9_]+)\(.*/\1: \2: begin it with disti_/'
}

# Files that a README or a page of docs/ names in backquotes must exist: beside it, in src/, in the
# tree, or, if a page has the name alone, anywhere.
rule_readmes()
{
    local readme name
    for readme in $(find src bench tools train docs -name '*.md' 2>/dev/null | sort); do
        for name in $(grep -oE '`[A-Za-z0-9_./-]+\.([ch]|md|sh|def)`' "$readme" | tr -d '`' | sort -u); do
            [ -e "$(dirname "$readme")/$name" ] || [ -e "src/$name" ] || [ -e "include/$name" ] || [ -e "$name" ] && continue
            [[ $readme == docs/* && $name != */* ]] &&
                [ -n "$(find src include bench tools train tests examples -name "$name" -print -quit)" ] && continue
            echo "$readme: there is no $name"
        done
    done
}

# A part of a name that tests/lint/words retires, in code and in file names.
rule_words()
{
    local words file
    words=$(sed -nE 's/^([a-z]+) .*/\1/p' "$lint_home/words" | paste -sd '|')
    lint_code include src | awk -v name="([A-Za-z0-9]+_)*($words)s?(_[A-Za-z0-9]+)*" '
        {
            match($0, /^[^:]*:[0-9]+:/)
            at = substr($0, 1, RLENGTH)
            rest = substr($0, RLENGTH + 1)
            while (match(rest, "(^|[^A-Za-z0-9_])" name "([^A-Za-z0-9_]|$)")) {
                found = substr(rest, RSTART, RLENGTH)
                gsub(/[^A-Za-z0-9_]/, "", found)
                print at " " found ": see tests/lint/words"
                rest = substr(rest, RSTART + RLENGTH)
            }
        }'
    for file in $(lint_sources include src); do
        [[ ${file##*/} =~ (^|_)($words)(_|\.) ]] && echo "$file: its name: see tests/lint/words"
    done
    true
}

rule_loose_ends()
{
    # shellcheck disable=SC2046
    grep -nE '\b(TO''DO|FIX''ME|XX''X|HA''CK)\b' $(lint_written) /dev/null
}

rule_listed()
{
    local file makefiles word
    local -A listed=()
    makefiles=$(find src train bench examples tools man tests -name local.mk 2>/dev/null | sort)
    # shellcheck disable=SC2086
    for word in $(cat Makefile.am $makefiles | tr '\\' ' '); do listed[$word]=1; done
    for file in $makefiles $(lint_sources src train bench examples tools tests) \
        $(find man tests -name '*.sh' -o -name '*.awk' -o -name '*.[1-9]' -o -name '*.[1-9].in' 2>/dev/null | sort); do
        [ -n "${listed[${file%.in}]-}" ] || echo "$file: in no local.mk, nor in Makefile.am"
    done
}

rule_backends()
{
    local file line name
    [ -f src/backends/registry.c ] || { echo "skip: no src/backends/registry.c"; return; }
    for file in $(lint_sources src/backends); do
        while IFS=: read -r line name; do
            name=${name#*\"} name=${name%%\"*}
            grep -qE "disti_backend_$name\b|\"$name\"" src/backends/registry.c ||
                echo "$file:$line: $name has no row in src/backends/registry.c"
            [ ! -f man/dist.7 ] || grep -qE "^\.It .*\b$name\b" man/dist.7 ||
                echo "$file:$line: $name has no entry in man/dist.7"
        done < <(lint_backends "$file")
    done
}

# Each row of the table of algorithms must be in dist(7).
rule_algorithms()
{
    local wrong
    [ -f src/collectives/algorithms.def ] || { echo "skip: no src/collectives/algorithms.def"; return; }
    wrong=$("$lint_home/../../scripts/algorithms" --check 2>&1)
    [ -z "$wrong" ] || printf 'run scripts/algorithms; what it changes:\n%s\n' "$wrong"
}

# Prints the names in a file's backend tables as "line:.name = ...", without those of transports.
lint_backends()
{
    awk '/struct dist_backend [a-z_]+ = \{/ { inside = 1 }
         inside && /\.name = "/ { print NR ":" $0 }
         /^\};/ { inside = 0 }' "$1"
}

rule_environment()
{
    local table=src/base/settings/variables.def
    [ -f $table ] || { echo "skip: no $table"; return; }
    lint_sources src | grep -vx src/base/settings/variables.c | xargs -r grep -HoE '"DIST_[A-Z0-9_]+"' | tr -d '"' | sort -u |
        grep -vE ":($(lint_variables | paste -sd '|'))\$" | sed "s|\(.*\):\(.*\)|\1: \2 is not in $table|"
    diff <(lint_variables) <(sed -n 's/^\.It Ev \(DIST_[A-Z0-9_]*\)$/\1/p' man/dist-env.7.in) |
        sed -n 's/^< \(.*\)/\1: not in man\/dist-env.7.in, or not in the order of the alphabet/p
                s/^> \(.*\)/\1: in man\/dist-env.7.in, but not in src\/base\/settings\/variables.def, or twice/p'
    lint_sources src | xargs -r grep -hoE '"DIST_[A-Z0-9_]+"' | tr -d '"' | sort -u |
        comm -23 <(lint_variables | sort -u) - | sed "s|\$|: in $table, but nothing reads it|"
    rule_environment_foreign src/base/settings/variables.c
}

# Variables that other programs set, by the prefix of their names. The two excluded names are values
# of MS_ROLE.
rule_environment_foreign()
{
    local own='(HWLOC|MASTER|MS|OMPI|PMIX?|SLURM|TORCHELASTIC|UCX|XDG)_[A-Z0-9_]+' foreign name
    foreign=$(sed -n 's/^    {"\([A-Z][A-Z0-9_]*\)".*/\1/p' "$1" | grep -v ^DIST_ | sort)
    lint_sources src | grep -v -e "^$1" -e ^src/preload/ | xargs -r grep -hoE "\"$own\"" | tr -d '"' |
        grep -vx -e MS_WORKER -e MS_SCHED | sort -u | comm -23 - <(echo "$foreign") | sed "s|\$|: read, but not in $1|"
    for name in $foreign; do
        [ "$name" = LAST ] || grep -qw -- "$name" man/dist*.7* ||
            echo "$name: in $1, but in no page dist*(7)"
    done
}

# Prints the names in the table of variables.
lint_variables() { sed -n 's/^VARIABLE(\(DIST_[A-Z0-9_]*\),.*/\1/p' src/base/settings/variables.def; }

rule_man()
{
    local pages
    pages=$(find man -name '*.[1-9]' 2>/dev/null | sort)
    [ -n "$pages" ] || { echo "skip: no man pages"; return; }
    command -v mandoc >/dev/null || { echo "skip: no mandoc"; return; }
    # shellcheck disable=SC2086
    mandoc -T lint -W warning $pages
    for pages in man/*.[37].in; do
        [ ! -e "$pages" ] || awk -f "$lint_home/../../man/synopsis.awk" include/dist/*.h src/base/settings/*.def "$pages" |
            mandoc -T lint -W warning | sed "s|<stdin>|$pages|"
    done
}

rule_layout()
{
    local format version
    format=$(command -v clang-format-14 || command -v clang-format) ||
        { echo "skip: no clang-format"; return; }
    # Later versions format macros of initializers differently, with the same .clang-format.
    version=$("$format" --version | sed -n 's/.*version \([0-9]*\).*/\1/p')
    [ "$version" = 14 ] ||
        { echo "skip: the layout is that of clang-format 14, and this is ${version:-an unknown one}"; return; }
    # shellcheck disable=SC2046
    "$format" --style=file --dry-run \
        $(lint_sources include src train bench examples tools tests) 2>&1 |
        sed -n 's/^\([^:]*\):.*clang-format-violations.*/\1: run clang-format -i/p' | sort -u
}

rule_exports()
{
    local library=$lint_build/.libs/libdist.so
    [ -n "$lint_build" ] && [ -e "$library" ] || { echo "skip: no libdist.so"; return; }
    diff <(lint_public) <(nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort) |
        sed -n 's/^< \(.*\)/\1: public, not exported/p; s/^> \(.*\)/\1: exported, not public/p'
}

# Prints the functions that the public headers declare.
lint_public()
{
    grep -hv '^#' include/dist/*.h | tr '\n' ' ' | grep -oE 'DIST_API [^;(]*\(' |
        sed -E 's/.*[ *]([a-z0-9_]+)\($/\1/' | sort -u
}

# Each exported symbol must be listed, since it can never be removed.
rule_symbols()
{
    [ -f tests/lint/symbols ] || { echo "skip: no tests/lint/symbols"; return; }
    [ ! -f debian/libdist0.symbols ] ||
        diff <(grep -v '^#' tests/lint/symbols) <(sed -n 's/^ \(dist_[a-z0-9_]*\)@.*/\1/p' debian/libdist0.symbols) |
            sed -n 's/^[<>] \(.*\)/\1: in one of debian\/libdist0.symbols and tests\/lint\/symbols only/p'
    diff <(grep -v '^#' tests/lint/symbols) <(lint_public) |
        sed -n 's/^< \(.*\)/\1: in tests\/lint\/symbols, in no header/p
                s/^> \(.*\)/\1: public, not in tests\/lint\/symbols/p'
}

# Prints the functions of the NAME sections, without the names of pages that describe several.
lint_described()
{
    local page own
    for page in man/*.3 man/*.3.in; do
        own=${page##*/} own=${own%%.3*}
        sed -n '/^\.Sh NAME/,/^\.Nd/s/^\.Nm \([a-z0-9_]*\).*/\1/p' "$page" |
            grep -vx -- "$([ -n "$(lint_public | grep -x -- "$own")" ] || echo "$own")"
    done | sort -u
}

rule_described()
{
    ls man/*.3.in >/dev/null 2>&1 || { echo "skip: no man pages of functions"; return; }
    diff <(lint_public) <(lint_described) |
        sed -n 's/^< \(.*\)/\1: in no man page/p; s/^> \(.*\)/\1: in a man page, in no header/p'
}

# The numbers of types and operations: libdist(3) must agree with the header's tables.
rule_numbers()
{
    [ -f man/libdist.3 ] || { echo "skip: no man/libdist.3"; return; }
    diff <(awk '/^#define DIST_(DTYPE|OP)_MAP/ { number = 0; on = 1; next }
                on && match($0, /X\([A-Z0-9_]+/) {
                    print "DIST_" substr($0, RSTART + 2, RLENGTH - 2), number++
                }
                on && !/\\$/ { on = 0 }' include/dist/dist.h) \
        <(sed -n 's/^\.It \(DIST_[A-Z0-9_]*\) Ta \([0-9]*\) Ta .*/\1 \2/p' man/libdist.3) |
        sed -n 's/^< \(.*\)/\1: not so in man\/libdist.3/p; s/^> \(.*\)/\1: only in man\/libdist.3/p'
}

rule_modules()
{
    local module
    [ -n "$lint_build" ] && ls "$lint_build"/.libs/dist_*.so >/dev/null 2>&1 ||
        { echo "skip: no modules built"; return; }
    for module in "$lint_build"/.libs/dist_*.so; do
        nm -D --undefined-only "$module" | awk '{ print $2 }' | grep -E '^disti?_' |
            sed "s|^|${module##*/} needs |"
    done
}

# A README in another language must have the same headings, the same number of table rows, and the
# same code. It may have no spaces between words, so only the depth of a heading is compared.
lint_skeleton()
{
    awk '
        /^```/ { fence = !fence; print; next }
        fence || /^    [^ ]/ { print; next }
        /^#+ / { print $1 }
        /^\|/ { print "|" }' "$1"
}
rule_languages()
{
    local other
    for other in README.*.md; do
        [ -e "$other" ] || continue
        diff <(lint_skeleton README.md) <(lint_skeleton "$other") |
            sed -n "s|^< \(.*\)|$other: is missing, where README.md has: \1|p; s|^> \(.*\)|$other: has more than README.md: \1|p"
    done
}

rule_options()
{
    local program command option checked=no
    for program in train_mnist dist_info dist_bench dist_sim distrun; do
        [ -x "$lint_build/$program" ] && [ -f "man/$program.1" ] || continue
        checked=yes
        for option in $({ "$lint_build/$program" --help
            [ $program != dist_info ] || for command in $("$lint_build/dist_info" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
                "$lint_build/dist_info" "$command" --help
            done; } | grep -oE -- '(^|[ ,[])--[a-z][a-z0-9_-]*' | tr -d ' ,[' | sort -u); do
            sed 's/\\-/-/g' "man/$program.1" | grep -qE -- "(Fl -|--|\| -)${option#--}\b" || echo "$option is not in man/$program.1"
        done
    done
    [ $checked = yes ] || echo "skip: no program or no man page of it"
}

#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Completion in bash for every program.
. "$srcdir/tests/support/job.sh"

. "$srcdir/tools/common/completion.bash"

# gives WANTED PROGRAM WORD...: checks that the completions of the last word, on one line, are
# WANTED.
gives()
{
    local wanted=$1
    shift
    COMP_WORDS=("$builddir/$1" "${@:2}") COMP_CWORD=$(($# - 1))
    complete_as "$1"
    job_output=$job_folder/output
    printf '%s\n' "${COMPREPLY[*]}" >"$job_output"
    job_check "$*" [ "${COMPREPLY[*]}" = "$wanted" ]
}
# Calls the function that bash would call for that program.
complete_as() { "$(complete -p "$1" | sed 's/.*-F \([^ ]*\).*/\1/')" "${COMP_WORDS[0]}"; }

gives "explain" dist_info ex
gives "backends doctor env explain flight memory selftest topology tune" dist_info ""
gives "--backend" dist_info backends --b
gives "table csv" dist_info backends --format ""
gives "csv" dist_info backends --format = c
gives "csv" dist_info backends --format c
gives "all_reduce all_gather all_to_all all_gather_v all_to_all_v" dist_info explain al
gives "--ranks --run" dist_info explain all_reduce --r
gives "--ranks --help --version" dist_info tune --
gives "--ranks --svg --help --version" dist_info topology --
gives "--help --version" dist_info memory -
gives "--format --help --version" dist_info env -
gives "" dist_info explain --bytes ""
gives "broadcast barrier" dist_sim b
gives "json" dist_sim all_reduce --format j
gives "malloc registered dist cuda" dist_bench --mem ""
gives "0 1" dist_bench --check = ""
gives "bibw" dist_bench all bi
gives "--batch-size" train_mnist --batch-s
gives "" distrun -n 2 echo ran
# After the program's name the words belong to that program, and the shell offers files.
gives "" distrun -n 2 echo --
gives "" distrun --nproc_per_node = 2 --standalone echo --
gives "" distrun -np 2 -m echo --max
gives "" distrun -- --max
gives "--max-restarts" distrun -n2 -np 2 --nproc-per-node = 2 --standalone --max
gives "--master-addr --master-port" distrun -n2 --mas
gives "--batch-size" train_mnist -n 2 --batch-s

# Each of these programs completes every option that its help shows.
for program in dist_bench dist_sim distrun train_mnist train_cifar10; do
    COMP_WORDS=("$builddir/$program" --) COMP_CWORD=1
    complete_as "$program"
    missing=$("$builddir/$program" --help 2>&1 | grep -oE '^ {2,6}(-., )?--[a-z-]+' | grep -oE -- '--[a-z-]+' |
        grep -vxF -f <(printf '%s\n' "${COMPREPLY[@]}"))
    job_check "completion of every option of $program" [ -z "$missing" ]
done

# The installed form: one file under the name of each program.
make -C "$builddir" install-data-local datadir="$job_folder/share" >"$job_output" 2>&1
job_check "completion is installed for each program" cmp -s \
    "$job_folder/share/bash-completion/completions/train_mnist" "$srcdir/tools/common/completion.bash"

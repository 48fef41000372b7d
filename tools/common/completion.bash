# SPDX-License-Identifier: BSD-3-Clause
# bash completion for libdist's programs. Each program prints the completions of the word at the cursor
# from its own table of options.
_libdist()
{
    COMPREPLY=()
    mapfile -t COMPREPLY < <("$1" "${COMP_WORDS[@]:1:COMP_CWORD}" --complete-for-shell 2>/dev/null)
}
complete -o bashdefault -o default -F _libdist dist_bench dist_info dist_sim distrun train_mnist train_cifar10

# SPDX-License-Identifier: BSD-3-Clause
# bash: completes the command lines of libdist's programs. Each program says itself, from its table of
# options, what the word at the cursor may become.
_libdist()
{
    COMPREPLY=()
    mapfile -t COMPREPLY < <("$1" "${COMP_WORDS[@]:1:COMP_CWORD}" --complete-for-shell 2>/dev/null)
}
complete -o bashdefault -o default -F _libdist dist_bench dist_info dist_sim distrun train_mnist train_cifar10

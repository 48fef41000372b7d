# SPDX-License-Identifier: BSD-3-Clause
# awk -v limit=1e-4 -v steps=100 -f losses.awk A B: compares two loss logs with lines "step loss".
# Prints the largest relative difference; exit 1 if it is above the limit or a step is missing.
FNR == NR { a[$1] = $2; next }
$1 in a {
    n++
    d = a[$1] - $2
    if (d < 0)
        d = -d
    if (a[$1] != 0)
        d /= (a[$1] < 0 ? -a[$1] : a[$1])
    if (!(d <= worst))
        worst = d
}
END {
    printf "%d steps, largest relative difference %g\n", n, worst
    exit !(n >= steps && worst <= limit)
}

# SPDX-License-Identifier: BSD-3-Clause
# Prints "file:line:code" for each line of C files, without comments and without the text in strings.
FNR == 1 { comment = 0 }
{
    rest = $0
    line = ""
    while (rest != "") {
        if (comment) {
            end = index(rest, "*/")
            rest = end ? substr(rest, end + 2) : ""
            comment = !end
        } else if (!match(rest, /["']|\/\*|\/\//)) {
            line = line rest
            rest = ""
        } else {
            mark = substr(rest, RSTART, RLENGTH)
            line = line substr(rest, 1, RSTART - 1)
            rest = substr(rest, RSTART + RLENGTH)
            if (mark == "/*") {
                comment = 1
            } else if (mark == "//") {
                rest = ""
            } else {
                text = mark == "\"" ? match(rest, /^([^\\"]|\\.)*"/) : match(rest, /^([^\\']|\\.)*'/)
                line = line mark (text ? mark : "")
                rest = text ? substr(rest, RLENGTH + 1) : ""
            }
        }
    }
    print FILENAME ":" FNR ":" line
}

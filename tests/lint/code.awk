# SPDX-License-Identifier: BSD-3-Clause
# Blanks the comments and the strings of a C file; lines stay where they are.
{
    line = ""
    text = 0
    for (i = 1; i <= length($0); i++) {
        c = substr($0, i, 1)
        two = substr($0, i, 2)
        if (comment) {
            if (two == "*/") { comment = 0; i++ }
        } else if (text) {
            if (c == "\\") i++
            else if (c == quote) { text = 0; line = line c }
        } else if (two == "/*") {
            comment = 1
            i++
        } else if (two == "//") {
            break
        } else {
            if (c == "\"" || c == "'") { text = 1; quote = c }
            line = line c
        }
    }
    print line
}

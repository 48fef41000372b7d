# SPDX-License-Identifier: BSD-3-Clause
# synopsis.awk HEADER... PAGE: prints a man page in which each line "@synopsis@" is replaced by the
# prototypes of those functions of its NAME section that the header of the line ".In" above declares.

FILENAME ~ /\.h$/ {
    if (FNR == 1) {
        parse()
        header = FILENAME
        sub(/.*\/dist\//, "dist/", header)
    }
    if (!/^#/)
        text = text " " $0
    next
}

FNR == 1 { parse() }

/^\.Sh/ { naming = ($2 == "NAME") }

naming && /^\.Nm / { names[++count] = $2 }

/^\.In / { header = $2 }

/^@synopsis@$/ {
    for (i = 1; i <= count; i++)
        printf "%s", prototypes[header, names[i]]
    next
}

{ print }

# The prototypes in the text of a header.
function parse(    one, open, head, name, type)
{
    gsub(/[ \t]+/, " ", text)
    while (match(text, /\/\*([^*]|\*+[^*\/])*\*+\//))
        text = substr(text, 1, RSTART - 1) substr(text, RSTART + RLENGTH)
    while (match(text, /DIST_API [^;]*;/)) {
        one = substr(text, RSTART + 9, RLENGTH - 10)
        text = substr(text, RSTART + RLENGTH)
        open = index(one, "(")
        head = substr(one, 1, open - 1)
        match(head, /[a-z0-9_]+$/)
        name = substr(head, RSTART)
        type = substr(head, 1, RSTART - 1)
        sub(/ $/, "", type)
        prototypes[header, name] = ".Ft " quoted(type) "\n.Fo " name "\n" arguments(substr(one, open + 1, length(one) - open - 1)) ".Fc\n"
    }
    text = ""
}

function quoted(word) { return word ~ / / ? "\"" word "\"" : word }

# A line for each argument; a comma within parentheses is part of one.
function arguments(list,    i, depth, c, one, lines)
{
    for (i = 1; i <= length(list) + 1; i++) {
        c = substr(list, i, 1)
        depth += (c == "(") - (c == ")")
        if ((c == "," && !depth) || c == "") {
            sub(/^ /, "", one)
            lines = lines ".Fa " quoted(one) "\n"
            one = ""
        } else
            one = one c
    }
    return lines
}

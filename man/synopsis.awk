# SPDX-License-Identifier: BSD-3-Clause
# synopsis.awk HEADER... variables.def PAGE: prints a man page in which each line "@synopsis@" is replaced
# by the prototypes of the functions in its NAME section that are declared in the header of the preceding
# ".In" line, and "@variables@" by a table of the environment variables.

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

FILENAME ~ /\.def$/ {
    row = row $0
    if (row !~ /^VARIABLE\(/ || row ~ /\)$/) {
        if (row ~ /^VARIABLE\(/)
            table = table variable(row)
        row = ""
    }
    next
}

/^@variables@$/ {
    printf ".Bl -column DIST_AGENT_STORE_SECRET \"auto, plan, native\"\n.It Sy Variable Ta Sy Values Ta Sy Unset\n%s.El\n", table
    next
}

/^\.Sh/ { naming = ($2 == "NAME") }

naming && /^\.Nm / { names[++count] = $2 }

/^\.In / { header = $2 }

/^@synopsis@$/ {
    for (i = 1; i <= count; i++)
        printf "%s", prototypes[header, names[i]]
    next
}

{ print }

# Extracts the prototypes from the text of a header.
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

# Returns one line for each argument. A comma within parentheses does not separate arguments.
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

# Converts VARIABLE(name, values, "meaning", "default") to a row of a column list.
function variable(row,    name, values, text)
{
    match(row, /^VARIABLE\([A-Z_]+, /)
    name = substr(row, RSTART + 9, RLENGTH - 11)
    values = substr(row, RSTART + RLENGTH)
    text = values
    sub(/, ".*/, "", values)
    match(text, /"[^"]*"\)$/)
    text = substr(text, RSTART + 1, RLENGTH - 3)
    if (values == "TEXT")
        values = ""
    else if (values == "FLAG")
        values = "0, 1"
    else if (values ~ /^BYTES/)
        values = "bytes"
    else if (values ~ /^WORDS/) {
        gsub(/^WORDS\("|"\)$/, "", values)
        gsub(/,/, ", ", values)
    } else {
        gsub(/^NUMBER\(|\)$/, "", values)
        sub(/, INT_MAX/, " or more", values)
        sub(/1 << 20/, "1048576", values)
        sub(/, /, " to ", values)
    }
    return ".It Ev " name " Ta " values " Ta " text "\n"
}

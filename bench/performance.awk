# SPDX-License-Identifier: BSD-3-Clause
# Writes the report of bench/performance. Reads its targets, then the CSV of dist_bench with the part as first field.

function units(bytes)
{
    if (bytes >= 1048576)
        return bytes / 1048576 " MiB"
    return bytes >= 1024 ? bytes / 1024 " KiB" : bytes " B"
}

# Formats with three digits.
function figure(value)
{
    if (value >= 100)
        return sprintf("%.0f", value)
    return sprintf(value >= 10 ? "%.1f" : "%.2f", value)
}

# Returns the time in microseconds for the bytes that each host must send and receive at 1 Gbit/s. A
# frame of 1514 bytes carries 1448 bytes of data.
function line_bound(hosts, bytes) { return 2 * (hosts - 1) / hosts * bytes * 8 / 1000 * 1514 / 1448 }

# Finds the fastest of the peers at a point; sets `best` and `who`.
function find_best(point, peers,    n, i, names, name)
{
    best = 0
    who = ""
    n = split(libraries[point], names, " ")
    for (i = 1; i <= n; i++) {
        name = names[i]
        if (name ~ /^(gloo|gloo\/dist|limit|dist|dist-ring)$/ || name !~ peers)
            continue
        if (!best || times[point, name] < best) {
            best = times[point, name]
            who = name
        }
    }
    sub(/^peer:/, "", who)
}

function bound_of(t, point)
{
    if (target[t, "bound"] == "limit")
        return times[point, "limit"]
    if (target[t, "bound"] ~ /^line:/)
        return line_bound(substr(target[t, "bound"], 6), sizes[point])
    return 0
}

function add(line) { body = body line "\n" }

# Collects the ratios of a target by collective: mean, minimum, and the sizes at which it is not
# met.
function note_collective(t, name, bytes, ratio)
{
    if (!((t, name) in logs_of)) {
        names_of[t] = names_of[t] " " name
        least_of[t, name] = ratio
    }
    logs_of[t, name] += log(ratio)
    points_of[t, name]++
    if (ratio < least_of[t, name])
        least_of[t, name] = ratio
    if (target[t, "need"] && ratio < target[t, "need"])
        missed_of[t, name] = missed_of[t, name] (missed_of[t, name] ? ", " : "") units(bytes) " (" figure(ratio) ")"
}

function report_point(t, point,    mine, ratio, bound, good, need, within, name)
{
    mine = times[point, target[t, "ours"]]
    need = target[t, "need"]
    within = target[t, "within"]
    find_best(point, target[t, "peers"])
    bound = bound_of(t, point)
    good = mine > 0 && (!need || best > 0) && (!within || bound > 0)
    if (mine && best) {
        ratio = best / mine
        logs += log(ratio)
        ratios++
        note_collective(t, collectives[point], sizes[point], ratio)
        if (need && ratio < need)
            good = 0
    }
    if (mine && bound && within && mine / bound > within)
        good = 0
    name = collectives[point] == "all_reduce" ? "" : collectives[point] " "
    add("| " name units(sizes[point]) " | " (mine ? figure(mine) : "&ndash;") " | " \
        (best ? figure(best) " " who : "&ndash;") " | " (ratio ? figure(ratio) : "&ndash;") " | " \
        (need ? need : "") " | " (mine && bound ? figure(mine / bound) : "") " | " within " | " \
        (!need && !within ? "" : good ? "yes" : "**no**") " |")
    points++
    met += good
}

function report_target(t,    p, point, mean, wanted)
{
    points = met = logs = ratios = 0
    body = ""
    for (p = 1; p <= point_count; p++) {
        point = order[p]
        if (parts[point] ~ target[t, "parts"] && sizes[point] >= target[t, "from"] && \
            sizes[point] <= target[t, "to"])
            report_point(t, point)
    }
    if (!points) {
        summary = summary "| " target[t, "title"] " | not measured |\n"
        return
    }
    mean = ratios ? exp(logs / ratios) : 0
    wanted = target[t, "mean"]
    if (target[t, "table"])
        tables[target[t, "table"]] = tables[target[t, "table"]] " " t
    else {
        details = details "\n### " target[t, "title"] "\n\n"
        details = details "| size | ours (&micro;s) | best peer (&micro;s) | ratio | target | times the bound | at most | met |\n"
        details = details "|---|---|---|---|---|---|---|---|\n" body
    }
    if (target[t, "need"] || target[t, "within"])
        summary = summary "| " target[t, "title"] " | " met " of " points " sizes" \
            (wanted ? (mean >= wanted ? ", mean met" : ", mean not met") : "") \
            (mean ? ", mean ratio " figure(mean) : "") " |\n"
}

# Prints one table for several targets, with a row for each collective and a column for each target.
function print_table(title, list,    n, i, k, t, names, columns, text)
{
    n = split(list, columns, " ")
    split(names_of[columns[1]], names, " ")
    printf "\n### %s\n\n| collective |", title
    for (k = 1; k <= n; k++)
        printf " %s |", target[columns[k], "column"]
    printf "\n|---|"
    for (k = 1; k <= n; k++)
        printf "---|"
    print ""
    for (i = 1; i in names; i++) {
        printf "| %s |", names[i]
        for (k = 1; k <= n; k++) {
            t = columns[k] SUBSEP names[i]
            if (t in logs_of)
                printf " %s (%s) |", figure(exp(logs_of[t] / points_of[t])), figure(least_of[t])
            else
                printf " |"
        }
        print ""
    }
    text = ""
    for (k = 1; k <= n; k++) {
        for (i = 1; i in names; i++) {
            t = columns[k] SUBSEP names[i]
            if (t in missed_of)
                text = text "| " names[i] ", " target[columns[k], "column"] " | " missed_of[t] " |\n"
        }
    }
    if (text)
        printf "\n| target not met by | at (ratio) |\n|---|---|\n%s", text
}

BEGIN { FS = "|" }

FNR == 1 && NR != 1 { FS = ","; $0 = $0 }

NR == FNR {
    split("title parts from to ours peers need bound within mean table column", keys, " ")
    target_count++
    for (k = 1; k <= 12; k++)
        target[target_count, keys[k]] = $k
    next
}

# part,collective,size,block,dtype,op,root,in_place,ranks,contestant,time_us,...
$11 != "" && $NF != "wrong" {
    point = $1 SUBSEP $2 SUBSEP $3
    if (!(point in sizes)) {
        order[++point_count] = point
        parts[point] = $1
        collectives[point] = $2
        sizes[point] = $3 + 0
    }
    times[point, $10] = $11 + 0
    libraries[point] = libraries[point] " " $10
    if (!seen[$1]++)
        pages[++page_count] = $1
}

# Prints the runs, grouped by date, machine and settings.
function print_runs(    line, field, how, n, i, names, order)
{
    while ((getline line <runs) > 0) {
        split(line, field, "|")
        how = field[2] " | " field[3] ", " field[4] " | " field[5]
        if (!(how in names))
            order[++n] = how
        names[how] = names[how] (names[how] ? ", " : "") field[1]
    }
    print "| date | machine | how | parts |\n|---|---|---|---|"
    for (i = 1; i <= n; i++)
        print "| " order[i] " | " names[order[i]] " |"
}

function print_peers(    line, field)
{
    print "\n| library | version |\n|---|---|"
    while ((getline line <peers) > 0) {
        split(line, field, "|")
        print "| " field[1] " | " field[2] " |"
    }
}

END {
    for (t = 1; t <= target_count; t++)
        report_target(t)
    print "# Performance\n"
    print "Written by `bench/performance`, which measures libdist and other libraries alternately in one run"
    print "of `dist_bench`: float32, sum, in place except for \"every collective\", results checked. Times are"
    print "medians over the rounds of the slowest rank's time, or where stated the mean over the ranks, as in"
    print "OSU's programs. A ratio is the time of the best peer divided by that of libdist: above 1, libdist is"
    print "faster. Bounds are those of a bare loop over memory that all ranks have mapped, or of the line:"
    print "2 (n - 1) / n times the bytes divided by its rate, where a frame of 1514 bytes carries 1448. Gloo uses"
    print "its fastest all-reduce at each size. MPICH, Intel MPI and MPICH 5 spin while waiting, so they are"
    print "excluded if there are more ranks than CPUs: a call would then take milliseconds. The CPUs are virtual,"
    print "and the host moves them: within seconds, a cache line takes either 60 ns or 350 to 550 ns from one CPU"
    print "to another, and shared data take 2 to 5 times as long. The measurements of a round are close in time;"
    print "the number of rounds averages out the remaining differences.\n"
    print "In the tables with a row for each collective, a figure is the geometric mean of the ratios over the"
    print "sizes (every collective: 8 B to 16 MiB, with dist_alloc from 16 KiB), with the minimum in parentheses.\n"
    print_runs()
    print_peers()
    print "\n## Targets\n\n| target | met |\n|---|---|\n" summary
    if (page_count) {
        print "Times of all libraries as CSV files; `bench/draw FILE.csv` draws curves of them:\n"
        for (p = 1; p <= page_count; p++)
            printf "[%s](%s.csv)%s", pages[p], pages[p], p == page_count ? ".\n" : p % 5 ? ", " : ",\n"
    }
    printf "\n## Points\n%s", details
    for (t = 1; t <= target_count; t++) {
        if (target[t, "table"] && !printed[target[t, "table"]]++)
            print_table(target[t, "table"], tables[target[t, "table"]])
    }
}

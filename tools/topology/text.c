/* SPDX-License-Identifier: BSD-3-Clause */
/* The machines and their ranks in lines. */
#include "topology.h"

#include <string.h>

static bool text_is_at(const struct topology_rank *rank, int machine, int core, int gpu)
{
    return rank->machine == machine && (core >= 0 ? rank->core == core : rank->gpu == gpu);
}

int topology_ranks_at(const struct topology *topology, int machine, int core, int gpu, char *text,
                      size_t size)
{
    int count = 0, shown = 0;
    size_t used = 0;
    bool full = false;

    text[0] = '\0';
    for (int rank = 0; rank < topology->ranks; rank++) {
        int last = rank;
        char item[32];

        if (!text_is_at(&topology->rank[rank], machine, core, gpu))
            continue;
        while (last + 1 < topology->ranks &&
               text_is_at(&topology->rank[last + 1], machine, core, gpu))
            last++;
        count += last - rank + 1;
        snprintf(item, sizeof(item), last > rank ? "%s%d-%d" : "%s%d", used ? "," : "", rank, last);
        full = full || used + strlen(item) + (used ? strlen(" +999") : 0) >= size;
        if (!full) {
            memcpy(text + used, item, strlen(item) + 1);
            used += strlen(item);
            shown = count;
        }
        rank = last;
    }
    if (shown < count)
        snprintf(text + used, size - used, " +%d", count - shown);
    return count;
}

/* Ranks of a core, or GPU, as "ranks 0-3" behind a gap; nothing where there are none. */
static void text_ranks(const struct topology *topology, int machine, int core, int gpu, int gap,
                       FILE *to)
{
    char ranks[256];
    int count = topology_ranks_at(topology, machine, core, gpu, ranks, sizeof(ranks));

    if (count)
        fprintf(to, "%*srank%s %s", gap, "", count == 1 ? "" : "s", ranks);
    fprintf(to, "\n");
}

/* Cores that no rank is on, beside each other, in one line. */
static void text_cores(const struct topology *topology, int machine,
                       const struct topology_part *part, FILE *to)
{
    const int end = part->first + part->cores;
    char ranks[256], name[32];

    for (int core = part->first; core < end; core++) {
        int last = core;

        if (topology_ranks_at(topology, machine, core, -1, ranks, sizeof(ranks)) == 0) {
            while (last + 1 < end &&
                   topology_ranks_at(topology, machine, last + 1, -1, ranks, sizeof(ranks)) == 0)
                last++;
        }
        if (last > core)
            snprintf(name, sizeof(name), "cores %d-%d", core, last);
        else
            snprintf(name, sizeof(name), "core %d", core);
        fprintf(to, "      %s", name);
        text_ranks(topology, machine, core, -1, 16 - (int)strlen(name), to);
        core = last;
    }
}

/* The GPUs of a part; part NULL: those that are in none. */
static void text_gpus(const struct topology *topology, int machine,
                      const struct topology_part *part, FILE *to)
{
    const struct topology_machine *of = &topology->machine[machine];

    for (int gpu = 0; gpu < of->gpus; gpu++) {
        bool placed = false;

        for (int core = 0; core < of->cores && !part && !placed;) {
            struct topology_part other = topology_part_at(of, core);

            placed = topology_part_has_gpu(of, &other, gpu);
            core += other.cores;
        }
        if (part ? !topology_part_has_gpu(of, part, gpu) : placed)
            continue;
        fprintf(to, "      GPU %d%s%s", gpu, *of->gpu[gpu].name ? " " : "", of->gpu[gpu].name);
        text_ranks(topology, machine, -1, gpu, 2, to);
    }
}

static void text_machine(const struct topology *topology, int machine, FILE *to)
{
    const struct topology_machine *of = &topology->machine[machine];
    int package = -2;

    fprintf(to, "%s: %d cores", of->host, of->cores);
    if (of->core[0].threads > 1)
        fprintf(to, " of %d threads", of->core[0].threads);
    fprintf(to, ", %d GPU%s\n", of->gpus, of->gpus == 1 ? "" : "s");
    for (int core = 0; core < of->cores;) {
        struct topology_part part = topology_part_at(of, core);

        if (part.package != package && part.package >= 0)
            fprintf(to, "  package %d\n", part.package);
        package = part.package;
        if (part.numa >= 0)
            fprintf(to, "    NUMA node %d\n", part.numa);
        text_cores(topology, machine, &part, to);
        text_gpus(topology, machine, &part, to);
        core += part.cores;
    }
    text_gpus(topology, machine, NULL, to);
}

void topology_print(const struct topology *topology, FILE *to)
{
    for (int machine = 0; machine < topology->machines; machine++) {
        text_machine(topology, machine, to);
        for (int rank = 0; rank < topology->ranks; rank++) {
            if (topology->rank[rank].machine == machine && topology->rank[rank].core < 0)
                fprintf(to, "      rank %d, on no core that is known\n", rank);
        }
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info topology: shows a machine, or the machines and ranks of a job, as text or SVG. */
#include <config.h>

#include "tools/common/args.h"
#include "tools/common/launched.h"
#include "tools/common/output.h"
#include "tools/common/plot.h"
#include "tools/common/text.h"
#include "topology.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The record that each rank sends to rank 0. */
struct gather_record {
    struct topology_machine machine;
    struct dist_place place;
    int32_t local_rank;
    int32_t device; /* DIST_DEVICE; -1: the device with the number of the local rank */
};

/* Discovery of this machine's packages, NUMA nodes, cores and GPUs with hwloc. */
#ifdef HAVE_HWLOC
#include <hwloc.h>

/* Returns the logical index of the object's ancestor of that type, or -1. */
static int machine_ancestor(hwloc_topology_t hwloc, hwloc_obj_type_t type, hwloc_obj_t object)
{
    hwloc_obj_t above = hwloc_get_ancestor_obj_by_type(hwloc, type, object);

    return above ? (int)above->logical_index : -1;
}

/* Returns the first NUMA node that shares CPUs with the set, or -1. hwloc's NUMA nodes are not
 * ancestors of cores. */
static int machine_numa(hwloc_topology_t hwloc, hwloc_const_cpuset_t cpus)
{
    hwloc_obj_t numa = NULL;

    while (cpus && (numa = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, numa))) {
        if (hwloc_bitmap_intersects(numa->cpuset, cpus))
            return (int)numa->logical_index;
    }
    return -1;
}

static void machine_by_hwloc(struct topology_machine *machine)
{
    hwloc_topology_t hwloc;

    if (hwloc_topology_init(&hwloc) != 0)
        return;
    hwloc_topology_set_io_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(hwloc) == 0) {
        /* List the cores, or the hardware threads if hwloc finds no cores. */
        const bool cores = hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_CORE) > 0;
        hwloc_obj_t core = NULL;

        while ((core = hwloc_get_next_obj_by_type(hwloc, cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU,
                                                  core)) &&
               machine->cores < TOPOLOGY_CORES)
            machine->core[machine->cores++] =
                (struct topology_core){(int16_t)machine_ancestor(hwloc, HWLOC_OBJ_PACKAGE, core),
                                       (int16_t)machine_numa(hwloc, core->cpuset),
                                       (int16_t)hwloc_bitmap_weight(core->cpuset)};
        hwloc_obj_t device = NULL, host;

        while ((device = hwloc_get_next_pcidev(hwloc, device)) && machine->gpus < TOPOLOGY_GPUS) {
            struct topology_gpu *gpu = &machine->gpu[machine->gpus];

            /* GPUs are display controllers (PCI base class 0x03) of NVIDIA or AMD. */
            enum { MACHINE_NVIDIA = 0x10de, MACHINE_AMD = 0x1002 };
            const unsigned vendor = device->attr->pcidev.vendor_id;
            if (!(device->attr->pcidev.class_id >> 8 == 0x03 &&
                  (vendor == MACHINE_NVIDIA || vendor == MACHINE_AMD)))
                continue;
            host = hwloc_get_non_io_ancestor_obj(hwloc, device);
            gpu->package = host->type == HWLOC_OBJ_PACKAGE
                               ? (int16_t)host->logical_index
                               : (int16_t)machine_ancestor(hwloc, HWLOC_OBJ_PACKAGE, host);
            gpu->numa = host->type == HWLOC_OBJ_MACHINE &&
                                hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_NUMANODE) > 1
                            ? -1
                            : (int16_t)machine_numa(hwloc, host->cpuset);
            snprintf(gpu->name, sizeof(gpu->name), "%s", device->name ? device->name : "");
            machine->gpus++;
        }
    }
    hwloc_topology_destroy(hwloc);
}
#else
static void machine_by_hwloc(struct topology_machine *machine)
{
    machine->cores = 0;
}
#endif

/* Describes this machine, or the machine that hwloc's environment variables describe. */
static void topology_discover(struct topology_machine *machine)
{
    memset(machine, 0, sizeof(*machine));
    gethostname(machine->host, sizeof(machine->host));
    machine_by_hwloc(machine);
    if (machine->cores)
        return;
    /* Without hwloc only the number of CPUs is known. */
    machine->cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    machine->cores = machine->cores > TOPOLOGY_CORES ? TOPOLOGY_CORES : machine->cores;
    for (int i = 0; i < machine->cores; i++)
        machine->core[i] = (struct topology_core){-1, -1, 1};
}

dist_status topology_gather_group(dist_group *group, struct topology *topology_p)
{
    struct gather_record *record = calloc(1, sizeof(*record));
    dist_status status;

    *topology_p = (struct topology){0};
    if (!record)
        return DIST_ERR_NO_MEMORY;
    const char *device = getenv("DIST_DEVICE");

    topology_discover(&record->machine);
    record->local_rank = dist_get_local_rank(group);
    record->device = device && *device ? atoi(device) : -1;
    if (dist_get_place(group, dist_get_rank(group), &record->place) != DIST_OK)
        record->place = (struct dist_place){0, -1, -1, -1, -1};
    const int ranks = dist_get_world_size(group);
    const bool root = dist_get_rank(group) == 0;
    struct gather_record *records = root ? calloc((size_t)ranks, sizeof(*records)) : NULL;

    status = DIST_ERR_NO_MEMORY;
    if (root) {
        topology_p->machine = calloc((size_t)ranks, sizeof(*topology_p->machine));
        topology_p->rank = calloc((size_t)ranks, sizeof(*topology_p->rank));
    }
    if (!root || (records && topology_p->machine && topology_p->rank))
        status = dist_gather(group, record, records, sizeof(*record), DIST_UINT8, 0);
    if (root && status == DIST_OK) {
        topology_p->ranks = ranks;
        /*
         * The node numbers in places count from 0 in the order of the ranks, so the first rank of a
         * new node has the next number.
         */
        for (int rank = 0; rank < topology_p->ranks; rank++) {
            const struct gather_record *from = &records[rank];
            const int gpu = from->device >= 0 ? from->device : from->local_rank;

            if (from->place.node == topology_p->machines)
                topology_p->machine[topology_p->machines++] = from->machine;
            topology_p->rank[rank] = (struct topology_rank){
                from->place.node, from->place.core < from->machine.cores ? from->place.core : -1,
                gpu < from->machine.gpus ? gpu : -1};
        }
    }
    free(records);
    free(record);
    return status;
}

/* Returns the part whose first core is `core`. */
static struct topology_part topology_part_at(const struct topology_machine *machine, int core)
{
    struct topology_part part = {machine->core[core].package, machine->core[core].numa, core, 0};

    while (core < machine->cores && machine->core[core].package == part.package &&
           machine->core[core].numa == part.numa)
        core++;
    part.cores = core - part.first;
    return part;
}

/*
 * True if the GPU is in the part. If part is NULL: true if the GPU is in no part, as are GPUs whose
 * NUMA node is unknown.
 */
static bool topology_part_has_gpu(const struct topology_machine *machine,
                                  const struct topology_part *part, int gpu)
{
    const struct topology_gpu *info = &machine->gpu[gpu];
    bool placed = false;

    if (part)
        return info->numa >= 0 && info->numa == part->numa &&
               (info->package < 0 || info->package == part->package);
    for (int core = 0; core < machine->cores && !placed;) {
        struct topology_part any = topology_part_at(machine, core);

        placed = topology_part_has_gpu(machine, &any, gpu);
        core += any.cores;
    }
    return !placed;
}

/* ---- SVG ---- */

/* Sizes in pixels: cores and GPUs, gaps and padding, a heading, the page and the legend. */
enum { SVG_CORE_W = 62, SVG_CORE_H = 36, SVG_GPU_W = 128, SVG_GPU_H = 36 };
enum { SVG_GAP = 6, SVG_PAD = 12, SVG_HEAD = 22, SVG_WIDTH = 1500, SVG_LEGEND_W = 560 };

#define SVG_BIG 16 /* size of a label's buffer */

/* Layout of a machine. All parts are boxes of the same size, arranged in a grid in each package. */
struct svg_layout {
    int core_columns;
    int part_w, part_h;
    int part_columns; /* parts per row of a package */
    int package_w, package_h, package_columns;
    int loose; /* number of GPUs in no part */
    int w, h;
};

static int svg_larger(int a, int b)
{
    return a > b ? a : b;
}

static int svg_rows(int items, int columns)
{
    return (items + columns - 1) / columns;
}

static int svg_columns(int items)
{
    return items <= 2 ? svg_larger(items, 1) : items <= 4 ? 2 : 4;
}

static int svg_gpus_of(const struct topology_machine *machine, const struct topology_part *part)
{
    int count = 0;

    for (int gpu = 0; gpu < machine->gpus; gpu++)
        count += topology_part_has_gpu(machine, part, gpu);
    return count;
}

/* Returns the number of GPUs per row of a box of that width. */
static int svg_gpu_columns(int part_w)
{
    return svg_larger(1, (part_w - 2 * SVG_PAD + SVG_GAP) / (SVG_GPU_W + SVG_GAP));
}

static struct svg_layout svg_lay_out(const struct topology_machine *machine)
{
    struct svg_layout layout = {0};
    int most_cores = 1, most_gpus = 0, packages = 0, parts = 0, most_parts = 1, package = -2;
    int gpu_rows;

    for (int core = 0; core < machine->cores;) {
        struct topology_part part = topology_part_at(machine, core);

        parts = part.package == package ? parts + 1 : 1;
        packages += part.package != package;
        package = part.package;
        most_parts = svg_larger(most_parts, parts);
        most_cores = svg_larger(most_cores, part.cores);
        most_gpus = svg_larger(most_gpus, svg_gpus_of(machine, &part));
        core += part.cores;
    }
    layout.core_columns = most_cores <= 4 ? most_cores : most_cores <= 32 ? 4 : 8;
    layout.part_w = layout.core_columns * (SVG_CORE_W + SVG_GAP) - SVG_GAP;
    layout.part_w = svg_larger(layout.part_w, most_gpus ? SVG_GPU_W : 90) + 2 * SVG_PAD;
    gpu_rows = svg_rows(most_gpus, svg_gpu_columns(layout.part_w));
    layout.part_h = SVG_HEAD + svg_rows(most_cores, layout.core_columns) * (SVG_CORE_H + SVG_GAP) +
                    gpu_rows * (SVG_GPU_H + SVG_GAP) - SVG_GAP + SVG_PAD;
    layout.part_columns = svg_columns(most_parts);
    layout.package_w = layout.part_columns * (layout.part_w + SVG_PAD) + SVG_PAD;
    layout.package_h =
        SVG_HEAD + svg_rows(most_parts, layout.part_columns) * (layout.part_h + SVG_PAD);
    layout.package_columns = svg_columns(packages);
    layout.loose = svg_gpus_of(machine, NULL);
    layout.w = layout.package_columns * (layout.package_w + SVG_PAD) + SVG_PAD;
    layout.w = svg_larger(layout.w, layout.loose ? SVG_GPU_W + 2 * SVG_PAD : 0);
    layout.h = SVG_HEAD +
               svg_rows(packages, layout.package_columns) * (layout.package_h + SVG_PAD) +
               svg_rows(layout.loose, svg_gpu_columns(layout.w)) * (SVG_GPU_H + SVG_GAP) +
               (layout.loose ? SVG_PAD : 0);
    return layout;
}

/* ---- boxes ---- */

static void svg_box(FILE *to, int x, int y, int w, int h, const char *class, const char *head)
{
    fprintf(to, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\" class=\"%s\"/>\n", x,
            y, w, h, class);
    if (head)
        plot_text(x + SVG_PAD, y + 15, "start", "head", head, to);
}

static bool text_is_at(const struct topology_rank *rank, int machine, int core, int gpu)
{
    return rank->machine == machine && (core >= 0 ? rank->core == core : rank->gpu == gpu);
}

/*
 * Writes the ranks on a core of a machine or, if core is -1, on a GPU: "0-3,8". Shortened to
 * "0-3 +4" if `size` is too small. Returns the number of ranks.
 */
static int topology_ranks_at(const struct topology *topology, int machine, int core, int gpu,
                             char *text, size_t size)
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

/* Draws a core or GPU: its name and its ranks. A tooltip lists all ranks. */
static void svg_cell(FILE *to, const struct topology *topology, int machine, int core, int gpu,
                     int x, int y)
{
    const int w = core >= 0 ? SVG_CORE_W : SVG_GPU_W;
    const char *idle = core >= 0 ? "idle" : "gpu idlegpu";
    char name[64], few[SVG_BIG], all[256];
    int count = topology_ranks_at(topology, machine, core, gpu, all, sizeof(all));

    topology_ranks_at(topology, machine, core, gpu, few, core >= 0 ? 9 : sizeof(few));
    if (core >= 0)
        snprintf(name, sizeof(name), "core %d", core);
    else
        snprintf(name, sizeof(name), "GPU %d %.14s", gpu, topology->machine[machine].gpu[gpu].name);
    fprintf(to, "<g>");
    if (count) {
        fprintf(to, "<title>");
        markup_escape(name, to);
        fprintf(to, ": rank%s %s</title>", count == 1 ? "" : "s", all);
    }
    svg_box(to, x, y, w, SVG_CORE_H,
            count == 0   ? idle
            : core < 0   ? "gpu"
            : count == 1 ? "one"
                         : "shared",
            NULL);
    plot_text(x + 5, y + 12, "start", "small", name, to);
    plot_text(x + w / 2, y + 29, "middle", "rank", few, to);
    fprintf(to, "</g>\n");
}

/* Draws the GPUs of a part (NULL: the GPUs in no part) in rows of `width`. */
static void svg_gpus(FILE *to, const struct topology *topology, int machine,
                     const struct topology_part *part, int width, int x, int y)
{
    const struct topology_machine *info = &topology->machine[machine];
    const int columns = svg_gpu_columns(width);

    for (int gpu = 0, i = 0; gpu < info->gpus; gpu++) {
        if (!topology_part_has_gpu(info, part, gpu))
            continue;
        svg_cell(to, topology, machine, -1, gpu, x + SVG_PAD + i % columns * (SVG_GPU_W + SVG_GAP),
                 y + i / columns * (SVG_GPU_H + SVG_GAP));
        i++;
    }
}

static void svg_part(FILE *to, const struct topology *topology, int machine,
                     const struct svg_layout *layout, const struct topology_part *part, int x,
                     int y)
{
    const int columns = layout->core_columns;
    const int below = SVG_HEAD + svg_rows(part->cores, columns) * (SVG_CORE_H + SVG_GAP);
    char head[32] = "cores";

    if (part->numa >= 0)
        snprintf(head, sizeof(head), "NUMA %d", part->numa);
    svg_box(to, x, y, layout->part_w, layout->part_h, "numa", head);
    for (int i = 0; i < part->cores; i++)
        svg_cell(to, topology, machine, part->first + i, -1,
                 x + SVG_PAD + i % columns * (SVG_CORE_W + SVG_GAP),
                 y + SVG_HEAD + i / columns * (SVG_CORE_H + SVG_GAP));
    svg_gpus(to, topology, machine, part, layout->part_w, x, y + below);
}

static void svg_machine(FILE *to, const struct topology *topology, int machine,
                        const struct svg_layout *layout, int x, int y)
{
    const struct topology_machine *info = &topology->machine[machine];
    int package = -2, packages = 0, parts = 0, left = 0, top = 0;
    char head[32];

    svg_box(to, x, y, layout->w, layout->h, "machine", info->host);
    for (int core = 0; core < info->cores;) {
        struct topology_part part = topology_part_at(info, core);

        if (part.package != package) {
            left = x + SVG_PAD + packages % layout->package_columns * (layout->package_w + SVG_PAD);
            top = y + SVG_HEAD + packages / layout->package_columns * (layout->package_h + SVG_PAD);
            snprintf(head, sizeof(head), part.package < 0 ? "machine" : "package %d", part.package);
            svg_box(to, left, top, layout->package_w, layout->package_h, "package", head);
            package = part.package;
            parts = 0;
            packages++;
        }
        svg_part(to, topology, machine, layout, &part,
                 left + SVG_PAD + parts % layout->part_columns * (layout->part_w + SVG_PAD),
                 top + SVG_HEAD + parts / layout->part_columns * (layout->part_h + SVG_PAD));
        parts++;
        core += part.cores;
    }
    svg_gpus(to, topology, machine, NULL, layout->w, x,
             y + SVG_HEAD +
                 svg_rows(packages, layout->package_columns) * (layout->package_h + SVG_PAD));
}

static void svg_begin(FILE *to, int w, int h, const struct topology *topology)
{
    static const struct plot_rule colours[] = {
        {"rect", "stroke", PLOT_FAINT},     {".machine,.numa", "fill", PLOT_GROUND},
        {".package", "fill", PLOT_PANEL},   {".idle,.gpu.idlegpu", "fill", PLOT_PANEL},
        {".idle", "stroke", PLOT_GRID},     {".one", "fill", PLOT_BLUE},
        {".one", "stroke", PLOT_BLUE},      {".shared", "fill", PLOT_ORANGE},
        {".shared", "stroke", PLOT_ORANGE}, {".gpu", "fill", PLOT_GREEN},
        {".gpu", "stroke", PLOT_GREEN},     {"svg .small", "fill", PLOT_FAINT},
    };
    static const char shapes[] =
        ".ground{stroke:none}.one,.shared,.gpu{fill-opacity:.25}.idlegpu{fill-opacity:1}"
        "svg .head{font-size:12px;font-weight:bold}svg .small{font-size:9px}"
        "svg .rank{font-size:13px;font-weight:bold}svg .legend{font-size:12px}";

    plot_svg_begin(w, h, colours, sizeof(colours) / sizeof(colours[0]), shapes, to);
    fprintf(to, "<text x=\"%d\" y=\"20\" class=\"head\">", SVG_PAD);
    if (topology->ranks)
        fprintf(to, "%d rank%s on %d machine%s; bold numbers are ranks</text>\n", topology->ranks,
                topology->ranks == 1 ? "" : "s", topology->machines,
                topology->machines == 1 ? "" : "s");
    else
        fprintf(to, "no job</text>\n");
}

void topology_draw(const struct topology *topology, FILE *to)
{
    struct svg_layout layout;
    int w = 0, h = 0, columns, rows;

    for (int i = 0; i < topology->machines; i++) {
        layout = svg_lay_out(&topology->machine[i]);
        w = svg_larger(w, layout.w + SVG_PAD);
        h = svg_larger(h, layout.h + SVG_PAD);
    }
    columns = svg_larger(1, SVG_WIDTH / w);
    columns = columns > topology->machines ? topology->machines : columns;
    rows = svg_rows(topology->machines, columns);
    svg_begin(to, svg_larger(columns * w, SVG_LEGEND_W) + SVG_PAD, 30 + rows * h + 60, topology);
    for (int i = 0; i < topology->machines; i++) {
        layout = svg_lay_out(&topology->machine[i]);
        svg_machine(to, topology, i, &layout, SVG_PAD + i % columns * w, 30 + i / columns * h);
    }
    static const char *const items[][2] = {{"one", "core of one rank"},
                                           {"shared", "core that ranks share"},
                                           {"idle", "core without ranks"},
                                           {"gpu", "GPU of a rank"},
                                           {"gpu idlegpu", "GPU without ranks"}};

    for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
        const int left = SVG_PAD + (int)(i % 3) * 180, top = (30 + rows * h) + (int)(i / 3) * 24;

        svg_box(to, left, top, 22, 16, items[i][0], NULL);
        plot_text(left + 28, top + 13, "start", "legend", items[i][1], to);
    }
    fprintf(to, "</svg>\n");
}

/* ---- text ---- */

/* Prints "ranks 0-3" of a core or GPU after `gap` blanks, if there are ranks, and ends the line. */
static void text_ranks(const struct topology *topology, int machine, int core, int gpu, int gap,
                       FILE *to)
{
    char ranks[256];
    int count = topology_ranks_at(topology, machine, core, gpu, ranks, sizeof(ranks));

    if (count)
        fprintf(to, "%*srank%s %s", gap, "", count == 1 ? "" : "s", ranks);
    fprintf(to, "\n");
}

/* Prints the cores of a part. Adjacent cores without ranks share a line. */
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

/* Prints the GPUs of a part; NULL: the GPUs in no part. */
static void text_gpus(const struct topology *topology, int machine,
                      const struct topology_part *part, FILE *to)
{
    const struct topology_machine *info = &topology->machine[machine];

    for (int gpu = 0; gpu < info->gpus; gpu++) {
        if (!topology_part_has_gpu(info, part, gpu))
            continue;
        fprintf(to, "      GPU %d%s%s", gpu, *info->gpu[gpu].name ? " " : "", info->gpu[gpu].name);
        text_ranks(topology, machine, -1, gpu, 2, to);
    }
}

/* ---- the command ---- */

struct words {
    int64_t ranks;
    const char *svg;
    int action;
};

#define AT(member) offsetof(struct words, member)
static const struct args_row words_rows[] = {
    {"ranks", 0, ARGS_INT, AT(ranks), 1, 4096, "N",
     "start N ranks on this machine (default: the launcher's ranks, or none)"},
    {"svg", 0, ARGS_TEXT, AT(svg), 0, 0, "FILE",
     "write an SVG picture to FILE; -: standard output"},
    ARGS_HELP_ROWS(struct words, 0),
};
static const struct args words_args = {
    .rows = words_rows,
    .count = sizeof(words_rows) / sizeof(words_rows[0]),
    .program = "dist_info topology",
    .usage = "[--ranks N] [--svg FILE]",
    .about = "Shows packages, NUMA nodes, cores and GPUs, and the ranks on them.\n"};

static int topology_show(const struct topology *topology, const struct words *words)
{
    struct output file;

    if (!words->svg) {
        for (int machine = 0; machine < topology->machines; machine++) {
            const struct topology_machine *info = &topology->machine[machine];
            int package = -2;

            fprintf(stdout, "%s: %d cores", info->host, info->cores);
            if (info->core[0].threads > 1)
                fprintf(stdout, " of %d threads", info->core[0].threads);
            fprintf(stdout, ", %d GPU%s\n", info->gpus, info->gpus == 1 ? "" : "s");
            for (int core = 0; core < info->cores;) {
                struct topology_part part = topology_part_at(info, core);

                if (part.package != package && part.package >= 0)
                    fprintf(stdout, "  package %d\n", part.package);
                package = part.package;
                if (part.numa >= 0)
                    fprintf(stdout, "    NUMA node %d\n", part.numa);
                text_cores(topology, machine, &part, stdout);
                text_gpus(topology, machine, &part, stdout);
                core += part.cores;
            }
            text_gpus(topology, machine, NULL, stdout);
            for (int rank = 0; rank < topology->ranks; rank++) {
                if (topology->rank[rank].machine == machine && topology->rank[rank].core < 0)
                    fprintf(stdout, "      rank %d, core unknown\n", rank);
            }
        }
        return output_exit("dist_info", 0);
    }
    if (strcmp(words->svg, "-") == 0) {
        topology_draw(topology, stdout);
        return output_exit("dist_info", 0);
    }
    output_begin(&file);
    if (file.to)
        topology_draw(topology, file.to);
    if (output_end(&file, words->svg) == 0)
        return 0;
    fprintf(stderr, "dist_info: topology: --svg %s: cannot write: %s\n", words->svg,
            strerror(errno));
    return 1;
}

/* Runs one rank of a job. Rank 0 prints. Returns the exit code. */
static int topology_rank(int rank, void *arg)
{
    struct topology topology = {0};
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group = NULL;
    dist_status status;
    int code = 0;

    (void)rank;
    options.backend = "gloo";
    status = dist_init_process_group(&options, &group);
    if (status == DIST_OK)
        status = topology_gather_group(group, &topology);
    if (group)
        dist_destroy_process_group(group);
    if (status != DIST_OK) {
        fprintf(stderr, "dist_info: topology: %s\n", dist_last_error());
        code = 1;
    } else if (topology.ranks) {
        code = topology_show(&topology, arg);
    }
    free(topology.machine);
    free(topology.rank);
    return code;
}

/* Shows this machine without ranks. Returns the exit code. */
static int topology_alone(const struct words *words)
{
    struct topology topology = {.machines = 1, .machine = malloc(sizeof(*topology.machine))};
    int code;

    if (!topology.machine) {
        fprintf(stderr, "dist_info: out of memory\n");
        return 1;
    }
    topology_discover(topology.machine);
    code = topology_show(&topology, words);
    free(topology.machine);
    return code;
}

int topology_main(int argc, char **argv)
{
    struct words words = {0};
    int rest, code = args_begin(&words_args, argc, argv, &words, 0, &rest);

    if (code >= 0)
        return code;
    code = 0;
    if (!words.ranks)
        return launched_in_job() ? topology_rank(0, &words) : topology_alone(&words);
    if (dist_spawn((int)words.ranks, topology_rank, &words, &code) != DIST_OK) {
        fprintf(stderr, "dist_info: %s\n", dist_last_error());
        return 1;
    }
    if (code != 0)
        launched_report_end("dist_info", code);
    return code;
}

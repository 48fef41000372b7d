/* SPDX-License-Identifier: BSD-3-Clause */
/* Pictures: the ring, and the trees that follow from a topology, as SVG. */
#include "base/log.h"
#include "tools/common/output.h"
#include "tools/sim/job.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* More do not fit into a picture that one can read. */
#define DRAW_RANKS_MAX 256
#define DRAW_SPACING 28 /* between the middles of two ranks */
#define DRAW_RING 40    /* the same on the ring, where arrows are between them */
#define DRAW_RADIUS 11  /* of a rank */
#define DRAW_LEVEL 60   /* from one level of a tree to the next */
#define DRAW_MARGIN 40
#define DRAW_TITLE 30
#define DRAW_LABEL 70  /* room for the names of nodes around the ring */
#define DRAW_WIDTH 680 /* at least, for titles and the legend */

static const char *const draw_colours[DISTI_DISTANCES] = {"#2e7d32", "#1565c0", "#ef6c00",
                                                          "#c62828"};
static const char *const draw_names[DISTI_DISTANCES] = {"same NUMA node", "same node", "other node",
                                                        "other rack"};

struct draw {
    FILE *to;
    const struct disti_topology *topology;
    double x[DRAW_RANKS_MAX], y[DRAW_RANKS_MAX]; /* by rank */
    double width, top;                           /* of the picture; where the next part begins */
};

/* ---- parts ---- */

static void draw_title(struct draw *draw, const char *text)
{
    fprintf(draw->to, "<text x='%d' y='%.0f' font-size='16' font-weight='bold'>%s</text>\n",
            DRAW_MARGIN, draw->top + 16, text);
    draw->top += DRAW_TITLE;
}

/* From rim to rim; the data go from `from` to `to`. */
static void draw_edge(const struct draw *draw, int from, int to)
{
    double dx = draw->x[to] - draw->x[from], dy = draw->y[to] - draw->y[from];
    double length = hypot(dx, dy), cut = (DRAW_RADIUS + 1) / (length > 1 ? length : 1);
    int distance = (int)disti_distance(draw->topology, from, to);
    fprintf(draw->to,
            "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='%s' stroke-width='2' "
            "marker-end='url(#arrow%d)'/>\n",
            draw->x[from] + dx * cut, draw->y[from] + dy * cut, draw->x[to] - dx * cut,
            draw->y[to] - dy * cut, draw_colours[distance], distance);
}

/* Nodes that follow each other have different shades. */
static void draw_ranks(const struct draw *draw)
{
    for (int rank = 0; rank < draw->topology->ranks; rank++) {
        bool odd = disti_node_of(draw->topology, rank) % 2;
        fprintf(draw->to,
                "<circle cx='%.1f' cy='%.1f' r='%d' fill='%s' stroke='#444'/>"
                "<text x='%.1f' y='%.1f' font-size='11' text-anchor='middle'>%d</text>\n",
                draw->x[rank], draw->y[rank], DRAW_RADIUS, odd ? "#dce6f2" : "#fff4d6",
                draw->x[rank], draw->y[rank] + 4, rank);
    }
}

/* The name of a node outside the ring, along the radius so that neighbours have room. */
static void draw_node_name(const struct draw *draw, int node, double cx, double cy, double radius)
{
    const struct disti_topology *t = draw->topology;
    double middle = t->node_first[node] + (disti_node_size(t, node) - 1) / 2.0;
    double angle = 360 * middle / t->ranks - 90;
    bool left = angle > 90;
    fprintf(draw->to,
            "<text font-size='11' text-anchor='%s' "
            "transform='translate(%.1f %.1f) rotate(%.1f)'>node %d</text>\n",
            left ? "end" : "start", cx + radius * cos(angle * M_PI / 180),
            cy + radius * sin(angle * M_PI / 180), left ? angle - 180 : angle, node);
}

static double draw_ring_radius(int ranks)
{
    double radius = ranks * DRAW_RING / (2 * M_PI);
    return radius < 70 ? 70 : radius;
}

static void draw_ring(struct draw *draw)
{
    const struct disti_topology *t = draw->topology;
    double radius = draw_ring_radius(t->ranks), cx = draw->width / 2;
    draw_title(draw, "The ring");
    double cy = draw->top + DRAW_LABEL + radius;
    for (int i = 0; i < t->ranks; i++) {
        double angle = 2 * M_PI * i / t->ranks - M_PI / 2;
        draw->x[t->order[i]] = cx + radius * cos(angle);
        draw->y[t->order[i]] = cy + radius * sin(angle);
    }
    for (int rank = 0; rank < t->ranks && t->ranks > 1; rank++)
        draw_edge(draw, rank, disti_ring_next(t, rank));
    draw_ranks(draw);
    for (int node = 0; node < t->nodes && t->nodes > 1; node++)
        draw_node_name(draw, node, cx, cy, radius + DRAW_RADIUS + 8);
    draw->top = cy + radius + DRAW_LABEL + DRAW_MARGIN;
}

/* ---- trees ---- */

/* which: 0 or 1 of the double tree; -1: the binomial one. */
static void tree_neighbours(const struct disti_topology *t, int which, int root, int rank,
                            struct disti_tree_neighbours *tree_p)
{
    if (which < 0)
        disti_tree_binomial(t, root, rank, tree_p);
    else
        disti_tree_double(t, which, rank, tree_p);
}

/* The binomial tree's columns: a rank, then the trees below it, the smallest first. */
static int tree_columns(const struct disti_topology *t, int root, int rank, int level, int column,
                        int *columns, int *levels)
{
    struct disti_tree_neighbours tree;
    disti_tree_binomial(t, root, rank, &tree);
    columns[rank] = column++;
    levels[rank] = level;
    for (int i = tree.children - 1; i >= 0; i--)
        column = tree_columns(t, root, tree.child[i], level + 1, column, columns, levels);
    return column;
}

static int tree_level(const struct disti_topology *t, int which, int rank)
{
    struct disti_tree_neighbours tree;
    int level = 0;
    for (disti_tree_double(t, which, rank, &tree); tree.parent >= 0; level++)
        disti_tree_double(t, which, tree.parent, &tree);
    return level;
}

static void draw_tree(struct draw *draw, int which, int root, const char *title)
{
    const struct disti_topology *t = draw->topology;
    int columns[DRAW_RANKS_MAX], levels[DRAW_RANKS_MAX], deepest = 0;
    if (which < 0)
        tree_columns(t, root, root, 0, 0, columns, levels);
    for (int rank = 0; rank < t->ranks; rank++) {
        if (which >= 0) { /* it is one of search: positions go from left to right */
            columns[rank] = t->position[rank];
            levels[rank] = tree_level(t, which, rank);
        }
        deepest = levels[rank] > deepest ? levels[rank] : deepest;
    }
    draw_title(draw, title);
    double left = (draw->width - (t->ranks - 1) * DRAW_SPACING) / 2;
    for (int rank = 0; rank < t->ranks; rank++) {
        draw->x[rank] = left + columns[rank] * DRAW_SPACING;
        draw->y[rank] = draw->top + DRAW_RADIUS + levels[rank] * DRAW_LEVEL;
    }
    for (int rank = 0; rank < t->ranks; rank++) {
        struct disti_tree_neighbours tree;
        tree_neighbours(t, which, root, rank, &tree);
        if (tree.parent >= 0)
            draw_edge(draw, tree.parent, rank);
    }
    draw_ranks(draw);
    draw->top += deepest * DRAW_LEVEL + 2 * DRAW_RADIUS + DRAW_MARGIN;
}

/* ---- the picture ---- */

static void draw_legend(struct draw *draw)
{
    double x = DRAW_MARGIN;
    for (int d = 0; d < DISTI_DISTANCES; d++) {
        if (!job_has(draw->topology, d))
            continue;
        fprintf(draw->to,
                "<line x1='%.0f' y1='%.0f' x2='%.0f' y2='%.0f' stroke='%s' stroke-width='3'/>"
                "<text x='%.0f' y='%.0f' font-size='12'>%s</text>\n",
                x, draw->top, x + 24, draw->top, draw_colours[d], x + 30, draw->top + 4,
                draw_names[d]);
        x += 160;
    }
    draw->top += DRAW_MARGIN;
}

static double draw_width(int ranks)
{
    double ring = 2 * (draw_ring_radius(ranks) + DRAW_LABEL), tree = ranks * DRAW_SPACING;
    double width = (ring > tree ? ring : tree) + 2 * DRAW_MARGIN;
    return width < DRAW_WIDTH ? DRAW_WIDTH : width;
}

static dist_status draw_write(const struct draw *draw, const char *parts, const char *file)
{
    struct output output;
    output_begin(&output);
    if (output.to)
        fprintf(output.to,
                "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' "
                "font-family='sans-serif'>\n<rect width='100%%' height='100%%' fill='white'/>\n%s"
                "</svg>\n",
                draw->width, draw->top, parts);
    if (output_end(&output, file) < 0)
        return disti_fail(DIST_ERR_SYSTEM, "--draw %s: cannot write: %s", file, strerror(errno));
    return DIST_OK;
}

dist_status job_draw(const struct disti_topology *topology, int root, const char *file)
{
    char *parts = NULL, title[64];
    size_t size = 0;
    if (topology->ranks > DRAW_RANKS_MAX)
        return disti_fail(DIST_ERR_UNSUPPORTED,
                          "--draw: a picture of %d ranks would be too large to read; give a "
                          "topology of at most %d",
                          topology->ranks, DRAW_RANKS_MAX);
    struct draw draw = {.topology = topology, .width = draw_width(topology->ranks), .top = 24};
    /* The picture is as high as what was drawn, so its head is written last: here to memory. */
    draw.to = open_memstream(&parts, &size);
    if (!draw.to)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a picture");
    for (int d = 0; d < DISTI_DISTANCES; d++)
        fprintf(draw.to,
                "<marker id='arrow%d' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='8' "
                "markerHeight='8' markerUnits='userSpaceOnUse' orient='auto'>"
                "<path d='M0 0 L8 4 L0 8 z' fill='%s'/></marker>\n",
                d, draw_colours[d]);
    snprintf(title, sizeof(title), "The binomial tree from rank %d", root);
    draw_legend(&draw);
    draw_ring(&draw);
    draw_tree(&draw, -1, root, title);
    draw_tree(&draw, 0, root, "The first of two trees");
    draw_tree(&draw, 1, root, "The second of two trees");
    bool lost = ferror(draw.to);
    dist_status status = fclose(draw.to) != 0 || lost
                             ? disti_fail(DIST_ERR_NO_MEMORY, "no memory for a picture")
                             : draw_write(&draw, parts, file);
    free(parts);
    return status;
}

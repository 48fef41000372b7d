/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sets of labelled images: MNIST and CIFAR-10, read from their files or synthetic; batches, and the
 * threads that load them.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "dataset.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef HAVE_ZLIB
#include <zlib.h>
#endif

#include "failure.h"
#include "rng.h"

int dataset_read(const struct dataset_kind *kind, const char *folder, bool train,
                 struct dataset *dataset)
{
    struct stat status;

    *dataset = (struct dataset){.kind = kind, .train = train};
    if (stat(folder, &status) < 0)
        return failure("--data %s: %s", folder, strerror(errno));
    if (!S_ISDIR(status.st_mode))
        return failure("--data %s: not a directory: name the directory of the files", folder);
    if (kind->read(folder, train, dataset) == 0)
        return 0;
    dataset_destroy(dataset);
    return -1;
}

uint8_t dataset_get(const struct dataset *dataset, size_t index, uint8_t *image)
{
    const size_t size = (size_t)shape_size(dataset->kind->shape);

    if (!dataset->images)
        return dataset->kind->draw(dataset->seed, dataset->train, index, image);
    memcpy(image, dataset->images + index * size, size);
    return dataset->labels[index];
}

/* ---- files, plain or gzip ---- */

enum { SOURCE_DEFLATE_RATIO = 1032 }; /* the best compression ratio that deflate can reach */

struct source {
    const char *path; /* owned by the caller; must outlive the source */
    uint64_t size;    /* size on disk */
    uint64_t offset;  /* uncompressed bytes delivered */
    bool compressed;
    int fd; /* -1 after zlib has taken it over */
#ifdef HAVE_ZLIB
    gzFile gz;
#endif
};

/*
 * Opens a file. Compression is detected by content, not by name; without zlib a compressed file is
 * an error. The caller calls source_close in any case, also after failure.
 */
static int source_open(const char *path, struct source *source)
{
    struct stat status;
    uint8_t magic[2];

    *source = (struct source){.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC)};
    if (source->fd < 0 || fstat(source->fd, &status) < 0)
        return failure("%s: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode))
        return failure("%s: not a regular file", path);
    source->size = (uint64_t)status.st_size;
    source->compressed =
        pread(source->fd, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
    if (!source->compressed)
        return 0;
#ifdef HAVE_ZLIB
    source->gz = gzdopen(source->fd, "rb");
    if (!source->gz)
        return failure("%s: out of memory", path);
    source->fd = -1;
    gzbuffer(source->gz, 1 << 17);
    return 0;
#else
    return failure("%s: compressed with gzip, but this program was built without zlib: "
                   "run gunzip on it",
                   path);
#endif
}

static void source_close(struct source *source)
{
    if (source->fd >= 0)
        close(source->fd);
#ifdef HAVE_ZLIB
    if (source->gz)
        gzclose(source->gz);
#endif
}

/*
 * Reads size bytes, or fewer at the end of the file; *read_p is the number of bytes read. -1: the
 * file cannot be read or its compressed data is damaged (the message names the byte offset).
 */
static int source_read(struct source *source, void *to, size_t size, size_t *read_p)
{
    const size_t most = 1U << 30; /* bytes per read */
    const unsigned long long begin = source->offset;
    size_t done = 0;
    ssize_t got = 1;

    while (done < size && got > 0) {
        const size_t piece = size - done < most ? size - done : most;

        if (!source->compressed) {
            do {
                got = read(source->fd, (char *)to + done, piece);
            } while (got < 0 && errno == EINTR);
            if (got < 0)
                return failure("%s: byte %llu: %s", source->path, begin + done, strerror(errno));
        }
#ifdef HAVE_ZLIB
        if (source->gz) {
            int error = Z_OK;
            const char *text;

            got = gzread(source->gz, (char *)to + done, (unsigned)piece);
            text = gzerror(source->gz, &error);
            if (got < 0 || (got == 0 && error != Z_OK && error != Z_STREAM_END))
                return failure(
                    "%s: byte %llu: the compressed data is damaged or ends too early (%s)",
                    source->path, begin + done, text);
        }
#endif
        done += (size_t)got;
        source->offset += (uint64_t)got;
    }
    *read_p = done;
    return 0;
}

/* ---- IDX ---- */

enum { IDX_UNSIGNED_BYTE = 8 };

/* Reads exactly size bytes, or reports how many are missing. */
static int idx_read_exactly(struct source *source, const char *what, void *to, size_t size)
{
    size_t got;

    if (source_read(source, to, size, &got) < 0)
        return -1;
    if (got < size)
        return failure("%s: byte %" PRIu64 ": the file ends here, expected %zu bytes more (%s)",
                       source->path, source->offset, size - got, what);
    return 0;
}

/* Reads the header, checks that the file can contain all the data, and reads the data. */
static int idx_read_all(struct source *source, int dimensions, struct idx *idx)
{
    const char *path = source->path;
    const uint64_t ratio = source->compressed ? SOURCE_DEFLATE_RATIO : 1;
    const uint64_t most = source->size > UINT64_MAX / ratio ? UINT64_MAX : source->size * ratio;
    const size_t begin = 4 + 4 * (size_t)dimensions;
    uint8_t header[4 + 4 * IDX_MAX_DIMENSIONS];
    uint8_t more;
    size_t got;

    if (idx_read_exactly(source, "the header", header, 4) < 0)
        return -1;
    if (header[0] != 0 || header[1] != 0)
        return failure("%s: byte 0: 0x%02x%02x, expected 0x0000: not an IDX file", path, header[0],
                       header[1]);
    if (header[2] != IDX_UNSIGNED_BYTE)
        return failure("%s: byte 2: element type 0x%02x, expected 0x%02x (unsigned bytes)", path,
                       header[2], IDX_UNSIGNED_BYTE);
    if (header[3] != dimensions)
        return failure("%s: byte 3: %u dimensions, expected %d", path, header[3], dimensions);
    if (idx_read_exactly(source, "the sizes", header + 4, 4 * (size_t)dimensions) < 0)
        return -1;
    idx->count = 1;
    for (int i = 0; i < dimensions; i++) {
        uint32_t size;

        memcpy(&size, header + 4 + 4 * i, sizeof(size));
        size = be32toh(size);
        if (size == 0)
            return failure("%s: byte %d: size 0, expected at least 1", path, 4 + 4 * i);
        if (__builtin_mul_overflow(idx->count, (size_t)size, &idx->count))
            return failure("%s: byte %d: size %u, which is more elements than memory can hold",
                           path, 4 + 4 * i, size);
        idx->sizes[i] = size;
    }
    /* Do not trust the header: never allocate more than the file can contain. */
    if (most < begin || idx->count > most - begin)
        return failure("%s: byte %llu: the file ends here or earlier, expected %zu bytes after its "
                       "header of %zu: it is truncated or its sizes are corrupt",
                       path, (unsigned long long)most, idx->count, begin);
    idx->bytes = malloc(idx->count);
    if (!idx->bytes)
        return failure("%s: out of memory for %zu bytes", path, idx->count);
    if (idx_read_exactly(source, "the data according to the header", idx->bytes, idx->count) < 0 ||
        source_read(source, &more, 1, &got) < 0)
        return -1;
    if (got > 0)
        return failure("%s: byte %zu: more data than the header specifies, expected the end of the "
                       "file",
                       path, begin + idx->count);
    return 0;
}

int idx_read(const char *path, int dimensions, struct idx *idx)
{
    struct idx read = {.bytes = NULL};
    struct source source;
    int result = source_open(path, &source);

    if (result == 0)
        result = idx_read_all(&source, dimensions, &read);
    source_close(&source);
    if (result == 0)
        *idx = read;
    else
        free(read.bytes);
    return result;
}

/* ---- MNIST: the strokes of synthetic digits ---- */

enum { GLYPH_POINTS = 10, GLYPH_STROKES = 3, GLYPH_COUNT = 20 };

struct glyph_point {
    float x, y;
};

/* The points are in the unit square, x to the right, y down. */
struct glyph_stroke {
    int curve; /* 1: a smooth curve through the points; 0: straight lines */
    int count;
    struct glyph_point points[GLYPH_POINTS];
};

/* One variant of a digit. */
struct glyph {
    int digit;
    int count;
    struct glyph_stroke strokes[GLYPH_STROKES];
};

/* clang-format off */
#define LINE(n, ...)  {0, n, {__VA_ARGS__}}
#define CURVE(n, ...) {1, n, {__VA_ARGS__}}

/* Two variants of each digit, in ascending order of the digits. */

static const struct glyph glyphs[GLYPH_COUNT] = {
    {0, 1, {CURVE(8, {.50F, .05F}, {.22F, .22F}, {.15F, .60F}, {.38F, .94F}, {.70F, .85F},
                     {.85F, .50F}, {.75F, .15F}, {.47F, .06F})}},
    {0, 1, {CURVE(8, {.62F, .04F}, {.35F, .25F}, {.28F, .65F}, {.42F, .95F}, {.60F, .85F},
                     {.72F, .50F}, {.72F, .18F}, {.52F, .08F})}},
    {1, 1, {LINE(2, {.52F, .05F}, {.48F, .95F})}},
    {1, 1, {LINE(3, {.32F, .28F}, {.55F, .05F}, {.53F, .95F})}},
    {2, 2, {CURVE(6, {.20F, .25F}, {.42F, .06F}, {.72F, .14F}, {.73F, .40F}, {.48F, .68F},
                     {.18F, .93F}),
            LINE(2, {.18F, .93F}, {.85F, .91F})}},
    {2, 1, {CURVE(9, {.22F, .22F}, {.50F, .05F}, {.76F, .25F}, {.60F, .58F}, {.28F, .90F},
                     {.18F, .80F}, {.38F, .77F}, {.62F, .92F}, {.88F, .90F})}},
    {3, 2, {CURVE(5, {.20F, .15F}, {.50F, .05F}, {.75F, .20F}, {.65F, .42F}, {.40F, .48F}),
            CURVE(5, {.40F, .48F}, {.74F, .55F}, {.78F, .80F}, {.50F, .96F}, {.17F, .85F})}},
    {3, 2, {LINE(3, {.20F, .08F}, {.76F, .08F}, {.45F, .42F}),
            CURVE(5, {.45F, .42F}, {.78F, .54F}, {.75F, .84F}, {.45F, .96F}, {.17F, .86F})}},
    {4, 2, {LINE(3, {.60F, .05F}, {.15F, .62F}, {.88F, .62F}),
            LINE(2, {.64F, .32F}, {.62F, .96F})}},
    {4, 2, {LINE(3, {.24F, .06F}, {.20F, .50F}, {.78F, .50F}),
            LINE(2, {.76F, .05F}, {.72F, .96F})}},
    {5, 2, {LINE(3, {.80F, .07F}, {.32F, .08F}, {.25F, .45F}),
            CURVE(5, {.25F, .45F}, {.55F, .38F}, {.80F, .62F}, {.62F, .92F}, {.18F, .90F})}},
    {5, 3, {LINE(2, {.28F, .08F}, {.26F, .44F}),
            CURVE(5, {.26F, .44F}, {.60F, .40F}, {.74F, .68F}, {.52F, .95F}, {.20F, .88F}),
            LINE(2, {.28F, .08F}, {.78F, .04F})}},
    {6, 1, {CURVE(8, {.70F, .05F}, {.40F, .25F}, {.22F, .60F}, {.32F, .92F}, {.65F, .92F},
                     {.76F, .68F}, {.50F, .52F}, {.25F, .70F})}},
    {6, 1, {CURVE(8, {.52F, .04F}, {.34F, .35F}, {.30F, .75F}, {.50F, .96F}, {.72F, .82F},
                     {.66F, .60F}, {.44F, .60F}, {.31F, .78F})}},
    {7, 1, {LINE(3, {.16F, .08F}, {.82F, .08F}, {.42F, .95F})}},
    {7, 3, {LINE(2, {.18F, .10F}, {.80F, .08F}),
            CURVE(3, {.80F, .08F}, {.55F, .45F}, {.42F, .95F}),
            LINE(2, {.34F, .52F}, {.76F, .50F})}},
    {8, 1, {CURVE(9, {.72F, .22F}, {.50F, .05F}, {.28F, .20F}, {.46F, .46F}, {.73F, .74F},
                     {.50F, .95F}, {.25F, .76F}, {.54F, .46F}, {.72F, .20F})}},
    {8, 2, {CURVE(7, {.50F, .05F}, {.30F, .18F}, {.34F, .40F}, {.52F, .47F}, {.70F, .36F},
                     {.70F, .15F}, {.48F, .05F}),
            CURVE(7, {.52F, .47F}, {.26F, .60F}, {.27F, .86F}, {.50F, .95F}, {.74F, .85F},
                     {.74F, .60F}, {.50F, .47F})}},
    {9, 2, {CURVE(6, {.74F, .28F}, {.52F, .06F}, {.25F, .25F}, {.38F, .50F}, {.66F, .44F},
                     {.75F, .22F}),
            LINE(3, {.75F, .22F}, {.72F, .55F}, {.62F, .96F})}},
    {9, 2, {CURVE(6, {.72F, .26F}, {.50F, .06F}, {.26F, .26F}, {.40F, .50F}, {.64F, .44F},
                     {.74F, .20F}),
            CURVE(4, {.74F, .20F}, {.78F, .68F}, {.55F, .95F}, {.25F, .86F})}},
};
/* clang-format on */

/* ---- synthetic digits ---- */

/*
 * Draws a digit in these steps: jitter the glyph's control points; divide curves into short lines;
 * move every point by a smooth random field (elastic) and by a random rotation, slant, scale and
 * shift (affine); draw the lines with a random width. The ink of a pixel decreases from full to
 * none within one pixel of the stroke's edge.
 */

enum {
    DIGITS_PIECES = 4, /* lines per curve segment */
    DIGITS_WAVES = 2   /* sine waves of the elastic field, per direction */
};

/* The random distortion of a digit; maps the unit square to pixels. */
struct digits_warp {
    float xx, xy, yx, yy; /* affine map about the middle */
    float middle_x, middle_y;
    struct digits_wave {
        float strength, phase, along_x, along_y;
    } waves[2 * DIGITS_WAVES]; /* even indices move x, odd ones y */
};

static void digits_warp_init(struct rng *rng, struct digits_warp *warp)
{
    const float turn = rng_between(rng, -0.38F, 0.38F), slant = rng_between(rng, -0.35F, 0.35F);
    const float width = rng_between(rng, 11.0F, 21.0F), height = rng_between(rng, 15.0F, 21.5F);
    const float sine = sinf(turn), cosine = cosf(turn);

    warp->xx = cosine * width;
    warp->xy = (-sine - slant * cosine) * height;
    warp->yx = sine * width;
    warp->yy = (cosine - slant * sine) * height;
    warp->middle_x = DIGITS_SIDE / 2.0F + rng_between(rng, -3.0F, 3.0F);
    warp->middle_y = DIGITS_SIDE / 2.0F + rng_between(rng, -3.0F, 3.0F);
    for (int i = 0; i < 2 * DIGITS_WAVES; i++) {
        warp->waves[i].strength = rng_between(rng, 0.0F, 0.07F);
        warp->waves[i].phase = rng_between(rng, 0.0F, 6.2832F);
        warp->waves[i].along_x = rng_between(rng, -7.0F, 7.0F);
        warp->waves[i].along_y = rng_between(rng, -7.0F, 7.0F);
    }
}

static struct glyph_point digits_warp_point(const struct digits_warp *warp,
                                            struct glyph_point point)
{
    float moved[2] = {point.x - 0.5F, point.y - 0.5F};

    for (int i = 0; i < 2 * DIGITS_WAVES; i++) {
        const struct digits_wave *wave = &warp->waves[i];
        const float angle = wave->along_x * point.x + wave->along_y * point.y;

        moved[i % 2] += wave->strength * sinf(angle + wave->phase);
    }
    return (struct glyph_point){
        warp->middle_x + warp->xx * moved[0] + warp->xy * moved[1],
        warp->middle_y + warp->yx * moved[0] + warp->yy * moved[1],
    };
}

/* Computes the range of pixels, in one direction, that a line with this half width can touch. */
static void digits_range(float a, float b, float reach, int *first_p, int *last_p)
{
    const float low = (a < b ? a : b) - reach, high = (a < b ? b : a) + reach;

    *first_p = low < 0.0F ? 0 : (int)low;
    *last_p = high > DIGITS_SIDE - 1 ? DIGITS_SIDE - 1 : (int)high;
}

/* Darkens the pixels near the line from a to b. */
static void digits_line(struct glyph_point a, struct glyph_point b, float half, uint8_t *image)
{
    const float dx = b.x - a.x, dy = b.y - a.y;
    const float inverse = 1.0F / (dx * dx + dy * dy + 1e-6F);
    int x0, x1, y0, y1;

    digits_range(a.x, b.x, half + 0.5F, &x0, &x1);
    digits_range(a.y, b.y, half + 0.5F, &y0, &y1);
    for (int y = y0; y <= y1; y++) {
        for (int x = x0; x <= x1; x++) {
            const float px = (float)x - a.x, py = (float)y - a.y;
            float t = (px * dx + py * dy) * inverse, off_x, off_y, ink;

            t = t < 0.0F ? 0.0F : t > 1.0F ? 1.0F : t;
            off_x = px - t * dx;
            off_y = py - t * dy;
            ink = half + 0.5F - sqrtf(off_x * off_x + off_y * off_y);
            ink = ink < 0.0F ? 0.0F : ink > 1.0F ? 255.0F : ink * 255.0F;
            if ((uint8_t)ink > image[y * DIGITS_SIDE + x])
                image[y * DIGITS_SIDE + x] = (uint8_t)ink;
        }
    }
}

/* Returns a point of the Catmull-Rom spline between p1 and p2, for t from 0 to 1. */
static float digits_spline(float p0, float p1, float p2, float p3, float t)
{
    return p1 +
           0.5F * t *
               (p2 - p0 +
                t * (2.0F * p0 - 5.0F * p1 + 4.0F * p2 - p3 + t * (3.0F * (p1 - p2) + p3 - p0)));
}

static void digits_stroke(const struct glyph_stroke *stroke, const struct digits_warp *warp,
                          float half, uint8_t *image)
{
    struct glyph_point from = digits_warp_point(warp, stroke->points[0]);

    for (int i = 0; i + 1 < stroke->count; i++) {
        for (int piece = 1; piece <= DIGITS_PIECES; piece++) {
            const float t = (float)piece / DIGITS_PIECES;
            const struct glyph_point *p = stroke->points;
            struct glyph_point to = {p[i].x + t * (p[i + 1].x - p[i].x),
                                     p[i].y + t * (p[i + 1].y - p[i].y)};

            if (stroke->curve) {
                const int before = i > 0 ? i - 1 : 0;
                const int after = i + 2 < stroke->count ? i + 2 : stroke->count - 1;

                to.x = digits_spline(p[before].x, p[i].x, p[i + 1].x, p[after].x, t);
                to.y = digits_spline(p[before].y, p[i].y, p[i + 1].y, p[after].y, t);
            }
            to = digits_warp_point(warp, to);
            digits_line(from, to, half, image);
            from = to;
        }
    }
}

/*
 * Draws sample `index` of the training or test set: 28 x 28 bytes, 255 for ink, smooth edges.
 * Returns the digit. A pure function of its arguments, so every rank draws the same sample; takes
 * about 10 microseconds.
 */
static uint8_t digits_draw(uint64_t seed, bool train, size_t index, uint8_t *image)
{
    const enum rng_purpose purpose = train ? RNG_DRAW_TRAIN : RNG_DRAW_TEST;
    const uint64_t grain = rng_key(seed, purpose, index, 1); /* noise on every pixel */
    struct rng rng = {rng_key(seed, purpose, index, 0), 0};
    struct glyph glyph = glyphs[rng_below(&rng, GLYPH_COUNT)];
    const float half = rng_between(&rng, 0.45F, 1.5F);
    struct digits_warp warp;

    digits_warp_init(&rng, &warp);
    memset(image, 0, DIGITS_SIDE * DIGITS_SIDE);
    for (int i = 0; i < glyph.count; i++) {
        struct glyph_stroke *stroke = &glyph.strokes[i];

        for (int j = 0; j < stroke->count; j++) {
            stroke->points[j].x += rng_between(&rng, -0.08F, 0.08F);
            stroke->points[j].y += rng_between(&rng, -0.08F, 0.08F);
        }
        digits_stroke(stroke, &warp, half, image);
    }
    for (uint32_t i = 0; i < DIGITS_SIDE * DIGITS_SIDE; i++) {
        const int value = image[i] + (int)(rng_u32(grain, i) % 61) - 30;

        image[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
    return (uint8_t)glyph.digit;
}

static float augment_pixel(const uint8_t *image, int x, int y)
{
    if (x < 0 || y < 0 || x >= DIGITS_SIDE || y >= DIGITS_SIDE)
        return 0.0F;
    return image[y * DIGITS_SIDE + x];
}

/*
 * Rotates image (28 x 28) by up to 10 degrees, scales it by up to 8 % and shifts it by up to 2
 * pixels. key is the random seed. Uses bilinear interpolation; pixels outside are 0.
 */
static void augment_turn(uint64_t key, uint8_t *image)
{
    const float middle = (DIGITS_SIDE - 1) / 2.0F;
    struct rng rng = {key, 0};
    const float turn = rng_between(&rng, -0.175F, 0.175F);
    const float scale = rng_between(&rng, 0.92F, 1.08F);
    const float shift_x = rng_between(&rng, -2.0F, 2.0F), shift_y = rng_between(&rng, -2.0F, 2.0F);
    const float sine = sinf(turn) * scale, cosine = cosf(turn) * scale;
    uint8_t from[DIGITS_SIDE * DIGITS_SIDE];

    memcpy(from, image, sizeof(from));
    for (int y = 0; y < DIGITS_SIDE; y++) {
        for (int x = 0; x < DIGITS_SIDE; x++) {
            const float dx = (float)x - middle - shift_x, dy = (float)y - middle - shift_y;
            const float at_x = middle + cosine * dx - sine * dy;
            const float at_y = middle + sine * dx + cosine * dy;
            const int left = (int)floorf(at_x), top = (int)floorf(at_y);
            const float right = at_x - (float)left, down = at_y - (float)top;
            const float ink = (1.0F - down) * ((1.0F - right) * augment_pixel(from, left, top) +
                                               right * augment_pixel(from, left + 1, top)) +
                              down * ((1.0F - right) * augment_pixel(from, left, top + 1) +
                                      right * augment_pixel(from, left + 1, top + 1));

            image[y * DIGITS_SIDE + x] = (uint8_t)(ink + 0.5F);
        }
    }
}

/*
 * A set consists of two files: {train,t10k}-images and {train,t10k}-labels, each with the suffix
 * -idx{3,1}-ubyte or .idx{3,1}-ubyte, plain or with .gz.
 */

/* Writes the path of the first spelling that exists to path (size bytes). */
static int mnist_find(const char *folder, const char *what, int dimensions, char *path, size_t size)
{
    static const char *const endings[] = {"", ".gz"};
    static const char joints[] = {'-', '.'};

    for (int i = 0; i < 4; i++) {
        const int length = snprintf(path, size, "%s/%s%cidx%d-ubyte%s", folder, what, joints[i / 2],
                                    dimensions, endings[i % 2]);

        if (length < 0 || (size_t)length >= size)
            return failure("--data %s: the path is too long", folder);
        if (access(path, F_OK) == 0)
            return 0;
    }
    return failure("--data %s: no file %s-idx%d-ubyte or %s-idx%d-ubyte.gz in this directory",
                   folder, what, dimensions, what, dimensions);
}

static int mnist_read(const char *folder, bool train, struct dataset *dataset)
{
    struct idx images = {.bytes = NULL}, labels = {.bytes = NULL};
    char path[4096];

    if (mnist_find(folder, train ? "train-images" : "t10k-images", 3, path, sizeof(path)) < 0 ||
        idx_read(path, 3, &images) < 0)
        return -1;
    dataset->images = images.bytes;
    dataset->count = images.sizes[0];
    if (images.sizes[1] != DIGITS_SIDE || images.sizes[2] != DIGITS_SIDE)
        return failure("%s: byte 8: images of %u x %u, expected %d x %d", path, images.sizes[1],
                       images.sizes[2], DIGITS_SIDE, DIGITS_SIDE);
    if (mnist_find(folder, train ? "train-labels" : "t10k-labels", 1, path, sizeof(path)) < 0 ||
        idx_read(path, 1, &labels) < 0)
        return -1;
    dataset->labels = labels.bytes;
    if (labels.sizes[0] != dataset->count)
        return failure("%s: byte 4: %u labels, expected %zu, one for each image", path,
                       labels.sizes[0], dataset->count);
    for (size_t i = 0; i < dataset->count; i++) {
        if (labels.bytes[i] >= DATASET_CLASSES)
            return failure("%s: byte %zu: label %u, expected 0 to %d", path, 8 + i, labels.bytes[i],
                           DATASET_CLASSES - 1);
    }
    return 0;
}

const struct dataset_kind dataset_mnist = {
    .shape = {DIGITS_SIDE, DIGITS_SIDE, 1},
    .mean = {0.1307F},
    .deviation = {0.3081F},
    .read = mnist_read,
    .draw = digits_draw,
    .augment = augment_turn,
};

/* ---- CIFAR-10: synthetic pictures ---- */

/*
 * Each pixel is sampled at four points, which smooths the edges of the shape. The background is a
 * gradient between two random colours, so neither colour nor brightness identifies the class: only
 * the outline does.
 */

enum { PICTURES_SHAPES = 10, PICTURES_LEAST_CONTRAST = 110 };

/* True if the shape, of radius 1, covers the point. */
static bool pictures_covers(int shape, float x, float y)
{
    const float right = fabsf(x), up = fabsf(y), far = sqrtf(x * x + y * y);
    const float most = fmaxf(right, up), least = fminf(right, up);
    const float ray = shape == 6 ? fabsf(cosf(2.5F * atan2f(y, x))) : 0.0F;

    switch (shape) {
    case 0: /* disc */
        return far < 0.9F;
    case 1: /* ring */
        return far > 0.55F && far < 0.95F;
    case 2: /* square */
        return most < 0.8F;
    case 3: /* frame */
        return most > 0.5F && most < 0.85F;
    case 4: /* triangle */
        return y < 0.65F && right < (y + 0.95F) * 0.58F;
    case 5: /* cross */
        return most < 0.95F && least < 0.28F;
    case 6: /* star with five rays: the radius of the edge varies with the angle */
        return far < 0.35F + 0.65F * ray * ray;
    case 7: /* crescent */
        return far < 0.95F && (x - 0.4F) * (x - 0.4F) + y * y > 0.55F;
    case 8: /* half of a disc */
        return far < 0.95F && y > -0.1F;
    default: /* two bars */
        return up < 0.9F && right > 0.25F && right < 0.7F;
    }
}

/* The random choices of a picture. */
struct pictures_scene {
    float sine, cosine, middle_x, middle_y; /* map pixels to the shape's coordinates */
    float fill[3], ground[2][3];   /* colours of the shape, and of both ends of the background */
    float along_x, along_y, phase; /* direction and phase of the background's colour gradient */
};

static void pictures_colour(struct rng *rng, float colour[3])
{
    for (int c = 0; c < 3; c++)
        colour[c] = rng_between(rng, 20.0F, 235.0F);
}

/* Redraws each background colour until it contrasts with the shape. */
static void pictures_scene_init(struct rng *rng, struct pictures_scene *scene)
{
    const float turn = rng_between(rng, -0.6F, 0.6F), size = rng_between(rng, 6.5F, 13.0F);

    scene->sine = sinf(turn) / size;
    scene->cosine = cosf(turn) / size;
    scene->middle_x = (PICTURES_SIDE - 1) / 2.0F + rng_between(rng, -5.0F, 5.0F);
    scene->middle_y = (PICTURES_SIDE - 1) / 2.0F + rng_between(rng, -5.0F, 5.0F);
    pictures_colour(rng, scene->fill);
    for (int i = 0; i < 2; i++) {
        float contrast;

        do {
            contrast = 0.0F;
            pictures_colour(rng, scene->ground[i]);
            for (int c = 0; c < 3; c++)
                contrast += fabsf(scene->fill[c] - scene->ground[i][c]);
        } while (contrast < PICTURES_LEAST_CONTRAST);
    }
    scene->along_x = rng_between(rng, -0.25F, 0.25F);
    scene->along_y = rng_between(rng, -0.25F, 0.25F);
    scene->phase = rng_between(rng, 0.0F, 6.2832F);
}

/*
 * Draws sample `index` of the training or test set: 32 x 32 pixels of red, green and blue, with one
 * of ten shapes of random colour, size, place and angle on a noisy background. Returns the shape's
 * number. A pure function of its arguments, so every rank draws the same sample; takes about 50
 * microseconds.
 */
static uint8_t pictures_draw(uint64_t seed, bool train, size_t index, uint8_t *image)
{
    const uint64_t key = rng_key(seed, train ? RNG_DRAW_TRAIN : RNG_DRAW_TEST, index, 1);
    struct rng rng = {key, 0};
    const int shape = (int)rng_below(&rng, PICTURES_SHAPES);
    struct pictures_scene scene;

    pictures_scene_init(&rng, &scene);
    for (int i = 0; i < PICTURES_SIDE * PICTURES_SIDE; i++) {
        const int x = i % PICTURES_SIDE, y = i / PICTURES_SIDE;
        const float wave =
            0.5F + 0.5F * sinf(scene.along_x * (float)x + scene.along_y * (float)y + scene.phase);
        float part = 0.0F; /* the fraction of the pixel that the shape covers */

        for (int j = 0; j < 4; j++) {
            const float dx = (float)x + (j % 2 ? 0.25F : -0.25F) - scene.middle_x;
            const float dy = (float)y + (j / 2 ? 0.25F : -0.25F) - scene.middle_y;

            if (pictures_covers(shape, scene.cosine * dx + scene.sine * dy,
                                scene.cosine * dy - scene.sine * dx))
                part += 0.25F;
        }
        for (int c = 0; c < 3; c++) {
            const float ground = scene.ground[0][c] * wave + scene.ground[1][c] * (1.0F - wave);
            const float value =
                scene.fill[c] * part + ground * (1.0F - part) + rng_between(&rng, -20.0F, 20.0F);

            *image++ = (uint8_t)(value < 0.0F ? 0.0F : value > 255.0F ? 255.0F : value);
        }
    }
    return (uint8_t)shape;
}

enum { AUGMENT_EDGE = 4 };

/*
 * Pads image (32 x 32, three channels) with 4 black pixels on each side, crops it at random to its
 * former size, and mirrors it with probability 1/2. key is the random seed. This is the usual
 * augmentation for CIFAR-10.
 */
static void augment_crop(uint64_t key, uint8_t *image)
{
    struct rng rng = {key, 0};
    const int down = (int)rng_below(&rng, 2 * AUGMENT_EDGE + 1) - AUGMENT_EDGE;
    const int right = (int)rng_below(&rng, 2 * AUGMENT_EDGE + 1) - AUGMENT_EDGE;
    const bool mirror = rng_below(&rng, 2) == 1;
    uint8_t from[PICTURES_SIDE * PICTURES_SIDE * 3];

    memcpy(from, image, sizeof(from));
    memset(image, 0, sizeof(from));
    for (int y = 0; y < PICTURES_SIDE; y++) {
        for (int x = 0; x < PICTURES_SIDE; x++) {
            const int at_x = (mirror ? PICTURES_SIDE - 1 - x : x) + right, at_y = y + down;

            if (at_x >= 0 && at_x < PICTURES_SIDE && at_y >= 0 && at_y < PICTURES_SIDE)
                memcpy(image + 3 * (y * PICTURES_SIDE + x),
                       from + 3 * (at_y * PICTURES_SIDE + at_x), 3);
        }
    }
}

/*
 * The training set consists of data_batch_1.bin to data_batch_5.bin, the test set of
 * test_batch.bin. They are in the directory itself or in its subdirectory cifar-10-batches-bin, as
 * in the archive. A file contains any number of records (usually 10000):
 *
 *   byte 0          the label, 0 to 9
 *   byte 1...       red of each pixel, row by row; then green, then blue
 */
enum {
    CIFAR10_PIXELS = PICTURES_SIDE * PICTURES_SIDE,
    CIFAR10_RECORD = 1 + 3 * CIFAR10_PIXELS,
    CIFAR10_GROWTH = 10000
};

/* Writes the directory that contains the files to path. */
static int cifar10_find(const char *folder, char *path, size_t size)
{
    static const char *const places[] = {"", "/cifar-10-batches-bin"};

    for (int i = 0; i < 2; i++) {
        const int length = snprintf(path, size, "%s%s/test_batch.bin", folder, places[i]);

        if (length < 0 || (size_t)length >= size)
            return failure("--data %s: the path is too long", folder);
        if (access(path, F_OK) == 0)
            return snprintf(path, size, "%s%s", folder, places[i]) < 0 ? -1 : 0;
    }
    return failure(
        "--data %s: no test_batch.bin in this directory: name the directory with the binary "
        "version of CIFAR-10, not the one for Python",
        folder);
}

/* Reads the next record. Returns 1 at the end of the file. */
static int cifar10_read_record(struct source *source, struct dataset *dataset)
{
    const char *path = source->path;
    const uint64_t offset = source->offset;
    uint8_t record[CIFAR10_RECORD], *image;
    size_t got;

    if (source_read(source, record, sizeof(record), &got) < 0)
        return -1;
    if (got == 0 && offset > 0)
        return 1;
    if (got < sizeof(record))
        return failure("%s: byte %llu: the file ends here, expected %zu bytes more: pictures are "
                       "%d bytes each",
                       path, (unsigned long long)offset + got, sizeof(record) - got,
                       CIFAR10_RECORD);
    if (record[0] >= DATASET_CLASSES)
        return failure("%s: byte %llu: label %u, expected 0 to %d", path,
                       (unsigned long long)offset, record[0], DATASET_CLASSES - 1);
    /* Grow the arrays by many images at a time. */
    if (dataset->count % CIFAR10_GROWTH == 0) {
        const size_t most = dataset->count + CIFAR10_GROWTH;
        uint8_t *images = realloc(dataset->images, most * (CIFAR10_RECORD - 1));
        uint8_t *labels = realloc(dataset->labels, most);

        dataset->images = images ? images : dataset->images;
        dataset->labels = labels ? labels : dataset->labels;
        if (!images || !labels)
            return failure("%s: out of memory for %zu pictures", path, most);
    }
    dataset->labels[dataset->count] = record[0];
    image = dataset->images + dataset->count++ * (CIFAR10_RECORD - 1);
    /* Convert planes of colours to pixels of three colours. */
    for (int i = 0; i < CIFAR10_PIXELS; i++) {
        for (int colour = 0; colour < 3; colour++)
            *image++ = record[1 + colour * CIFAR10_PIXELS + i];
    }
    return 0;
}

static int cifar10_read(const char *folder, bool train, struct dataset *dataset)
{
    char place[4096], path[sizeof(place) + 32];

    if (cifar10_find(folder, place, sizeof(place)) < 0)
        return -1;
    for (int i = 1; i <= (train ? 5 : 1); i++) {
        struct source source;
        int result;

        if (train)
            snprintf(path, sizeof(path), "%s/data_batch_%d.bin", place, i);
        else
            snprintf(path, sizeof(path), "%s/test_batch.bin", place);
        result = source_open(path, &source);
        while (result == 0)
            result = cifar10_read_record(&source, dataset);
        source_close(&source);
        if (result < 0)
            return -1;
    }
    return 0;
}

const struct dataset_kind dataset_cifar10 = {
    .shape = {PICTURES_SIDE, PICTURES_SIDE, 3},
    .mean = {0.4914F, 0.4822F, 0.4465F},
    .deviation = {0.2470F, 0.2435F, 0.2616F},
    .read = cifar10_read,
    .draw = pictures_draw,
    .augment = augment_crop,
};

/* ---- the samples of one pass ---- */

int batch_create(const struct dataset_kind *kind, int capacity, struct batch *batch)
{
    const size_t count = (size_t)capacity;

    *batch = (struct batch){.capacity = capacity};
    batch->images = calloc(count, (size_t)shape_size(kind->shape) * sizeof(*batch->images));
    batch->labels = calloc(count, sizeof(*batch->labels));
    batch->positions = calloc(count, sizeof(*batch->positions));
    if (batch->images && batch->labels && batch->positions)
        return 0;
    batch_destroy(batch);
    return failure("out of memory for a batch of %d samples", capacity);
}

void batch_add(struct batch *batch, const struct dataset *dataset, size_t index, uint32_t position,
               uint64_t augment_key)
{
    const struct dataset_kind *kind = dataset->kind;
    const int size = shape_size(kind->shape), channels = kind->shape.channels;
    float *to = batch->images + (size_t)batch->count * (size_t)size;
    uint8_t image[DATASET_PIXELS_MOST];

    batch->labels[batch->count] = dataset_get(dataset, index, image);
    if (augment_key)
        kind->augment(augment_key, image);
    /* Normalise the pixels with the mean and deviation of their channel. */
    for (int i = 0; i < size; i += channels) {
        for (int c = 0; c < channels; c++)
            to[i + c] = ((float)image[i + c] / 255.0F - kind->mean[c]) / kind->deviation[c];
    }
    batch->positions[batch->count++] = position;
}

/* ---- batches loaded in advance by threads ---- */

/* Memory for one batch. */
struct loader_slot {
    struct loader_item *items;
    int count; /* number of items */
    struct batch batch;
    bool loaded;
};

/*
 * Batch n is in slot n % slot_count.
 *
 *   0 ...... returned ....... assigned ....... planned ....... count
 *     returned      loading          waiting         not yet
 *     to caller     or loaded        for a thread    planned
 *
 * The caller uses batch `returned` - 1.
 */
struct loader {
    const struct dataset *dataset;
    int slot_count, workers;
    struct loader_slot *slots;
    pthread_t *threads;
    pthread_mutex_t lock; /* protects all fields below, and `loaded` of the slots */
    pthread_cond_t work, done;
    int64_t returned, assigned, planned, count;
    int busy; /* number of threads that are loading */
    bool ends;
    loader_plan_fn plan;
    void *arg;
};

static void loader_load(const struct loader *loader, struct loader_slot *slot)
{
    slot->batch.count = 0;
    for (int i = 0; i < slot->count; i++) {
        const struct loader_item *item = &slot->items[i];

        batch_add(&slot->batch, loader->dataset, item->index, item->position, item->augment_key);
    }
}

static void *loader_work(void *arg)
{
    struct loader *loader = arg;

    pthread_mutex_lock(&loader->lock);
    for (;;) {
        struct loader_slot *slot;

        while (!loader->ends && loader->assigned == loader->planned)
            pthread_cond_wait(&loader->work, &loader->lock);
        if (loader->ends)
            break;
        slot = &loader->slots[loader->assigned++ % loader->slot_count];
        loader->busy++;
        pthread_mutex_unlock(&loader->lock);
        loader_load(loader, slot);
        pthread_mutex_lock(&loader->lock);
        loader->busy--;
        slot->loaded = true;
        pthread_cond_broadcast(&loader->done);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

const struct batch *loader_next(struct loader *loader)
{
    struct loader_slot *slot = &loader->slots[loader->returned % loader->slot_count];

    if (loader->returned == loader->count)
        return NULL;
    /*
     * Plan batches for all free slots, including that of the batch that the caller has just
     * finished with.
     */
    while (loader->planned < loader->count &&
           loader->planned - loader->returned < loader->slot_count) {
        struct loader_slot *next = &loader->slots[loader->planned % loader->slot_count];

        next->count = loader->plan(loader->arg, loader->planned, next->items);
        pthread_mutex_lock(&loader->lock);
        next->loaded = false;
        loader->planned++;
        pthread_cond_signal(&loader->work);
        pthread_mutex_unlock(&loader->lock);
    }
    if (loader->workers == 0) {
        loader_load(loader, slot);
    } else {
        pthread_mutex_lock(&loader->lock);
        while (!slot->loaded)
            pthread_cond_wait(&loader->done, &loader->lock);
        pthread_mutex_unlock(&loader->lock);
    }
    loader->returned++;
    return &slot->batch;
}

void loader_begin(struct loader *loader, int64_t count, loader_plan_fn plan, void *arg)
{
    pthread_mutex_lock(&loader->lock);
    loader->assigned = loader->planned;
    while (loader->busy > 0)
        pthread_cond_wait(&loader->done, &loader->lock);
    loader->returned = loader->assigned = loader->planned = 0;
    loader->count = count;
    loader->plan = plan;
    loader->arg = arg;
    pthread_mutex_unlock(&loader->lock);
}

/* Slots: one for each loading thread, one for a loaded batch, and one for the caller's batch. */
int loader_create(const struct dataset *dataset, int workers, int capacity,
                  struct loader **loader_p)
{
    struct loader *loader = calloc(1, sizeof(*loader));
    int error = 0;

    if (!loader)
        return failure("out of memory for a loader");
    loader->dataset = dataset;
    loader->slot_count = workers > 0 ? workers + 2 : 1;
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_cond_init(&loader->done, NULL);
    loader->slots = calloc((size_t)loader->slot_count, sizeof(*loader->slots));
    loader->threads = calloc((size_t)workers + 1, sizeof(*loader->threads));
    if (!loader->slots || !loader->threads) {
        failure("out of memory for %d workers", workers);
        goto failed;
    }
    for (int i = 0; i < loader->slot_count; i++) {
        struct loader_slot *slot = &loader->slots[i];

        slot->items = calloc((size_t)capacity, sizeof(*slot->items));
        if (!slot->items)
            failure("out of memory for %d batches that are loaded in advance", loader->slot_count);
        if (!slot->items || batch_create(dataset->kind, capacity, &slot->batch) < 0)
            goto failed;
    }
    for (; loader->workers < workers; loader->workers++) {
        error = pthread_create(&loader->threads[loader->workers], NULL, loader_work, loader);
        if (error) {
            failure("cannot start worker %d of %d: %s", loader->workers + 1, workers,
                    strerror(error));
            goto failed;
        }
    }
    *loader_p = loader;
    return 0;

failed:
    loader_destroy(loader);
    return -1;
}

void loader_destroy(struct loader *loader)
{
    if (!loader)
        return;
    pthread_mutex_lock(&loader->lock);
    loader->ends = true;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
    for (int i = 0; i < loader->workers; i++)
        pthread_join(loader->threads[i], NULL);
    for (int i = 0; loader->slots && i < loader->slot_count; i++) {
        free(loader->slots[i].items);
        batch_destroy(&loader->slots[i].batch);
    }
    free(loader->slots);
    free(loader->threads);
    pthread_cond_destroy(&loader->done);
    pthread_cond_destroy(&loader->work);
    pthread_mutex_destroy(&loader->lock);
    free(loader);
}

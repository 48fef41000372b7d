/* SPDX-License-Identifier: BSD-3-Clause */
/* CIFAR-10: its files in the binary version, or pictures that are drawn. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataset.h"
#include "failure.h"
#include "idx.h"
#include "rng.h"

/* ---- pictures that the program draws itself ---- */

/*
 * Every pixel is asked at four points whether the shape covers it, which smooths the edges. The
 * ground runs from one colour to another, and a second shape's colour is near it or far from it,
 * so that neither colour nor brightness tells the class: only the outline does.
 */

enum { PICTURES_SHAPES = 10, PICTURES_LEAST_CONTRAST = 110 };

/* Whether the shape, whose size is 1 in each direction, covers a point. */
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
    case 6: /* star of five rays: the edge's distance goes up and down with the direction */
        return far < 0.35F + 0.65F * ray * ray;
    case 7: /* crescent */
        return far < 0.95F && (x - 0.4F) * (x - 0.4F) + y * y > 0.55F;
    case 8: /* half of a disc */
        return far < 0.95F && y > -0.1F;
    default: /* two bars */
        return up < 0.9F && right > 0.25F && right < 0.7F;
    }
}

struct pictures_colour {
    float parts[3];
};

/* What is drawn before the pixels are. */
struct pictures_scene {
    int shape;
    float sine, cosine, middle_x, middle_y; /* pixels to the shape's square */
    struct pictures_colour fill, ground[2]; /* ground: at both ends */
    float along_x, along_y, phase;          /* of the wave from one end to the other */
};

static struct pictures_colour pictures_colour(struct rng *rng)
{
    struct pictures_colour colour;

    for (int c = 0; c < 3; c++)
        colour.parts[c] = rng_between(rng, 20.0F, 235.0F);
    return colour;
}

/* The ground's two colours are drawn until the shape can be seen on both. */
static void pictures_scene_init(int shape, struct rng *rng, struct pictures_scene *scene)
{
    const float turn = rng_between(rng, -0.6F, 0.6F), size = rng_between(rng, 6.5F, 13.0F);

    scene->shape = shape;
    scene->sine = sinf(turn) / size;
    scene->cosine = cosf(turn) / size;
    scene->middle_x = (PICTURES_SIDE - 1) / 2.0F + rng_between(rng, -5.0F, 5.0F);
    scene->middle_y = (PICTURES_SIDE - 1) / 2.0F + rng_between(rng, -5.0F, 5.0F);
    scene->fill = pictures_colour(rng);
    for (int i = 0; i < 2; i++) {
        float contrast;

        do {
            contrast = 0.0F;
            scene->ground[i] = pictures_colour(rng);
            for (int c = 0; c < 3; c++)
                contrast += fabsf(scene->fill.parts[c] - scene->ground[i].parts[c]);
        } while (contrast < PICTURES_LEAST_CONTRAST);
    }
    scene->along_x = rng_between(rng, -0.25F, 0.25F);
    scene->along_y = rng_between(rng, -0.25F, 0.25F);
    scene->phase = rng_between(rng, 0.0F, 6.2832F);
}

/* How much of a pixel the shape covers, 0 to 1. */
static float pictures_part(const struct pictures_scene *scene, int x, int y)
{
    int covered = 0;

    for (int i = 0; i < 4; i++) {
        const float dx = (float)x + (i % 2 ? 0.25F : -0.25F) - scene->middle_x;
        const float dy = (float)y + (i / 2 ? 0.25F : -0.25F) - scene->middle_y;

        covered += pictures_covers(scene->shape, scene->cosine * dx + scene->sine * dy,
                                   scene->cosine * dy - scene->sine * dx);
    }
    return (float)covered / 4.0F;
}

/*
 * Draws sample index of the training or the test set: 32 x 32 pixels of red, green and blue: one
 * of ten shapes, in any colour, size, place and direction, on a coloured ground with grain.
 * Returns which shape it is. A pure function of its arguments, so every rank draws the same
 * sample; some 50 microseconds.
 */
static uint8_t pictures_draw(uint64_t seed, bool train, size_t index, uint8_t *image)
{
    const uint64_t key = rng_key(seed, train ? RNG_DRAW_TRAIN : RNG_DRAW_TEST, index, 1);
    struct rng rng = {key, 0};
    const int shape = (int)rng_below(&rng, PICTURES_SHAPES);
    struct pictures_scene scene;

    pictures_scene_init(shape, &rng, &scene);
    for (int i = 0; i < PICTURES_SIDE * PICTURES_SIDE; i++) {
        const int x = i % PICTURES_SIDE, y = i / PICTURES_SIDE;
        const float part = pictures_part(&scene, x, y);
        const float wave =
            0.5F + 0.5F * sinf(scene.along_x * (float)x + scene.along_y * (float)y + scene.phase);

        for (int c = 0; c < 3; c++) {
            const float ground =
                scene.ground[0].parts[c] * wave + scene.ground[1].parts[c] * (1.0F - wave);
            const float value = scene.fill.parts[c] * part + ground * (1.0F - part) +
                                rng_between(&rng, -20.0F, 20.0F);

            *image++ = (uint8_t)(value < 0.0F ? 0.0F : value > 255.0F ? 255.0F : value);
        }
    }
    return (uint8_t)shape;
}

/* ---- augmentation ---- */

enum { AUGMENT_EDGE = 4 };

/*
 * Replaces image (32 x 32, three channels) by a part of it of the same size, once 4 black pixels
 * have been added on each side, and mirrors every second one; drawn from key. What is usual for
 * CIFAR-10.
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

/* ---- the files ---- */

/*
 * The training set is data_batch_1.bin to data_batch_5.bin, the test set is test_batch.bin, in the
 * folder or in cifar-10-batches-bin in it, as the archive unpacks. A file is records of
 *
 *   byte 0          the label, 0 to 9
 *   byte 1...       red of each pixel, row after row; then green, then blue
 *
 * as many as there are: usually 10000.
 */
enum {
    CIFAR10_PIXELS = PICTURES_SIDE * PICTURES_SIDE,
    CIFAR10_RECORD = 1 + 3 * CIFAR10_PIXELS,
    CIFAR10_GROWTH = 10000
};

/* The folder that has the files. */
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
    return failure("--data %s: there is no test_batch.bin in it: give the folder with the binary "
                   "version of CIFAR-10 (not that for Python)",
                   folder);
}

/* The record at `offset`. 1: the file has ended. */
static int cifar10_take(struct source *source, const char *path, uint64_t offset,
                        struct dataset *dataset)
{
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
    /* Room for one more image, made for many at a time. */
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
    /* One colour after the other becomes three colours for each pixel. */
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
        struct source *source = NULL;
        uint64_t offset = 0;
        int result = 0;

        if (train)
            snprintf(path, sizeof(path), "%s/data_batch_%d.bin", place, i);
        else
            snprintf(path, sizeof(path), "%s/test_batch.bin", place);
        if (source_open(path, &source) < 0)
            return -1;
        for (; result == 0; offset += CIFAR10_RECORD)
            result = cifar10_take(source, path, offset, dataset);
        source_close(source);
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

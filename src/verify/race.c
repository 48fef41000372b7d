/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The search for races: two accesses of one rank to one chunk, at least one a write, which nothing
 * puts in order. What orders steps is the least that a transport keeps:
 *
 *   lane order, waits:   end of a step    -> begin of the next, of the one that waits
 *   a message:           begin of SEND    -> the writing by RECV (not its begin) -> end of RECV
 *
 * The reading by a SEND is over when the SEND has ended, or the RECV that it meets.
 *
 * Chunk by chunk, the steps that touch the chunk are taken in the order of the run, with
 * the set of those that are over before each. That finds nearly all orders, since data carry
 * them; what is left is searched for through all steps (race_search).
 */
#include "verify/internal.h"

#include <stdlib.h>
#include <string.h>

/* Steps that touch the chunk in hand, numbered in the order of the run: events. */
struct race {
    struct verify *v;
    uint32_t chunk;
    uint32_t *first;    /* by chunk: its events are steps[first[c] .. first[c + 1]) */
    uint32_t *steps;    /* by chunk and event */
    uint32_t most;      /* events of a chunk */
    uint64_t *before;   /* a row of bits an event: those over before it touches memory */
    size_t words;       /* of a row */
    uint32_t *previous; /* by event: the one before in its lane */
    uint32_t *latest;   /* by lane: its latest event */
    uint32_t *readers;  /* by event, or step: the next that has read since the last write */
    uint32_t *seen;     /* by step, for race_search: the search that was there last */
    uint32_t *stack;
    uint32_t searches;
};

/* What one rank has done to the chunk's memory. */
struct race_memory {
    uint32_t write, reads; /* the last write; the list of reads since */
};

/*
 * May data of chunk pass when `step`'s message does? Where a call has fewer elements than chunks,
 * the last chunks of each block are empty and their messages are not sent.
 */
static bool race_passes(const struct race *race, uint32_t step, uint32_t chunk)
{
    uint32_t chunks = race->v->shape.chunks;
    const struct verify_step *s = verify_step(race->v, step);
    return s->first % chunks <= chunk % chunks || s->first % chunks + s->items > chunks;
}

static void race_push(struct race *race, uint32_t *depth_p, uint32_t step)
{
    if (race->seen[step] != race->searches)
        race->stack[(*depth_p)++] = step;
    race->seen[step] = race->searches;
}

/* Is it the step itself, or a later one of its lane? */
static bool race_behind(const struct verify *v, uint32_t step, uint32_t early)
{
    return verify_step(v, step)->lane == verify_step(v, early)->lane && step >= early;
}

/*
 * Is `early` over before `late` touches memory? Goes back from late over all that comes before. The
 * run's order respects every such order, so what ran before early needs no looking at. `chunk`:
 * messages of chunks that may be empty when this one is not do not count.
 */
static bool race_search(struct race *race, uint32_t early, uint32_t late, uint32_t chunk)
{
    const struct verify *v = race->v;
    bool sends = verify_step(v, early)->kind == DISTI_SEND;
    uint32_t taken = sends ? verify_step(v, early)->match : early, depth = 0;
    race->searches++;
    if (verify_receives(verify_step(v, late)))
        race_push(race, &depth, verify_step(v, late)->match);
    race_push(race, &depth, late); /* its own rank is where the answer mostly is */
    while (depth > 0) {
        uint32_t step = race->stack[--depth];
        for (uint32_t i = 0; i <= verify_step(v, step)->waits; i++) {
            uint32_t end = verify_wait(v, step, i);
            if (end == VERIFY_NONE || v->when[end] < v->when[early])
                continue;
            if (race_behind(v, end, early) || race_behind(v, end, taken))
                return true;
            if (verify_receives(verify_step(v, end)) && race_passes(race, end, chunk))
                race_push(race, &depth, verify_step(v, end)->match);
            race_push(race, &depth, end);
        }
    }
    return false;
}

static bool race_fault(struct race *race, uint32_t early, uint32_t late, const char *what)
{
    char text[128];
    disti_verify_describe(race->v, early, text, sizeof(text));
    return disti_verify_fault(race->v, late, "race: %s, unordered with %s", what, text);
}

static bool race_bit(const struct race *race, uint32_t early, uint32_t late)
{
    return race->before[late * race->words + early / 64] >> early % 64 & 1;
}

/* Adds to the row of `late` what was over before `early`, and early itself if it is over. */
static void race_join(struct race *race, uint32_t late, uint32_t early, bool over)
{
    uint64_t *to = race->before + late * race->words;
    const uint64_t *from = race->before + early * race->words;
    for (size_t w = 0; w <= early / 64; w++)
        to[w] |= from[w];
    if (over)
        to[early / 64] |= UINT64_C(1) << early % 64;
}

/* What is over before this event touches memory. A RECV's SEND is the event just before it. */
static void race_order(struct race *race, const uint32_t *steps, uint32_t event)
{
    const struct verify *v = race->v;
    uint32_t step = steps[event];
    uint32_t *latest = &race->latest[verify_step(v, step)->lane];
    memset(race->before + event * race->words, 0, race->words * sizeof(uint64_t));
    race->previous[event] = *latest;
    if (*latest != VERIFY_NONE)
        race_join(race, event, *latest, true);
    for (uint32_t i = 1; i <= verify_step(v, step)->waits; i++) {
        /* The latest event in the waited step's lane that is not behind that step. */
        uint32_t waited = verify_wait(v, step, i);
        uint32_t other = race->latest[verify_step(v, waited)->lane];
        while (other != VERIFY_NONE && steps[other] > waited)
            other = race->previous[other];
        if (other != VERIFY_NONE)
            race_join(race, event, other, true);
    }
    if (verify_receives(verify_step(v, step)))
        race_join(race, event, event - 1, false);
    *latest = event;
}

/* Is it the chunk in OUT, be it under IN's name? (IN is not written otherwise.) */
static bool race_touches(const struct race *race, struct disti_chunk_ref ref)
{
    return ref.space == DISTI_OUT || (ref.space == DISTI_IN && race->v->aliased);
}

/* Must be ordered; `early` an event before `late`. */
static bool race_pair(struct race *race, const uint32_t *steps, uint32_t early, uint32_t late,
                      const char *what)
{
    if (early == VERIFY_NONE || race_bit(race, early, late))
        return true;
    if (verify_step(race->v, steps[early])->kind == DISTI_SEND && race_bit(race, early + 1, late))
        return true;
    return race_search(race, steps[early], steps[late], race->chunk) ||
           race_fault(race, steps[early], steps[late], what);
}

/* One event against what the rank has done to the chunk before. */
static bool race_event(struct race *race, const uint32_t *steps, uint32_t event,
                       struct race_memory *memory)
{
    const struct verify_step *s = verify_step(race->v, steps[event]);
    bool reads = s->kind != DISTI_RECV && race_touches(race, s->src);
    bool writes = s->kind != DISTI_SEND && race_touches(race, s->dst);
    if (s->kind == DISTI_COPY && reads && writes)
        return true; /* the same memory: it does nothing */
    if (s->kind == DISTI_REDUCE && writes)
        reads = true;
    if ((reads || writes) &&
        !race_pair(race, steps, memory->write, event,
                   writes ? "it writes what was written" : "it reads what was written"))
        return false;
    if (writes) {
        for (uint32_t r = memory->reads; r != VERIFY_NONE; r = race->readers[r])
            if (!race_pair(race, steps, r, event, "it writes what may still be read"))
                return false;
        *memory = (struct race_memory){.write = event, .reads = VERIFY_NONE};
    } else if (reads) {
        race->readers[event] = memory->reads;
        memory->reads = event;
    }
    return true;
}

static bool race_chunk(struct race *race, uint32_t chunk)
{
    const struct verify *v = race->v;
    const uint32_t *steps = race->steps + race->first[chunk];
    uint32_t events = race->first[chunk + 1] - race->first[chunk];
    struct race_memory memory[VERIFY_RANKS_FEW];
    for (uint32_t rank = 0; rank < v->ranks; rank++)
        memory[rank] = (struct race_memory){VERIFY_NONE, VERIFY_NONE};
    race->chunk = chunk;
    race->words = events / 64 + 1;
    for (uint32_t event = 0; event < events; event++) {
        race_order(race, steps, event);
        if (!race_event(race, steps, event, &memory[verify_step(v, steps[event])->rank]))
            return false;
    }
    for (uint32_t event = 0; event < events; event++)
        race->latest[verify_step(v, steps[event])->lane] = VERIFY_NONE;
    return true;
}

/* Does the step read, or write, the slot? */
static bool race_uses_slot(const struct verify_step *step, uint32_t slot, bool write)
{
    bool uses = write ? step->kind != DISTI_SEND : step->kind != DISTI_RECV;
    struct disti_chunk_ref ref = write ? step->dst : step->src;
    if (!write && step->kind == DISTI_REDUCE && race_uses_slot(step, slot, true))
        return true;
    return uses && ref.space == DISTI_SCRATCH && slot >= ref.chunk &&
           slot - ref.chunk < step->items;
}

/* The two steps must be ordered, whatever of their chunks is empty. */
static bool race_slot_pair(struct race *race, uint32_t early, uint32_t late, const char *what)
{
    uint32_t chunks = race->v->shape.chunks;
    uint32_t a = verify_step(race->v, early)->first % chunks,
             b = verify_step(race->v, late)->first % chunks;
    return race_search(race, early, late, a > b ? a : b) || race_fault(race, early, late, what);
}

/* Slots hold now this chunk, now that, so they are gone through apart; steps in the run's order. */
static bool race_slot(struct race *race, const uint32_t *steps, uint32_t count, uint32_t slot)
{
    struct race_memory memory = {VERIFY_NONE, VERIFY_NONE};
    for (uint32_t i = 0; i < count; i++) {
        const struct verify_step *s = verify_step(race->v, steps[i]);
        bool reads = race_uses_slot(s, slot, false), writes = race_uses_slot(s, slot, true);
        if ((reads || writes) && memory.write != VERIFY_NONE &&
            !race_slot_pair(race, memory.write, steps[i], "it uses scratch that was written"))
            return false;
        for (uint32_t r = memory.reads; r != VERIFY_NONE && writes; r = race->readers[r])
            if (!race_slot_pair(race, r, steps[i], "it writes scratch that may still be read"))
                return false;
        if (writes) {
            memory = (struct race_memory){.write = steps[i], .reads = VERIFY_NONE};
        } else if (reads) {
            race->readers[steps[i]] = memory.reads;
            memory.reads = steps[i];
        }
    }
    return true;
}

static bool race_scratch(struct race *race, uint32_t rank)
{
    const struct verify *v = race->v;
    uint32_t count = 0, *own = race->steps; /* the events are dealt with */
    size_t slots = v->rank[rank + 1].first_slot - v->rank[rank].first_slot;
    if (slots == 0)
        return true;
    for (uint32_t i = 0; i < v->steps.count; i++)
        if (verify_step(v, v->order[i])->rank == rank)
            own[count++] = v->order[i];
    for (uint32_t slot = 0; slot < slots; slot++)
        if (!race_slot(race, own, count, slot))
            return false;
    return true;
}

static bool race_allocate(struct race *race)
{
    const struct verify *v = race->v;
    race->first = calloc((size_t)v->data_chunks + 1, sizeof(uint32_t));
    if (!race->first)
        return false;
    size_t events = 0, steps = (size_t)v->steps.count + 1;
    for (uint32_t step = 0; step < v->steps.count; step++)
        for (uint32_t c = 0; c < verify_step(v, step)->items; c++)
            race->first[verify_data(v, step, c)]++;
    for (uint32_t c = 0; c < v->data_chunks; c++) {
        uint32_t count = race->first[c];
        race->most = count > race->most ? count : race->most;
        race->first[c] = (uint32_t)events;
        events += count;
    }
    size_t words = (size_t)race->most / 64 + 1;
    race->steps = calloc((events > steps ? events : steps), sizeof(uint32_t));
    race->before = calloc((size_t)race->most + 1, words * sizeof(uint64_t));
    race->previous = calloc((size_t)race->most + 1, sizeof(uint32_t));
    race->latest = malloc(((size_t)v->lanes.count + 1) * sizeof(uint32_t));
    race->readers = calloc(steps + race->most, sizeof(uint32_t));
    race->seen = calloc(steps, sizeof(uint32_t));
    race->stack = calloc(steps, sizeof(uint32_t));
    return race->steps && race->before && race->previous && race->latest && race->readers &&
           race->seen && race->stack;
}

bool disti_verify_races(struct verify *v)
{
    struct race race = {.v = v};
    bool good = race_allocate(&race);
    if (!good) {
        v->lost = true;
        goto out;
    }
    memset(race.latest, 0xff, v->lanes.count * sizeof(*race.latest)); /* VERIFY_NONE */
    for (uint32_t i = 0; i < v->steps.count; i++) {
        const struct verify_step *s = verify_step(v, v->order[i]);
        for (uint32_t c = 0; c < s->items; c++)
            race.steps[race.first[verify_data(v, v->order[i], c)]++] = v->order[i];
    }
    /* first[c] is where chunk c ends now, which is where c + 1 begins */
    memmove(race.first + 1, race.first, v->data_chunks * sizeof(*race.first));
    race.first[0] = 0;
    for (uint32_t chunk = 0; chunk < v->data_chunks && good; chunk++)
        good = race_chunk(&race, chunk);
    for (uint32_t rank = 0; rank < v->ranks && good; rank++)
        good = race_scratch(&race, rank);
out:
    free(race.first);
    free(race.steps);
    free(race.before);
    free(race.previous);
    free(race.latest);
    free(race.readers);
    free(race.seen);
    free(race.stack);
    return good;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The costs that a group chooses by: found in a file, measured, agreed on. */
#include "base/clock.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/kernels/environment.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/settings/config.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "engine/state.h"
#include "topology/discover.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Costs that were measured before: a file for each machine and way to use it. */

/* No tuning file is longer. */
#define TUNE_TEXT 65536
/* Costs that were measured in another way are no use: the number of this way. */
#define TUNE_WAY 2

void disti_tune_key(int nodes, int local_ranks, const char *transports, char key[TUNE_KEY])
{
    const char *cma = disti_env("DIST_SHM_CMA"), *sockets = disti_env("DIST_TCP_SOCKETS");
    const char *interfaces = disti_env("DIST_SOCKET_IFNAME");
    char model[96];

    /* The CPU's name; nothing that a tuning file would take for the end of the line. */
    size_t size = sizeof(model);
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];
    snprintf(model, size, "CPU");
    while (file && fgets(line, sizeof(line), file)) {
        const char *value = strchr(line, ':');
        if (!value || strncmp(line, "model name", 10) != 0)
            continue;
        snprintf(model, size, "%s", value + 1 + strspn(value + 1, " \t"));
        break;
    }
    if (file)
        fclose(file);
    for (char *c = model; *c; c++) {
        if (*c == '#' || *c == '\n' || *c == '\r')
            *c = *c == '#' ? '-' : '\0';
    }
    snprintf(key, TUNE_KEY,
             "libdist %s-%d, %s, %ld CPUs, %d nodes, %d ranks on this one, %.60s%s%s%.8s%s%.40s",
             dist_version(), TUNE_WAY, model, sysconf(_SC_NPROCESSORS_ONLN), nodes, local_ranks,
             transports, cma && strcmp(cma, "0") == 0 ? ", no CMA" : "",
             sockets ? ", sockets " : "", sockets ? sockets : "", interfaces ? ", interfaces " : "",
             interfaces ? interfaces : "");
}

bool disti_tune_path(const char *key, char path[TUNE_PATH])
{
    const char *cache = disti_env("XDG_CACHE_HOME"), *home = disti_env("HOME");
    bool cached = cache && cache[0] == '/'; /* what is no absolute path does not count */

    return (cached || (home && home[0] == '/')) &&
           snprintf(path, TUNE_PATH, "%s%s/libdist/tuning-%016llx", cached ? cache : home,
                    cached ? "" : "/.cache",
                    (unsigned long long)disti_hash_text(DISTI_HASH_START, key)) < TUNE_PATH - 32;
}

/* The whole file, terminated. Returns its length; below 0: errno says why not. */
static ssize_t tune_load(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t length = 0;
    ssize_t got = -1;
    struct stat info;

    if (fd < 0)
        return -1;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        errno = EINVAL;
        goto out;
    }
    while ((got = read(fd, text + length, size - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = '\0';
    if (got == 0 && length == size - 1) {
        errno = EFBIG;
        got = -1;
    }
out:
    close(fd);
    return got < 0 ? -1 : (ssize_t)length;
}

dist_status disti_tune_read(const char *path, const char *key, struct disti_tuning *tuning_p,
                            char *why, size_t why_size)
{
    char *text = malloc(TUNE_TEXT);
    dist_status status = DIST_ERR_INVALID_ARGUMENT;
    ssize_t length = text ? tune_load(path, text, TUNE_TEXT) : -1;

    why[0] = '\0';
    if (length < 0)
        snprintf(why, why_size, "%s: %s", path, strerror(text ? errno : ENOMEM));
    else if (strlen(text) != (size_t)length)
        snprintf(why, why_size, "%s: it is not a text file", path);
    else
        status = disti_tuning_parse(text, path, key, tuning_p, why, why_size);
    free(text);
    return status;
}

/* All of it, or none. */
static bool tune_save(const char *path, const char *text, size_t length)
{
    char temporary[TUNE_PATH + 8];
    bool saved;
    int fd;

    snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
    fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return false;
    saved = disti_file_write(fd, text, length) == (ssize_t)length;
    saved = close(fd) == 0 && saved;
    saved = saved && rename(temporary, path) == 0;
    if (!saved)
        unlink(temporary);
    return saved;
}

static bool tune_write_text(const char *key, const char *text, size_t length)
{
    char path[TUNE_PATH], *slash;

    if (!disti_tune_path(key, path)) {
        disti_info("tuning: costs are not cached: neither XDG_CACHE_HOME nor HOME is set");
        return false;
    }
    /* The last two folders may be missing. */
    slash = strrchr(path, '/');
    *slash = '\0';
    if (mkdir(path, 0700) != 0 && errno == ENOENT) {
        char *above = strrchr(path, '/');

        *above = '\0';
        mkdir(path, 0700);
        *above = '/';
        mkdir(path, 0700);
    }
    *slash = '/';
    if (!tune_save(path, text, length)) {
        disti_info("tuning: cannot write %s: %s", path, strerror(errno));
        return false;
    }
    disti_info("tuning: costs were written to %s", path);
    return true;
}

bool disti_tune_write(const struct disti_tuning *tuning, const char *key)
{
    char *text = malloc(DISTI_TUNING_TEXT); /* too large for a small stack */
    size_t length = text ? disti_tuning_print(tuning, key, text, DISTI_TUNING_TEXT) : 0;
    bool written = length && length < DISTI_TUNING_TEXT && tune_write_text(key, text, length);

    free(text);
    return written;
}

dist_status disti_tune_find(const char *key, struct disti_tuning *tuning_p, int32_t *effort_p)
{
    const char *said = disti_env("DIST_TUNING");
    char path[TUNE_PATH], why[TUNE_PATH + 256];
    dist_status status;

    disti_tuning_usual(tuning_p);
    *effort_p = TUNE_NOTHING;
    if (said && strcmp(said, "off") == 0) {
        tuning_p->predict = 0;
        return DIST_OK;
    }
    if (said && strcmp(said, "measure") == 0) {
        *effort_p = TUNE_CARE;
        return DIST_OK;
    }
    if (said) {
        status = disti_tune_read(said, NULL, tuning_p, why, sizeof(why));
        return status == DIST_OK ? DIST_OK
                                 : disti_fail(status,
                                              "DIST_TUNING is not off, measure or a valid "
                                              "tuning file: %s",
                                              why);
    }
    *effort_p = TUNE_HASTE;
    if (!disti_tune_path(key, path) || access(path, F_OK) != 0)
        return DIST_OK;
    if (disti_tune_read(path, key, tuning_p, why, sizeof(why)) == DIST_OK)
        *effort_p = TUNE_NOTHING;
    else
        disti_warn("tuning: ignoring the cache and measuring again: %s", why);
    return DIST_OK;
}

/* What one process can find out by itself: how fast it copies, reduces, gives its CPU away. */

/* Vectors that are soon copied and do not fit into most second-level caches; into no cache. */
#define LOCAL_BYTES_HASTE ((size_t)2 << 20)
#define LOCAL_BYTES_CARE ((size_t)8 << 20)
/* Yields of each of two threads that share a CPU. */
#define LOCAL_YIELDS 2000
#define LOCAL_START_NS (10 * 1000 * 1000)

/* How long one figure may take. */
static int64_t tune_each_ns(enum tune_effort effort)
{
    return effort == TUNE_CARE ? 20 * 1000 * 1000 : 1000 * 1000;
}

/* Two vectors; their pages are there. */
struct local_vectors {
    char *memory; /* NULL: there is none */
    size_t bytes; /* each */
};

static struct local_vectors local_vectors(enum tune_effort effort)
{
    struct local_vectors vectors = {.bytes =
                                        effort == TUNE_CARE ? LOCAL_BYTES_CARE : LOCAL_BYTES_HASTE};

    vectors.memory = malloc(2 * vectors.bytes);
    if (vectors.memory)
        memset(vectors.memory, 0, 2 * vectors.bytes);
    return vectors;
}

static void local_copy(const struct local_vectors *vectors)
{
    memcpy(vectors->memory, vectors->memory + vectors->bytes, vectors->bytes);
    /* The compiler must believe that somebody reads what was written there. */
    __asm__ volatile("" : : "r"(vectors->memory) : "memory");
}

static void local_reduce(const struct local_vectors *vectors)
{
    char *memory = vectors->memory;

    disti_reduce(DIST_FLOAT32, DIST_SUM, memory, memory, memory + vectors->bytes,
                 vectors->bytes / sizeof(float));
}

/* The best of as many as there is time for, and of two at least; bytes a second. */
static double local_speed(void (*work)(const struct local_vectors *vectors),
                          const struct local_vectors *vectors, int64_t each_ns)
{
    int64_t now = disti_now_ns(), until = now + each_ns, best = INT64_MAX;

    for (int times = 0; times < 2 || now < until; times++) {
        int64_t begin = now;

        work(vectors);
        now = disti_now_ns();
        best = now - begin < best ? now - begin : best;
    }
    return (double)vectors->bytes / ((double)(best ? best : 1) * 1e-9);
}

/* ---- from thread to thread ---- */

/* Two threads on one CPU; both yield once both are there. */
struct local_switch {
    int cpu;
    atomic_int here;
    atomic_bool failed;
    int64_t ended_ns[2];
    int64_t began_ns[2];
};

struct local_switcher {
    struct local_switch *both;
    int number;
};

static void *local_yield(void *arg)
{
    const struct local_switcher *me = arg;
    struct local_switch *both = me->both;
    int64_t until = disti_now_ns() + LOCAL_START_NS;
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(both->cpu, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set) != 0)
        atomic_store(&both->failed, true);
    atomic_fetch_add(&both->here, 1);
    while (atomic_load(&both->here) < 2 && disti_now_ns() < until)
        sched_yield();
    both->began_ns[me->number] = disti_now_ns();
    for (int i = 0; i < LOCAL_YIELDS && !atomic_load(&both->failed); i++)
        sched_yield();
    both->ended_ns[me->number] = disti_now_ns();
    return NULL;
}

/* Seconds from one to the other; below 0: it could not be measured. */
static double local_switch(void)
{
    struct local_switch both = {.cpu = sched_getcpu()};
    struct local_switcher switchers[2] = {{&both, 0}, {&both, 1}};
    pthread_t threads[2];
    int started = 0;

    if (both.cpu < 0 || both.cpu >= CPU_SETSIZE)
        return -1;
    while (started < 2 &&
           disti_thread_create(&threads[started], local_yield, &switchers[started]) == 0)
        started++;
    if (started < 2)
        atomic_store(&both.failed, true);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    if (atomic_load(&both.failed) || atomic_load(&both.here) < 2)
        return -1;
    /* While both are at it each of the first one's yields takes two changes. */
    return (double)(both.ended_ns[0] - both.began_ns[0]) * 1e-9 / (2 * LOCAL_YIELDS);
}

/* How fast this process copies and reduces and goes from thread to thread. Some ms, or 0.1 s. */
static void tune_local(enum tune_effort effort, struct disti_cost *cost)
{
    int64_t each_ns = tune_each_ns(effort);
    struct local_vectors vectors = local_vectors(effort);
    double seconds;

    if (vectors.memory) {
        double usual = cost->node_bytes_per_second / cost->copy_bytes_per_second;

        cost->copy_bytes_per_second = local_speed(local_copy, &vectors, each_ns);
        cost->reduce_bytes_per_second = local_speed(local_reduce, &vectors, each_ns);
        cost->node_bytes_per_second = usual * cost->copy_bytes_per_second;
    }
    free(vectors.memory);
    if (effort != TUNE_CARE)
        return;
    seconds = local_switch();
    if (seconds > 0)
        cost->switch_s = seconds;
}

/* The costs that a group chooses by: found, measured, agreed on. */

/* What the process's last world has, for its other groups. */
DISTI_PROCESS_LOCK(tune_lock);
static char tune_job[256];
static struct disti_tuning tune_known;
/* And the CPUs of its last group. */
static struct {
    int ranks, nodes, node_cpus, all_cpus;
} tune_group;

/* What the groups of a world share of their jobs' names, "NAME" and "NAME/NUMBER". */
static void tune_world_name(const struct dist_backend_config *config, char *name, size_t size)
{
    char *slash;

    snprintf(name, size, "%s", config->job);
    slash = config->group ? strrchr(name, '/') : NULL;
    if (slash)
        *slash = '\0';
}

static bool tune_recall(const struct dist_backend_config *config, struct disti_tuning *tuning_p)
{
    char name[sizeof(tune_job)];
    bool known;

    tune_world_name(config, name, sizeof(name));
    pthread_mutex_lock(&tune_lock);
    known = config->group && strcmp(name, tune_job) == 0;
    if (known)
        *tuning_p = tune_known;
    pthread_mutex_unlock(&tune_lock);
    return known;
}

bool disti_tune_recall_cpus(const struct disti_topology *topology, struct disti_cost *cost)
{
    bool known;

    pthread_mutex_lock(&tune_lock);
    known = tune_group.ranks == topology->ranks && tune_group.nodes == topology->nodes;
    if (known) {
        cost->node_cpus = tune_group.node_cpus;
        cost->all_cpus = tune_group.all_cpus;
    }
    pthread_mutex_unlock(&tune_lock);
    return known;
}

static void tune_own_key(const struct dist_backend_config *config,
                         const struct dist_transport *const *transports, char key[TUNE_KEY])
{
    /* The backend's transports, as far as DIST_TRANSPORT allows them: "shm,tcp". */
    const char *allowed = disti_env("DIST_TRANSPORT");
    char names[64];
    size_t length = (size_t)snprintf(names, sizeof(names), "%s", allowed ? allowed : "");
    int nodes = 0;

    for (int r = 0; r < config->world_size; r++)
        nodes = config->places[r].node >= nodes ? config->places[r].node + 1 : nodes;
    for (int t = 0; !allowed && transports[t] && length < sizeof(names); t++)
        length += (size_t)snprintf(names + length, sizeof(names) - length, "%s%s", t ? "," : "",
                                   transports[t]->name);
    disti_tune_key(nodes, config->local_ranks, names, key);
}

dist_status disti_tune_offer(const struct dist_backend_config *config,
                             const struct dist_transport *const *transports,
                             struct disti_tune_offer *offer_p)
{
    char key[TUNE_KEY];
    dist_status status;

    memset(offer_p, 0, sizeof(*offer_p));
    if (config->rank != 0)
        return DIST_OK;
    offer_p->usable_cpus = disti_usable_cpus();
    offer_p->shared_cpus = config->shared_cpus;
    if (tune_recall(config, &offer_p->tuning))
        return DIST_OK;
    tune_own_key(config, transports, key);
    status = disti_tune_find(key, &offer_p->tuning, &offer_p->effort);
    if (config->world_size == 1)
        offer_p->effort = TUNE_NOTHING;
    return status;
}

/* ---- the CPUs ---- */

/* Different cores that the ranks of the fullest node are on. */
static int tune_cores(const struct disti_topology *topology, int node)
{
    int size = disti_node_size(topology, node), cores = 0;

    for (int i = 0; i < size; i++) {
        const struct dist_place *a = &topology->localities[disti_node_member(topology, node, i)];
        bool seen = false;

        for (int j = 0; j < i && !seen; j++) {
            const struct dist_place *b =
                &topology->localities[disti_node_member(topology, node, j)];

            seen = a->package == b->package && a->numa == b->numa && a->core == b->core;
        }
        cores += !seen;
    }
    return cores;
}

/*
 * A process that may use several CPUs shares them with the others of its node; one that may use
 * one only was bound to it, and then the others to theirs.
 */
int disti_tune_node_cpus(const struct disti_topology *topology, int usable_cpus)
{
    int fullest = 0, ranks, cpus;

    for (int n = 1; n < topology->nodes; n++) {
        if (disti_node_size(topology, n) > disti_node_size(topology, fullest))
            fullest = n;
    }
    ranks = disti_node_size(topology, fullest);
    cpus = usable_cpus > 1 ? usable_cpus : tune_cores(topology, fullest);
    return ranks > cpus ? cpus : 0;
}

/* ---- measuring ---- */

/* Measures messages between rank 0 and a rank at each distance, and derives what they cost. */

/* From the times of messages to what they cost: as the simulator would have them take as long. */

/* No limit shows. */
#define FIT_UNLIMITED 1e14
/* Of a message's way no more is work of its receiver, however long a swap took by chance. */
#define FIT_WORK_MOST (2.0 / 3)

void disti_tune_fit_near(const struct disti_link_times *times, struct disti_link_cost *link)
{
    double way = times->back / 2, gap = (times->burst - times->back) / (DISTI_LINK_BURST - 1);

    /* Sender and receiver have a part in the way each, and something is left for the wire. */
    gap = gap > 0 ? gap : 0;
    link->overhead_s = gap < way / 4 ? gap : way / 4;
    link->latency_s = way - link->overhead_s;
    if (times->length / 2 > way)
        link->bytes_per_second = times->bytes / (times->length / 2 - way);
}

/*
 * Between nodes the CPU's part is the kernel's, and shows as work: in each round trip a message is
 * sent and one is received. What a swap takes longer than a way is work too that is in the way of
 * other work, the two ends' locks for example. See tuning/tuning.h for the pieces.
 */
void disti_tune_fit_far(const struct disti_link_times *times, struct disti_link_cost *link,
                        double *network_p)
{
    double way = times->back / 2, longer = times->swap > way ? times->swap - way : 0;
    double work = times->back_busy / 2 + longer;
    double each = (times->middle_busy - times->back_busy) / 2 / (double)DISTI_LINK_MIDDLE, line;

    each = each > 0 ? each : 0;
    link->overhead_s = work < FIT_WORK_MOST * way ? work : FIT_WORK_MOST * way;
    link->latency_s = way - link->overhead_s;
    *network_p = each > 0 ? 1 / each : FIT_UNLIMITED;
    line = times->length / 2 - way - 2 * each * DISTI_NETWORK_PIECE;
    link->bytes_per_second = line > 0 ? times->bytes / line : FIT_UNLIMITED;
}

/* What is between rank 0 and a rank at each distance: messages there and back. */

/*
 *   rank 0                                    its partner
 *     | ---- order: times, bytes, kind ------->  |
 *     | ---- a message ----------------------->  |   BACK: each one comes back
 *     | <--------------------------------------  |
 *     | ...                                      |
 *     | ==== messages, all at once ===========>  |   BURSTS: the last one is answered
 *     | <--------------------------------------  |
 *     | ---- a message --- > < --- a message --  |   SWAPS: both send, and receive, at once
 *     | ...                                      |
 *     | ---- order: 0 times ------------------>  |   the end
 *
 * On a channel and a number of call that collectives reach after 2^21 calls at the earliest.
 */
#define LINKS_SEQUENCE UINT64_MAX
#define LINKS_CHANNEL DISTI_CHANNELS
#define LINKS_SHORT 8
#define LINKS_MIDDLE DISTI_LINK_MIDDLE
#define LINKS_LONG ((size_t)1 << 20)
#define LINKS_BURST DISTI_LINK_BURST
/* Round trips of an order, and orders. */
#define LINKS_TIMES 8
/* Swaps of an order: of few it is more likely that nothing disturbs them. */
#define LINKS_SWAP_TIMES 5
#define LINKS_ORDERS 64

enum { LINKS_BACK, LINKS_BURSTS, LINKS_SWAPS };

struct links_order {
    uint32_t times, kind;
    uint64_t bytes;
};

/* This rank's end; it lives as long as the engine, since transports may keep its requests. */
struct engine_measurement {
    struct dist_engine *engine;
    int peer;
    int64_t until_ns;
    struct engine_request requests[LINKS_BURST + 1];
    struct links_order order;
    int64_t busy_ns; /* that this end's CPU was, since it was zeroed: not waiting, but at work */
    char out[LINKS_LONG], in[LINKS_LONG];
};

void disti_tune_links_free(struct dist_engine *engine)
{
    free(engine->measuring);
    engine->measuring = NULL;
}

/* ---- messages ---- */

static struct engine_attachment *links_link(const struct engine_measurement *links)
{
    return &links->engine->links[links->engine->route[links->peer]];
}

static struct engine_request *links_request(struct engine_measurement *links, int number,
                                            size_t bytes)
{
    struct engine_request *request = &links->requests[number];

    memset(request, 0, sizeof(*request));
    request->request.envelope.tag =
        disti_tag_collective(links->engine->config->group, LINKS_SEQUENCE, LINKS_CHANNEL);
    request->request.envelope.bytes = bytes;
    return request;
}

static void links_send(struct engine_measurement *links, int number, const void *data, size_t bytes)
{
    struct engine_request *request = links_request(links, number, bytes);
    struct engine_attachment *link = links_link(links);

    int64_t begin = disti_now_ns();

    request->request.data = data;
    disti_attachment_send(link, links->peer, request);
    links->busy_ns += disti_now_ns() - begin;
}

static void links_recv(struct engine_measurement *links, int number, void *data, size_t bytes)
{
    struct engine_request *request = links_request(links, number, bytes);
    struct engine_attachment *link = links_link(links);

    request->request.sink = (struct dist_sink){.dst = data, .bytes = bytes, .dtype = DIST_UINT8};
    disti_attachment_recv(link, links->peer, request);
}

static dist_status links_fail(const struct engine_measurement *links, dist_status status)
{
    return disti_fail(status,
                      "rank %d cannot measure the cost of messages to rank %d: %s. DIST_TUNING=off "
                      "skips the measurement",
                      links->engine->config->rank, links->peer,
                      status == DIST_ERR_TIMEOUT ? "the messages timed out"
                                                 : "the messages failed");
}

/* Until the requests [0, count) have ended. */
static dist_status links_wait(struct engine_measurement *links, int count)
{
    struct disti_wait_policy policy;
    struct disti_wait wait = {0};

    disti_wait_policy_init(&policy, true);
    for (int i = 0; i < count;) {
        int moved;

        if (links->requests[i].status == DIST_OK) {
            i++;
            continue;
        }
        if (links->requests[i].status != DIST_IN_PROGRESS)
            return links_fail(links, links->requests[i].status);
        /* Lets the transport move; what that takes counts only if there was something to do. */
        struct engine_attachment *link = links_link(links);
        int64_t begin = disti_now_ns();
        moved = disti_attachment_progress(link);
        if (moved > 0)
            links->busy_ns += disti_now_ns() - begin;
        if (moved < 0)
            return moved;
        if (moved)
            wait = (struct disti_wait){0};
        else if (disti_now_ns() > links->until_ns)
            return links_fail(links, DIST_ERR_TIMEOUT);
        else if (disti_wait_step(&policy, &wait))
            disti_sleep_ns(disti_wait_nap(&wait));
    }
    return DIST_OK;
}

/* ---- the partner ---- */

/* Both ends do this; the time of one, seconds, of all but the first, for which one may be late. */
static dist_status links_swap(struct engine_measurement *links, uint32_t times, size_t bytes,
                              double *seconds_p)
{
    dist_status status = DIST_OK;
    int64_t begin = 0;

    for (uint32_t i = 0; i < times && status == DIST_OK; i++) {
        if (i == 1)
            begin = disti_now_ns();
        links_recv(links, 0, links->in, bytes);
        links_send(links, 1, links->out, bytes);
        status = links_wait(links, 2);
    }
    *seconds_p = (double)(disti_now_ns() - begin) * 1e-9 / (times - 1);
    return status;
}

static dist_status links_follow(struct engine_measurement *links)
{
    dist_status status;

    do {
        links_recv(links, 0, &links->order, sizeof(links->order));
        status = links_wait(links, 1);
        if (status == DIST_OK &&
            !(links->order.times <= LINKS_BURST && links->order.kind <= LINKS_SWAPS &&
              links->order.bytes <= LINKS_LONG))
            status = disti_fail(DIST_ERR_MISMATCH,
                                "rank %d got an invalid command from rank %d while measuring "
                                "costs: use the same version of libdist on all ranks",
                                links->engine->config->rank, links->peer);
        if (status == DIST_OK) {
            const struct links_order *order = &links->order;
            int ahead = order->kind == LINKS_BURSTS ? (int)order->times : 1;
            double seconds;
            if (order->kind == LINKS_SWAPS) {
                status = links_swap(links, order->times, order->bytes, &seconds);
            } else {
                for (uint32_t i = 0; i < order->times && status == DIST_OK; i += (uint32_t)ahead) {
                    for (int r = 0; r < ahead; r++)
                        links_recv(links, r, links->in, order->bytes);
                    status = links_wait(links, ahead);
                    if (status == DIST_OK)
                        links_send(links, 0, links->out, order->bytes);
                    if (status == DIST_OK)
                        status = links_wait(links, 1);
                }
            }
        }
    } while (status == DIST_OK && links->order.times);
    return status;
}

/* ---- rank 0 ---- */

static dist_status links_command(struct engine_measurement *links, uint32_t times, uint32_t kind,
                                 size_t bytes)
{
    links->order = (struct links_order){.times = times, .kind = kind, .bytes = bytes};
    links_send(links, 0, &links->order, sizeof(links->order));
    return links_wait(links, 1);
}

/* The shortest round trip or burst, and the work in it. */
struct links_time {
    int64_t best_ns, busy_ns;
};

static dist_status links_once(struct engine_measurement *links, uint32_t kind, size_t bytes,
                              struct links_time *time)
{
    bool burst = kind == LINKS_BURSTS;
    uint32_t times = burst ? LINKS_BURST : bytes > LINKS_SHORT ? 2 : LINKS_TIMES;
    int ahead = burst ? LINKS_BURST : 1;
    dist_status status = links_command(links, times, kind, bytes);

    for (uint32_t i = 0; i < times && status == DIST_OK; i += (uint32_t)ahead) {
        int64_t begin = disti_now_ns(), took;

        links->busy_ns = 0;
        links_recv(links, ahead, links->in, bytes);
        for (int r = 0; r < ahead; r++)
            links_send(links, r, links->out, bytes);
        status = links_wait(links, ahead + 1);
        took = disti_now_ns() - begin;
        if (took < time->best_ns)
            *time = (struct links_time){took, links->busy_ns};
    }
    return status;
}

/* The shortest mean of some swaps, of as many as there is time for. */
static dist_status links_best_swap(struct engine_measurement *links, enum tune_effort effort,
                                   double *seconds_p)
{
    int64_t until = disti_now_ns() + tune_each_ns(effort);
    dist_status status = DIST_OK;
    double best = 1e9, seconds;

    for (int i = 0; status == DIST_OK && i < LINKS_ORDERS && (i == 0 || disti_now_ns() < until);
         i++) {
        status = links_command(links, LINKS_SWAP_TIMES, LINKS_SWAPS, LINKS_SHORT);
        if (status == DIST_OK)
            status = links_swap(links, LINKS_SWAP_TIMES, LINKS_SHORT, &seconds);
        if (status == DIST_OK && seconds < best)
            best = seconds;
    }
    *seconds_p = best;
    return status;
}

/* The shortest of as many as there is time for, and the work in it; seconds. */
static dist_status links_best(struct engine_measurement *links, enum tune_effort effort,
                              uint32_t kind, size_t bytes, double *seconds_p, double *busy_p)
{
    int64_t until = disti_now_ns() + tune_each_ns(effort);
    struct links_time time = {INT64_MAX, INT64_MAX};
    dist_status status = DIST_OK;

    for (int i = 0; status == DIST_OK && i < LINKS_ORDERS && (i == 0 || disti_now_ns() < until);
         i++)
        status = links_once(links, kind, bytes, &time);
    *seconds_p = (double)time.best_ns * 1e-9;
    *busy_p = (double)time.busy_ns * 1e-9;
    return status;
}

static dist_status links_lead(struct engine_measurement *links, enum tune_effort effort,
                              int distance, struct disti_cost *cost)
{
    bool far = distance == DISTI_OTHER_NODE;
    struct disti_link_times times;
    dist_status status =
        links_best(links, effort, LINKS_BACK, LINKS_SHORT, &times.back, &times.back_busy);
    double busy;

    if (status == DIST_OK)
        status = far ? links_best_swap(links, effort, &times.swap)
                     : links_best(links, effort, LINKS_BURSTS, LINKS_SHORT, &times.burst, &busy);
    if (status == DIST_OK)
        status =
            links_best(links, effort, LINKS_BACK, LINKS_MIDDLE, &times.middle, &times.middle_busy);
    times.length = times.middle;
    times.bytes = (double)LINKS_MIDDLE;
    /* Where a longer message does not take too long, it tells more. */
    if (status == DIST_OK && times.length * 1e9 < (double)tune_each_ns(effort) / 2) {
        times.bytes = (double)LINKS_LONG;
        status = links_best(links, effort, LINKS_BACK, LINKS_LONG, &times.length, &busy);
    }
    if (status == DIST_OK)
        status = links_command(links, 0, LINKS_BACK, 0);
    if (status == DIST_OK && far)
        disti_tune_fit_far(&times, &cost->links[distance], &cost->network_bytes_per_second);
    else if (status == DIST_OK)
        disti_tune_fit_near(&times, &cost->links[distance]);
    return status;
}

/* ---- who with whom ---- */

/* The lowest rank at that distance from rank 0; -1: there is none. */
static int links_partner(const struct disti_topology *topology, int distance)
{
    const struct dist_place *a = topology->localities;

    for (int r = 1; r < topology->ranks; r++) {
        const struct dist_place *b = &topology->localities[r];
        int here =
            a->package == b->package && a->numa == b->numa ? DISTI_SAME_NUMA : DISTI_SAME_NODE;

        if (disti_node_of(topology, 0) != disti_node_of(topology, r))
            here = DISTI_OTHER_NODE;
        if (here == distance)
            return r;
    }
    return -1;
}

/* What each rank gives at the end; rank 0's tuning counts. Exchanged as bytes. */
struct tune_result {
    struct disti_tuning tuning;
    double copied; /* bytes a second, while all ranks of the node were copying */
};

/* All ranks of a node copy at the same time: what its memory gives. */
static dist_status tune_together(const struct dist_engine *engine, double *copied_p)
{
    const struct dist_backend_config *config = engine->config;
    dist_status status = config->all_gather(config->all_gather_arg, NULL, NULL, 0);

    if (status == DIST_OK && disti_node_of(engine->topology, config->rank) == 0) {
        /* Bytes that it copies a second, for about that time. */
        struct local_vectors vectors = local_vectors(TUNE_CARE);
        int64_t begin = disti_now_ns(), end = begin;
        double bytes = 0;
        while (vectors.memory && end - begin < tune_each_ns(TUNE_CARE)) {
            local_copy(&vectors);
            bytes += (double)vectors.bytes;
            end = disti_now_ns();
        }
        free(vectors.memory);
        *copied_p = bytes > 0 ? bytes / ((double)(end - begin) * 1e-9) : 0;
    }
    return status;
}

static dist_status tune_share(const struct dist_engine *engine, const struct tune_result *mine,
                              struct disti_tuning *tuning)
{
    const struct dist_backend_config *config = engine->config;
    struct tune_result *all = calloc((size_t)config->world_size, sizeof(*all));
    dist_status status;

    if (!all)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for the costs of %d ranks",
                          config->world_size);
    status = config->all_gather(config->all_gather_arg, mine, all, sizeof(*mine));
    if (status == DIST_OK) {
        const disti_environment saved = disti_environment_enter(); /* all ranks round alike */
        double together = 0;

        for (int r = 0; r < config->world_size; r++)
            together += disti_node_of(engine->topology, r) == 0 ? all[r].copied : 0;
        *tuning = all[0].tuning;
        if (together > 0)
            tuning->cost.node_bytes_per_second = together;
        disti_tuning_round(tuning);
        disti_environment_leave(saved);
    }
    free(all);
    return status;
}

static dist_status tune_measure(struct dist_engine *engine,
                                const struct dist_transport *const *transports,
                                enum tune_effort effort, struct disti_tuning *tuning)
{
    const struct dist_backend_config *config = engine->config;
    struct tune_result mine = {.tuning = *tuning};
    int64_t begin = disti_now_ns();
    char key[TUNE_KEY];
    dist_status status;

    if (config->rank == 0)
        tune_local(effort, &mine.tuning.cost);
    /* Rank 0 and one rank at each distance measure what is between them; the others do nothing. */
    struct engine_measurement *links = malloc(sizeof(*links));
    bool measured[DISTI_DISTANCES] = {false};
    int rank = engine->config->rank;
    status = DIST_OK;
    if (!links) {
        status = disti_fail(DIST_ERR_NO_MEMORY, "no memory for measuring costs");
    } else {
        memset(links, 0, sizeof(*links));
        engine->measuring = links;
        links->engine = engine;
        links->until_ns = disti_deadline_ms(engine->config->timeout_ms);
        for (int d = 0; d < DISTI_DISTANCES && status == DIST_OK; d++) {
            int partner = links_partner(engine->topology, d);
            if (partner < 0 || (rank != 0 && rank != partner))
                continue;
            measured[d] = true;
            links->peer = rank == 0 ? partner : 0;
            status =
                rank == 0 ? links_lead(links, effort, d, &mine.tuning.cost) : links_follow(links);
        }
        if (status == DIST_OK) {
            /*
             * Inside a machine one distance stands for another that could not be measured. And what
             * is copied there goes no faster than a copy: messages to and fro were in caches,
             * others are not.
             */
            if (measured[DISTI_SAME_NUMA] && !measured[DISTI_SAME_NODE])
                mine.tuning.cost.links[DISTI_SAME_NODE] = mine.tuning.cost.links[DISTI_SAME_NUMA];
            if (measured[DISTI_SAME_NODE] && !measured[DISTI_SAME_NUMA])
                mine.tuning.cost.links[DISTI_SAME_NUMA] = mine.tuning.cost.links[DISTI_SAME_NODE];
            for (int d = DISTI_SAME_NUMA; d <= DISTI_SAME_NODE; d++) {
                if (mine.tuning.cost.links[d].bytes_per_second >
                    mine.tuning.cost.copy_bytes_per_second)
                    mine.tuning.cost.links[d].bytes_per_second =
                        mine.tuning.cost.copy_bytes_per_second;
            }
            disti_tune_links_free(engine);
        }
    }
    if (status == DIST_OK && effort == TUNE_CARE)
        status = tune_together(engine, &mine.copied);
    if (status != DIST_OK)
        return status;
    snprintf(mine.tuning.source, sizeof(mine.tuning.source), "measured at the start%s",
             effort == TUNE_CARE ? ", with care" : "");
    status = tune_share(engine, &mine, tuning);
    if (status != DIST_OK || config->rank != 0)
        return status;
    disti_info("tuning: costs were measured in %.1f ms", (double)(disti_now_ns() - begin) * 1e-6);
    tune_own_key(config, transports, key);
    disti_tune_write(tuning, key);
    return DIST_OK;
}

dist_status disti_tune_decide(struct dist_engine *engine,
                              const struct dist_transport *const *transports,
                              const struct disti_tune_offer *offer)
{
    struct disti_tuning *tuning = &engine->tuning;
    dist_status status = DIST_OK;

    *tuning = offer->tuning;
    /* A group whose world measured nothing, since its backend has no engine, does not either. */
    if (offer->effort && engine->config->group == 0)
        status = tune_measure(engine, transports, (enum tune_effort)offer->effort, tuning);
    if (status != DIST_OK)
        return status;
    if (!disti_tuning_sane(tuning))
        return disti_fail(
            DIST_ERR_MISMATCH,
            "rank %d got invalid costs from rank 0: use the same version of libdist on all ranks",
            engine->config->rank);
    if (engine->config->group == 0) {
        pthread_mutex_lock(&tune_lock);
        tune_world_name(engine->config, tune_job, sizeof(tune_job));
        tune_known = *tuning;
        pthread_mutex_unlock(&tune_lock);
    }
    tuning->cost.node_cpus = disti_tune_node_cpus(engine->topology, offer->usable_cpus);
    tuning->cost.all_cpus = offer->shared_cpus > 0 ? offer->shared_cpus : 0;
    pthread_mutex_lock(&tune_lock);
    tune_group.ranks = engine->topology->ranks;
    tune_group.nodes = engine->topology->nodes;
    tune_group.node_cpus = tuning->cost.node_cpus;
    tune_group.all_cpus = tuning->cost.all_cpus;
    pthread_mutex_unlock(&tune_lock);
    return DIST_OK;
}

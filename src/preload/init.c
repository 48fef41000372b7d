/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: MPI_Init and MPI_Finalize, MPI_Alloc_mem, and the report. */
#include "base/ascii.h"
#include "preload/preload.h"

#include <dist/backend.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/*
 * MPI_Alloc_mem returns memory that collectives use without copying. Info hints are meaningful to
 * MPI only, so a call with hints gets MPI's memory.
 */
int MPI_Alloc_mem(MPI_Aint size, MPI_Info info, void *base_p)
{
    if (disti_preload.active && size > 0 && info == MPI_INFO_NULL && base_p &&
        dist_alloc(NULL, (size_t)size, (void **)base_p) == DIST_OK)
        return MPI_SUCCESS;
    return PMPI_Alloc_mem(size, info, base_p);
}

/*
 * dist_free rejects memory that libdist did not allocate. It is also called when libdist no longer
 * serves calls: MPI_Finalize runs the attribute callbacks of MPI_COMM_SELF, which may free memory.
 */
int MPI_Free_mem(void *base)
{
    if (base && dist_free(NULL, base) == DIST_OK)
        return MPI_SUCCESS;
    return PMPI_Free_mem(base);
}

/* The report: served and forwarded calls, and why. */

/* The collectives in the order of the report. */
static const struct init_call {
    dist_collective kind;
    const char *name, *begin; /* begin: the nonblocking form */
} init_calls[] = {
#define INIT_CALL(KIND, name, begin, ...) {DIST_COLL_##KIND, #name, #begin},
    DISTI_CALLS(INIT_CALL, int, int)
#undef INIT_CALL
};
#define INIT_CALLS (sizeof(init_calls) / sizeof(init_calls[0]))

static const char *const report_reasons[DISTI_WHY_COUNT] = {
#define REPORT_REASON(name, text) text,
    DISTI_REASONS(REPORT_REASON)
#undef REPORT_REASON
};

static atomic_llong report_counts[DIST_COLL_COUNT][DISTI_FORMS][DISTI_WHY_COUNT];

void disti_report_count(dist_collective kind, enum disti_form form, enum disti_why reason)
{
    atomic_llong *count = &report_counts[kind][form][reason];

    if (disti_preload.is_threaded)
        atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
    else
        atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
                              memory_order_relaxed);
}

static void report_table(long long counts[DIST_COLL_COUNT][DISTI_FORMS][DISTI_WHY_COUNT])
{
    long long reasons[DISTI_WHY_COUNT] = {0};
    const char *backend = disti_preload.active ? dist_get_backend(disti_preload.world) : "none";

    fprintf(stderr, "libdist: calls of all %d ranks, backend %s\n", disti_preload.ranks, backend);
    fprintf(stderr, "libdist: %-30s %10s %10s\n", "call", "served", "forwarded");
    for (const struct init_call *call = init_calls; call < init_calls + INIT_CALLS; call++) {
        for (int form = 0; form < DISTI_FORMS; form++) {
            long long forwarded = 0;
            char name[64];

            for (int why = DISTI_WHY_SERVED + 1; why < DISTI_WHY_COUNT; why++)
                forwarded += counts[call->kind][form][why];
            if (counts[call->kind][form][DISTI_WHY_SERVED] || forwarded) {
                snprintf(name, sizeof(name), "MPI_%s%s",
                         form == DISTI_NONBLOCKING ? call->begin : call->name,
                         form == DISTI_PERSISTENT ? "_init" : "");
                fprintf(stderr, "libdist: %-30s %10lld %10lld\n", name,
                        counts[call->kind][form][DISTI_WHY_SERVED], forwarded);
            }
            for (int why = 0; why < DISTI_WHY_COUNT; why++)
                reasons[why] += counts[call->kind][form][why];
        }
    }
    for (int why = DISTI_WHY_SERVED + 1; why < DISTI_WHY_COUNT; why++) {
        if (reasons[why])
            fprintf(stderr, "libdist: forwarded %lld: %s\n", reasons[why], report_reasons[why]);
    }
}

/* MPI_Init and MPI_Finalize: collectives are served between them. */

#define INIT_ALL ((1u << DIST_COLL_COUNT) - 1)
#define INIT_REDUCTIONS ((unsigned)DISTI_REDUCING | 1u << DIST_COLL_BARRIER)

#ifdef OPEN_MPI
#define INIT_LOCAL_SIZE "OMPI_COMM_WORLD_LOCAL_SIZE"
#else
#define INIT_LOCAL_SIZE "MPI_LOCALNRANKS"
#endif

struct disti_preload disti_preload = {.self = MPI_COMM_NULL, .silent = MPI_COMM_NULL};

/* ---- settings ---- */

static unsigned init_kind(const char *name, size_t length)
{
    for (size_t i = 0; i < INIT_CALLS; i++) {
        const char *known = init_calls[i].name;

        if (strlen(known) == length && disti_ascii_begins_same(known, name, length))
            return 1u << init_calls[i].kind;
    }
    fprintf(stderr,
            "libdist: DIST_MPI_SERVE: '%.*s' is not an MPI collective: set it to 0, 1, or a list "
            "such as \"allreduce,bcast\"\n",
            (int)length, name);
    return 0;
}

/* Parses DIST_MPI_SERVE. Returns one bit per collective. */
static unsigned init_serves(void)
{
    const char *list = secure_getenv("DIST_MPI_SERVE");
    unsigned serves = 0;

    if (!list || !*list || strcmp(list, "1") == 0)
        return INIT_ALL;
    if (strcmp(list, "0") == 0)
        return 0;
    while (*list) {
        size_t length = strcspn(list, ",");

        serves |= init_kind(list, length);
        list += length + (list[length] == ',');
    }
    return serves;
}

/*
 * Returns the timeout of the groups: 0 if DIST_TIMEOUT is set, which libdist reads, else none, as
 * in MPI.
 */
static int init_timeout_ms(void)
{
    const char *seconds = secure_getenv("DIST_TIMEOUT");

    return seconds && *seconds ? 0 : INT_MAX;
}

/* ---- initialization ---- */

/*
 * Limit on descriptors: enough for all groups. With a higher limit, programs that close all
 * possible descriptors are slow.
 */
#define INIT_FILES 65536

/*
 * Makes a communicator with comm's ranks. MPI_Comm_dup and MPI_Comm_split are not used, since
 * Open MPI implements them with nonblocking collectives in comm. After the first of these, its
 * progress function polls for nonblocking collectives in every call, which slows down the program's
 * own tests and waits.
 */
static bool init_copy(MPI_Comm comm, MPI_Comm *copy_p)
{
    MPI_Group group;
    bool good;

    if (PMPI_Comm_group(comm, &group) != MPI_SUCCESS)
        return false;
    good = PMPI_Comm_create_group(comm, group, 0, copy_p) == MPI_SUCCESS;
    PMPI_Group_free(&group);
    return good;
}

/*
 * True if all ranks are on one machine: then libdist needs only shared memory, and makes no MPI
 * calls. The query is slow if ranks share CPUs: it makes two communicators, a copy of
 * MPI_COMM_WORLD (see init_copy) and the split of that copy.
 */
static bool init_one_machine(void)
{
    MPI_Comm copy, machine;
    int size = 0;

    if (disti_preload.facts & DISTI_FACT_ONE_MACHINE)
        return true;
    if (!init_copy(MPI_COMM_WORLD, &copy))
        return false;
    if (PMPI_Comm_split_type(copy, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine) ==
        MPI_SUCCESS) {
        PMPI_Comm_size(machine, &size);
        PMPI_Comm_free(&machine);
    }
    PMPI_Comm_free(&copy);
    return disti_comm_min(MPI_COMM_WORLD, size) == disti_preload.ranks;
}

static int init_all_gather(void *arg, const void *in, void *out, size_t bytes)
{
    (void)arg;
    if (bytes > INT_MAX)
        return -1;
    return PMPI_Allgather(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

/*
 * True if libdist's progress thread runs on this rank. It cannot run if the backend calls MPI and
 * the MPI thread level is below MPI_THREAD_MULTIPLE.
 */
static bool init_background(void)
{
    const char *thread = secure_getenv("DIST_PROGRESS_THREAD");
    const char *backend = dist_get_backend(disti_preload.world);
    int level = MPI_THREAD_SINGLE;

    PMPI_Query_thread(&level);
    if (thread && strcmp(thread, "0") == 0)
        return false;
    return strcmp(backend, "gloo") == 0 || strcmp(backend, "self") == 0 ||
           (strcmp(backend, "mpi") == 0 && level == MPI_THREAD_MULTIPLE);
}

/*
 * Agrees on the collectives that all ranks serve (0: none) and on the facts that hold on all. Uses
 * one MPI call, since each costs ranks that share CPUs several time slices.
 */
static void init_agree(void)
{
    const char *compares = secure_getenv("DIST_MPI_COMPARE");
    const char *report = secure_getenv("DIST_MPI_REPORT");
    const char *size = secure_getenv(INIT_LOCAL_SIZE); /* not all launchers set it */
    unsigned mine[2] = {init_serves(), 0}, all[2] = {0};
    int level = MPI_THREAD_SINGLE;

    PMPI_Query_thread(&level);
    if (level != MPI_THREAD_MULTIPLE)
        mine[1] |= DISTI_FACT_NO_THREADS;
    /* MPI calls have no timeout, so calls with a timeout must not be forwarded. */
    if ((!compares || strcmp(compares, "0") != 0) && init_timeout_ms() == INT_MAX)
        mine[1] |= DISTI_FACT_COMPARES;
    if (report && *report && strcmp(report, "0") != 0)
        mine[1] |= DISTI_FACT_REPORTS;
    if (size && atoi(size) == disti_preload.ranks)
        mine[1] |= DISTI_FACT_ONE_MACHINE;
    if (!disti_pack_is_data_only())
        mine[0] &= INIT_REDUCTIONS;
    PMPI_Allreduce(mine, all, 2, MPI_UNSIGNED, MPI_BAND, MPI_COMM_WORLD);
    disti_preload.serves = all[0];
    disti_preload.facts = all[1];
}

/*
 * Returns the minimum of all ranks' values. 0: some rank has failed, and rank 0 prints why. A
 * process group that only some ranks opened is left open.
 */
static int init_all(int value)
{
    int least = disti_comm_min(MPI_COMM_WORLD, value);

    if (least == 0) {
        const char *why = *dist_last_error() ? dist_last_error() : "MPI cannot make a communicator";
        char text[1024] = "";
        int first =
            disti_comm_min(MPI_COMM_WORLD, value > 0 ? disti_preload.ranks : disti_preload.rank);

        /* Rank 0 prints the error of the first rank that failed. */
        if (disti_preload.rank == first)
            snprintf(text, sizeof(text), "%s", why);
        PMPI_Bcast(text, sizeof(text), MPI_CHAR, first, MPI_COMM_WORLD);
        if (disti_preload.rank == 0)
            fprintf(stderr, "libdist: MPI serves all calls itself: rank %d could not join: %s\n",
                    first, text);
    }
    return least;
}

static void init_open(void)
{
    const char *backend;
    bool good;
    int least;
    struct rlimit limit;
    rlim_t most;
    const char *wanted, *best;
    struct dist_options options = DIST_OPTIONS_INIT;

    PMPI_Comm_rank(MPI_COMM_WORLD, &disti_preload.rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &disti_preload.ranks);
    init_agree();
    if (!disti_preload.serves)
        return;
    /*
     * Raises the limit on descriptors before the first group is made, since each group needs some
     * and the program, which creates communicators, cannot know this.
     */
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        most = limit.rlim_max < INIT_FILES ? limit.rlim_max : INIT_FILES;
        if (limit.rlim_cur < most) {
            limit.rlim_cur = most;
            (void)setrlimit(RLIMIT_NOFILE, &limit);
        }
    }
    good = init_copy(MPI_COMM_SELF, &disti_preload.self) &&
           init_copy(MPI_COMM_WORLD, &disti_preload.silent);
    if (good) {
        PMPI_Comm_set_errhandler(disti_preload.self, MPI_ERRORS_RETURN);
        good = disti_comms_open();
    }
    /*
     * Chooses the backend; collective over MPI_COMM_WORLD. Between machines, backend mpi sends MPI
     * messages. On one machine, both backends use shared memory, and gloo is chosen: it makes no
     * MPI calls, so its progress thread can run at any MPI thread level.
     */
    wanted = secure_getenv("DIST_BACKEND");
    best = init_one_machine() ? "gloo" : "mpi";
    backend = wanted && *wanted && strcmp(wanted, "auto") != 0 ? wanted : best;
    if (!init_all(good &&
                  dist_backend_query(backend, DIST_COLL_BARRIER, DIST_UINT8, DIST_SUM) == DIST_OK))
        return;
    options.backend = backend;
    options.rank = disti_preload.rank;
    options.world_size = disti_preload.ranks;
    options.oob_all_gather = init_all_gather;
    good = dist_init_process_group(&options, &disti_preload.world) == DIST_OK;
    least = init_all(good ? 1 + init_background() : 0);
    if (least == 0)
        return;
    disti_preload.background = least > 1;
    disti_preload.is_threaded = !(disti_preload.facts & DISTI_FACT_NO_THREADS);
    disti_preload.compares = disti_preload.facts & DISTI_FACT_COMPARES;
    disti_preload.timeout_ms = init_timeout_ms();
    disti_preload.active = true;
    disti_comms_start();
}

/* ---- functions that the program calls ---- */

/*
 * Returns the thread level to request. If the user selects backend mpi, nonblocking calls should be
 * served too, for which a thread has to call MPI, whatever level the program requests. If backend
 * mpi is selected automatically, the program's level is kept: MPI may be slower with threads.
 */
static int init_level(int required)
{
    const char *wanted = secure_getenv("DIST_BACKEND"),
               *thread = secure_getenv("DIST_PROGRESS_THREAD");
    bool threads = wanted && strcmp(wanted, "mpi") == 0 && !(thread && strcmp(thread, "0") == 0);

    return threads && init_serves() ? MPI_THREAD_MULTIPLE : required;
}

static int init_common(int *argc, char ***argv, int required, int *provided)
{
    int code = MPI_ERR_OTHER;

    if (disti_mpi_is_foreign())
        return disti_foreign_init(argc, argv, required, provided);
    if (disti_mpi_is_own())
        code = disti_mpi_init(argc, argv, init_level(required), provided);
    if (code == MPI_SUCCESS) {
        init_open();
        disti_bypass_begin();
    }
    return code;
}

/* MPI_Init and MPI_Init_thread do not call each other: the other name may be a profiling tool's. */
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    return init_common(argc, argv, required, provided);
}

int MPI_Init(int *argc, char ***argv)
{
    int provided;

    return init_common(argc, argv, DISTI_NO_LEVEL, &provided);
}

int MPI_Finalize(void)
{
    long long own[DIST_COLL_COUNT * DISTI_FORMS * DISTI_WHY_COUNT];
    long long all[DIST_COLL_COUNT][DISTI_FORMS][DISTI_WHY_COUNT] = {0};
    int n = DIST_COLL_COUNT * DISTI_FORMS * DISTI_WHY_COUNT;

    if (disti_preload.ranks) {
        /* Prints the table on rank 0 if all ranks request it. Collective over MPI_COMM_WORLD. */
        if (disti_preload.facts & DISTI_FACT_REPORTS) {
            for (int i = 0; i < n; i++)
                own[i] = atomic_load(&(&report_counts[0][0][0])[i]);
            PMPI_Reduce(own, all, n, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
            if (disti_preload.rank == 0)
                report_table(all);
        }
        if (disti_preload.active) {
            /* A barrier of MPI, since it waits for late ranks without a timeout. */
            disti_comm_min(MPI_COMM_WORLD, 0);
            disti_preload.active = false;
            disti_persistent_close();
            dist_destroy_process_group(disti_preload.world);
            disti_comms_close();
            PMPI_Comm_free(&disti_preload.self);
            PMPI_Comm_free(&disti_preload.silent);
        }
    }
    return PMPI_Finalize();
}

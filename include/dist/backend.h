/* SPDX-License-Identifier: BSD-3-Clause */
/* libdist: the contract of a backend, which a user picks by name. */
#ifndef DIST_BACKEND_H
#define DIST_BACKEND_H

#include <dist/transport.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The collectives. X(name, text) */
#define DIST_COLLECTIVE_MAP(X)                                                                     \
    X(ALL_REDUCE, "all_reduce")                                                                    \
    X(BROADCAST, "broadcast")                                                                      \
    X(BARRIER, "barrier")                                                                          \
    X(ALL_GATHER, "all_gather")                                                                    \
    X(REDUCE, "reduce")                                                                            \
    X(REDUCE_SCATTER, "reduce_scatter")                                                            \
    X(GATHER, "gather")                                                                            \
    X(SCATTER, "scatter")                                                                          \
    X(ALL_TO_ALL, "all_to_all")                                                                    \
    X(ALL_GATHER_V, "all_gather_v")                                                                \
    X(REDUCE_SCATTER_V, "reduce_scatter_v")                                                        \
    X(GATHER_V, "gather_v")                                                                        \
    X(SCATTER_V, "scatter_v")                                                                      \
    X(ALL_TO_ALL_V, "all_to_all_v")                                                                \
    X(SEND, "send")                                                                                \
    X(RECV, "recv")

typedef enum dist_collective {
#define DIST_COLLECTIVE_ENUM(name, text) DIST_COLL_##name,
    DIST_COLLECTIVE_MAP(DIST_COLLECTIVE_ENUM)
#undef DIST_COLLECTIVE_ENUM
        DIST_COLL_COUNT
} dist_collective;

DIST_API const char *dist_collective_string(dist_collective collective);

/* Where in and out of a call are. Device: a GPU's, CUDA's or HIP's, as far as the core knows. */
typedef enum dist_memory {
    DIST_MEMORY_HOST,
    DIST_MEMORY_DEVICE, /* both of them, or the one that there is */
    DIST_MEMORY_MIXED   /* one of each */
} dist_memory;

/* What becomes of a call; see dist_backend.manner. */
typedef enum dist_manner {
    DIST_MANNER_HOST,   /* the host waits until its ticket has ended */
    DIST_MANNER_STAGED, /* the same, with copies in host memory instead of its buffers */
    DIST_MANNER_STREAM  /* a stream orders it; the host waits for nothing */
} dist_manner;

/*
 * One call, as the user made it, checked. in and out are the user's and stay valid until the ticket
 * has ended, and so do the arrays, the call itself, source and reduction; dist.h says what lies
 * where and what is in place (BROADCAST: in == out). count: elements of a block, that is of what a
 * rank gives or gets from another; of the v-forms only GATHER_V (what this rank gives) and
 * SCATTER_V (what it gets) use it. sequence counts the group's collectives from 0, and apart from
 * them its sends and receives.
 *
 * in_counts, in_offsets: of IN's blocks, by rank, in elements: SCATTER_V at root, ALL_TO_ALL_V,
 * REDUCE_SCATTER_V. out_counts, out_offsets: of OUT's blocks: ALL_GATHER_V, GATHER_V at root,
 * ALL_TO_ALL_V. Else NULL. Offsets are always there with counts.
 */
struct dist_call {
    dist_collective collective;
    const void *in;
    void *out;
    size_t count;
    dist_dtype dtype;
    dist_op op;
    int root; /* SEND, RECV: the peer, or DIST_ANY_SOURCE */
    uint64_t sequence;
    const size_t *in_counts, *in_offsets;
    const size_t *out_counts, *out_offsets;
    const struct dist_reduction *reduction; /* op PREMUL_SUM and USER: what it is; else NULL */
    int tag;                                /* SEND, RECV */
    int *source;                            /* RECV: the sender's rank goes here; never NULL */
    void *prepared; /* what the backend's prepare gave for this call; else NULL */
    bool waits;     /* the caller does nothing else until it has ended: post may take its time */
    dist_memory memory; /* STAGED: of the copies, that is HOST */
    void *stream;       /* the program's: what is on it now comes before the call */
    uint32_t list;      /* of a list of buffers (coalesced): a hash of its counts; else 0 */
};

/*
 * A posted call. The backend sets status once, last, in one of its slots and no other thread: OK,
 * or an error that it has reported (host->fail, in the same call of a slot), which ends the group.
 * own is its to use. The memory is the core's; after status is set the backend touches neither the
 * ticket nor the call and its buffers. Tickets may end in any order: the core tells the program of
 * collectives in the order of posting.
 */
struct dist_ticket {
    dist_status status; /* DIST_IN_PROGRESS until it has ended */
    void *own;          /* NULL at first */
};

/* Where a rank is. Numbers are unique within what contains them; -1: unknown. */
struct dist_place {
    int32_t node; /* equal for ranks on one machine; counted from 0 in rank order */
    int32_t package;
    int32_t numa;
    int32_t core;
    int32_t gpu;
};

/* The plan engine as a backend sees it: opaque, made and driven through dist_host. */
struct dist_engine;

/* What the engine needs: the transports in order of preference, NULL-terminated. */
struct dist_engine_config {
    size_t size;
    const struct dist_transport *const *transports;
    void *transport_context; /* handed as config.context to transports that no groups share */
};

struct dist_backend_config;

/* What arm returns instead of a number of descriptors. */
#define DIST_ARM_BLIND (-1)
#define DIST_ARM_READY (-2)

/*
 * The library's services for a module: it needs no symbol of ours at link time. The table is
 * constant and lives for ever. None blocks but engine_open, which is collective.
 *
 * fail (printf-like) reports an error: logs it and keeps it for dist_last_error of this thread, so
 * it is to be called in a slot, not in a thread of the module's own. It returns status and leaves
 * errno. log (printf-like): a line without being an error. sink_apply: `bytes` bytes have come that
 * belong `offset` bytes into the sink; copies or reduces them. dtype_size: 0 of no dtype.
 * transport_find: built in, or of the module of that name, which is loaded; NULL: there is none. A
 * backend may list it in its engine's configuration.
 *
 * engine_*: the plan engine, which has every collective over transports; see the backend slots of
 * the same name. config must live until engine_close. On failure there is no engine; engine_close
 * takes NULL. A backend hands its own slots on to it: src/backends/gloo.c is no more than that.
 */
struct dist_host {
    uint32_t abi;
    uint32_t size;
    dist_status (*fail)(dist_status status, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
    void (*log)(dist_log_level level, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
    void (*sink_apply)(const struct dist_sink *sink, size_t offset, const void *data, size_t bytes);
    size_t (*dtype_size)(dist_dtype dtype);
    const char *(*collective_string)(dist_collective collective);
    const struct dist_transport *(*transport_find)(const char *name);
    dist_status (*engine_open)(const struct dist_backend_config *config,
                               const struct dist_engine_config *engine,
                               struct dist_engine **engine_p);
    dist_status (*engine_post)(struct dist_engine *engine, const struct dist_call *call,
                               struct dist_ticket *ticket);
    int (*engine_progress)(struct dist_engine *engine);
    void (*engine_describe)(const struct dist_engine *engine, char *text, size_t size);
    void (*engine_close)(struct dist_engine *engine);
    int (*engine_arm)(struct dist_engine *engine, int *fds, int room);
    void (*engine_disarm)(struct dist_engine *engine);
    bool (*op_fits)(dist_op op, dist_dtype dtype); /* is there such a reduction? */
    dist_status (*engine_prepare)(struct dist_engine *engine, const struct dist_call *call,
                                  void **prepared_p);
    void (*engine_release)(struct dist_engine *engine, void *prepared);
    /* Why transport_find gave NULL, which transports there are, and where they are looked for. */
    void (*transport_missing)(const char *name, char *text, size_t size);
};

/* What a backend is told when it is opened; lives, with all that it points to, as long as the
 * group. Ranks are those of the group. */
struct dist_backend_config {
    size_t size; /* sizeof(struct dist_backend_config) */
    const struct dist_host *host;
    int rank;
    int world_size;
    int local_rank;  /* among the ranks of the group on this machine */
    int local_ranks; /* how many those are, at least 1 */
    int timeout_ms;  /* of a call, above 0; the core keeps the deadlines of what was posted */
    uint32_t group;  /* this group's number, the same on every rank */
    const char *job; /* see dist_transport_config */
    const char *bind_host;
    const struct dist_place *places; /* world_size of them, by rank */
    const uint8_t *secret;
    size_t secret_bytes;
    /*
     * Every rank gives bytes bytes, gets world_size * bytes: for addresses and ids. Blocks
     * until all have come, at most the timeout; the error (reported) names who did not. In open
     * only, on every rank as often and in the same order.
     */
    dist_status (*all_gather)(void *all_gather_arg, const void *in, void *out, size_t bytes);
    void *all_gather_arg;
    const int *members; /* rank in the world by rank of this group; NULL: this is the world */
    bool reproducible;  /* as in struct dist_options */
    /*
     * Rank 0 gives bytes bytes, all others get them: for what one rank decides. With
     * all_gather_arg. Blocks until all have come, at most the timeout. NULL: there is none.
     */
    dist_status (*broadcast)(void *all_gather_arg, void *data, size_t bytes);
    int device;   /* the GPU that the program asks for, see dist_options; -1: by world_local_rank */
    bool crowded; /* the ranks of this machine have fewer CPUs than they are: who waits yields */
    int shared_cpus; /* of all ranks together, if several machines are containers of one kernel */
    int world_local_rank; /* as local_rank, but among the ranks of the world: the same in all groups
                             of a process, for what it has one of, such as a device */
    /*
     * Tells the other ranks, with all_gather_arg, that this one takes part in nothing of the group
     * any more, since it `what` ("has ended MPI"): their calls end. For a backend that learns that
     * its process ends. Any thread, between open and close; does not wait. NULL: there is none.
     */
    void (*leave)(void *all_gather_arg, const char *what);
    /*
     * The world that the group is of, for what its groups share: its name and figures, as above.
     * world_ranks 0: nothing is shared.
     */
    const char *world_job;
    int world_rank, world_ranks, world_local_ranks, world_timeout_ms;
    bool left; /* set before close: all ranks have come to the end of the group, none uses memory
                  of another any more */
};

/* How a backend that brings its own launcher (mpi) says who this process is. */
struct dist_identity {
    const struct dist_host *host; /* in */
    int timeout_ms;               /* in: how long all_gather may wait */
    int rank;
    int world_size;
    dist_oob_all_gather_fn all_gather; /* blocks; for bootstrap */
    void *all_gather_arg;
};

/* What a backend does not do as dist.h says, or not at all: the core refuses what needs it. */
#define DIST_LACKS_ANY_SOURCE 1u /* receives from any source */
#define DIST_LACKS_TAGS 2u       /* sends and receives with a tag other than 0 */
#define DIST_LACKS_NAN 4u        /* MIN and MAX of a NaN may be the number (not refused) */

/*
 * A backend. Constant, one for all; state is state_size zeroed bytes a group, allocated
 * by the core, aligned for any type, and freed after close.
 *
 *   probe --> [identify] --> open --> post, progress, arm, disarm, ... --> close
 *                             |                     |                        ^
 *                             |                     '--> abort --> [free] ---|
 *                             '--> (failed) ---------------------------------'
 *
 * Threads: calls on one group never overlap (the core holds the group's lock) but for query and
 * manner, which are asked without it, by any thread, beside any other slot. The rest is called by
 * whatever thread moves the group along: the program's, or the progress thread (see threads). Calls
 * on different groups may overlap. A slot calls the library through config->host alone.
 *
 * Blocking: only identify and open may wait for other ranks; close and abort end what there is
 * within some 100 ms and wait for nobody. All others return at once, or after the time that copying
 * takes.
 *
 * Errors: who fails has said why by host->fail, names ranks, and returns the status. Then
 *
 *   probe           the backend cannot be used here; its reason stands in the error
 *   identify, open  dist_init_process_group or dist_new_group fails, on every rank; close follows
 *   post            ERR_UNSUPPORTED, ERR_INVALID_ARGUMENT: as if the call had not been made.
 *                   Others: the group ends, since the other ranks have gone on
 *   prepare, alloc  that call of the program fails, nothing else
 *   a ticket,       the group ends: the first error is kept and told to all ranks, abort is called,
 *   progress,       what is pending ends with it. ERR_PEER_LOST: the core first asks the store who
 *   join, batch     went first, for half a second at most, to name that rank
 *
 * After abort come only free and close; what was pending the core ends itself.
 * Must be there: name, summary, probe, query, open, close, post, progress, abort. The rest may be
 * NULL, or both of what is called "together".
 */
struct dist_backend {
    uint32_t abi;        /* DIST_ABI */
    uint32_t size;       /* sizeof(struct dist_backend) */
    const char *name;    /* not empty; a module dist_NAME.so has the backend NAME */
    const char *summary; /* one line, for lists */
    size_t state_size;   /* bytes */

    /*
     * Can it run in this process? On failure writes the reason to reason[reason_size], reports
     * nothing and returns ERR_UNSUPPORTED. Never blocks, touches no peer. Any thread may call it,
     * often. Libraries that the backend needs are looked for here, with dlopen.
     */
    dist_status (*probe)(char *reason, size_t reason_size);

    /*
     * Would it take this call? ERR_UNSUPPORTED, of which nothing is reported: no. state may be
     * NULL: in general. Asked before calls; the answer must be the same on all ranks, and for as
     * long as the group lives. Where nothing is reduced op is to be ignored, in a BARRIER dtype
     * too.
     */
    dist_status (*query)(const void *state, dist_collective collective, dist_dtype dtype,
                         dist_op op);

    /*
     * Joins: collective, may block until all ranks have come (config->timeout_ms). After it the
     * core waits for all ranks once more, so that nobody posts before all are open; unless this is
     * a backend that meets. On failure leaves a state that close accepts.
     */
    dist_status (*open)(void *state, const struct dist_backend_config *config);

    /*
     * Leaves: local, bounded; accepts a half-open state, and one after abort. Nothing is pending,
     * and all ranks have come to the end of the group, unless it was aborted. Frees what was
     * prepared; leaves no thread, descriptor or file behind. Once.
     */
    void (*close)(void *state);

    /*
     * Starts a call; never blocks, but see call->waits. The ticket is IN_PROGRESS; it may end at
     * once, here. Any number may be pending, and their buffers may overlap: then the effect is that
     * of one after the other. All ranks post a group's collectives in the same order. On failure
     * the ticket is not touched again.
     */
    dist_status (*post)(void *state, const struct dist_call *call, struct dist_ticket *ticket);

    /*
     * Moves all posted calls along without waiting. Returns how much happened; 0: nothing; a
     * negative dist_status: the backend is broken, see above. Called as long as calls are pending.
     */
    int (*progress)(void *state);

    /*
     * After an error or a timeout: drop everything at once. Local, bounded. No ticket, call or
     * buffer is touched afterwards, neither by this rank's threads nor by its devices. Once.
     */
    void (*abort)(void *state);

    /*
     * Optional, together: what to sleep on. Writes at most `room` descriptors that become readable
     * when progress has something to do; returns how many, DIST_ARM_BLIND: there are none, poll;
     * DIST_ARM_READY: something is there already. After waking (whatever the reason, and whatever
     * arm returned) disarm is called before anything else is; where nothing is armed it does
     * nothing. The descriptors are the backend's, stay open until then, and are polled without the
     * lock for at most 100 ms at a time; there is room for at least 16. What happens between arm
     * and the sleep must make them readable too. NULL, or BLIND: the core naps between polls, up to
     * 20 ms long.
     */
    int (*arm)(void *state, int *fds, int room);
    void (*disarm)(void *state);

    /*
     * Optional: whom the oldest pending call waits for ("rank 2, rank 5"), for the error when it
     * takes too long. "" if that is not known. Always terminated; changes nothing.
     */
    void (*describe)(const void *state, char *text, size_t size);

    /*
     * Optional: identify this process by the backend's own launcher, starting that
     * runtime if need be. May block. Called before open, where the program names the backend or
     * mpi://, at most once a world.
     */
    dist_status (*identify)(struct dist_identity *identity_p);

    /*
     * Optional, together: memory that this backend moves fastest, for dist_alloc; bytes is not 0.
     * Aligned to a page. NULL: there is none. free takes what alloc gave, after an abort too; what
     * the program leaves is freed before close. NULL: the core allocates memory that all processes
     * of a machine can map.
     */
    void *(*alloc)(void *state, size_t bytes);
    void (*free)(void *state, void *memory);

    /*
     * Optional: may the slots of an open group be called by a thread of the library's own too,
     * never two at a time, while the program's threads do whatever they do? NULL: yes. Asked once a
     * group. No: calls move only while the program is in the library.
     */
    bool (*threads)(const void *state);

    /*
     * Optional, together: keep ready what a call needs that will be posted again and again.
     * *prepared_p goes into call.prepared of posts that differ in the sequence only, one at a time;
     * NULL: there is nothing to keep. Local. What is not released, close and abort free; afterwards
     * release does nothing. Not called where manner says STREAM. The call's sequence, stream and
     * waits are not yet those of the posts.
     */
    dist_status (*prepare)(void *state, const struct dist_call *call, void **prepared_p);
    void (*release)(void *state, void *prepared);

    /* Bits of DIST_LACKS_...; 0: it does everything. */
    uint32_t lacks;

    /* open ends with engine_open, and can fail no more after it: the core need not wait for the
     * other ranks once more, since engine_open has just done so. */
    bool meets;

    /*
     * Optional: how is this call to be done? call->memory and call->stream are set. Asked before
     * each post, but of a backend without join only for memory that is not HOST. Never blocks.
     * NULL: on host memory HOST, else STAGED.
     *
     * STREAM: post puts the call on streams and may not wait for the device. With call->waits it
     * goes on call->stream itself, so that what the program puts there later comes after it; else
     * anywhere after what is on call->stream now, and join comes when the program waits. The ticket
     * ends when the device is done with the call, or at once where that cannot be known (while a
     * graph is captured). The core keeps the call, the ticket and its deadline till then.
     */
    dist_manner (*manner)(const void *state, const struct dist_call *call);

    /*
     * Must be there if manner says STREAM: what is put on `stream` from now on begins after this
     * call, which was posted without `waits` and whose ticket has not ended. Never blocks. Failures
     * as post.
     */
    dist_status (*join)(void *state, struct dist_ticket *ticket, void *stream);

    /*
     * Optional: several posts come in a row (begin), or that was the last of them (not begin).
     * What was posted in between is to be started together: no send waits for its receive with
     * that behind it. Never nested; end is called even if a post failed, but not after abort. On
     * failure of either the tickets stay as they are and the core aborts the group. Other slots may
     * be called in between.
     */
    dist_status (*batch)(void *state, bool begin);
};

/*
 * A module is a shared object dist_NAME.so that defines this one symbol: the backend NAME, or
 * transports (NULL-terminated), or both. What it has none of is NULL. It links nothing of ours.
 *
 * It is looked for in the folders of DIST_PLUGIN_PATH, in dist/ beside libdist.so, beside it, and
 * where libdist was to be installed, in this order; the first file counts. It is loaded when its
 * backend is named, or NAME stands in DIST_TRANSPORT: of its transports users can name the one that
 * has its name, which engines of every backend then have besides their own. It is never unloaded.
 * Before any of its functions is called, abi and size of all its tables are compared, and what must
 * be there is looked for (ERR_ABI, which names the file and the slot).
 */
struct dist_module {
    uint32_t abi;  /* DIST_ABI */
    uint32_t size; /* sizeof(struct dist_module) */
    const struct dist_backend *backend;
    const struct dist_transport *const *transports;
};

#define DIST_MODULE_SYMBOL "dist_module_entry"

/*
 * Would this backend, in general, take such a call? Loads its module if need be. What does not
 * reduce has no op, and a barrier no dtype: there they are not looked at. op is one of dist.h's
 * map; for operations of the program's own, PREMUL_SUM or USER. ERR_UNSUPPORTED: no.
 * ERR_NO_BACKEND, ERR_ABI: it cannot be used here. ERR_INVALID_ARGUMENT.
 */
DIST_API dist_status dist_backend_query(const char *backend, dist_collective collective,
                                        dist_dtype dtype, dist_op op);

/* What that backend lacks, bits of DIST_LACKS_...; as above for one that cannot be used. */
DIST_API dist_status dist_backend_lacks(const char *backend, uint32_t *lacks_p);

/* ---- which algorithm, and why ---- */

/* A call as dist_explain is asked about it. */
struct dist_question {
    size_t size; /* sizeof(struct dist_question) */
    dist_collective collective;
    size_t bytes;         /* of a block: of what a rank gives to or gets from another */
    int ranks;            /* 0: as many as `topology` says */
    const char *topology; /* "node:2 core:4": where the ranks are; NULL: all on this machine */
};

/* One way to do it. The strings are static. */
struct dist_candidate {
    const char *algorithm, *summary;
    int segments;   /* 0: none, it is done in shared memory without an algorithm of messages */
    double seconds; /* predicted; below 0: not predicted */
    double least;   /* then it takes no less than this, if this is above 0 */
    bool chosen;    /* one of them */
    bool rules;     /* the rules, which look at no costs, would choose it */
};

/* The answer. */
struct dist_explanation {
    size_t size; /* sizeof(struct dist_explanation), set by the caller */
    int ranks, nodes;
    int candidates;   /* that there are; as many as there was room for were written */
    char reason[256]; /* why the one that is chosen is */
    char costs[256];  /* where the costs are from, and what they are */
};

/*
 * Says which algorithm and how many segments a group of backend gloo would choose for such a call,
 * by the settings of this process (DIST_ALGO, DIST_TUNING, ...) and the costs in its cache, and
 * why. Writes at most `room` candidates, the fastest first. Measures nothing.
 * ERR_INVALID_ARGUMENT.
 */
DIST_API dist_status dist_explain(const struct dist_question *question,
                                  struct dist_candidate *candidates, int room,
                                  struct dist_explanation *explanation_p);

/* Does it reduce, so that it has an op? */
DIST_API bool dist_collective_reduces(dist_collective collective);

/*
 * Writes the folders where modules are looked for, one a line, first to last, to the caller's
 * buffer, always terminated. Returns the length of the whole text, as snprintf does.
 */
DIST_API size_t dist_list_module_folders(char *buffer, size_t size);

/*
 * Writes the names of backends and transports that there may be, one a line, as above: built in,
 * this project's modules, and all others in these folders. Loads nothing.
 */
DIST_API size_t dist_list_names(char *buffer, size_t size);

/*
 * Writes what there is under such a name, as above: a line "backend NAME yes|no SUMMARY OR REASON",
 * the same of a transport, or both. Loads and probes the module, which may crash or not come back:
 * who wants to outlive that calls it in a child.
 */
DIST_API size_t dist_probe_name(const char *name, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif
#endif

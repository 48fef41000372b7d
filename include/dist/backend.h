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

/* Returns the name of a collective. Never NULL, static storage. */
DIST_API const char *dist_collective_string(dist_collective collective);

/* The location of a call's in and out, as far as the core knows. A device is a GPU, CUDA's or
 * HIP's. */
typedef enum dist_memory {
    DIST_MEMORY_HOST,
    DIST_MEMORY_DEVICE, /* both of them, or the one that there is */
    DIST_MEMORY_MIXED   /* one of each */
} dist_memory;

/* How a call is done; see dist_backend.manner. */
typedef enum dist_manner {
    DIST_MANNER_HOST,   /* the host waits until its ticket has ended */
    DIST_MANNER_STAGED, /* the same, with copies in host memory instead of its buffers */
    DIST_MANNER_STREAM  /* a stream orders it; the host does not wait */
} dist_manner;

/*
 * One call of the program, with its arguments checked.
 *
 * in and out belong to the program. They stay valid until the ticket has ended, and so do the call
 * itself, its arrays, source and reduction. dist.h says which blocks they hold and what in place
 * means; for BROADCAST, in == out.
 *
 * count is the elements of a block: of what one rank gives to another. Among the v-forms only
 * GATHER_V (for this rank's send count) and SCATTER_V (for its receive count) use it. sequence
 * counts the group's collectives from 0, and its sends and receives separately.
 *
 * in_counts and in_offsets describe IN's blocks, by rank, in elements: SCATTER_V at root,
 * ALL_TO_ALL_V, REDUCE_SCATTER_V. out_counts and out_offsets describe OUT's blocks: ALL_GATHER_V,
 * GATHER_V at root, ALL_TO_ALL_V. Otherwise they are NULL. With counts there are always offsets.
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
    const struct dist_reduction *reduction; /* op PREMUL_SUM and USER: the operation; else NULL */
    int tag;                                /* SEND, RECV */
    int *source;                            /* RECV: takes the sender's rank; never NULL */
    void *prepared;     /* from the backend's prepare, for this call; else NULL */
    bool waits;         /* the caller waits for this call only, so post may take its time */
    dist_memory memory; /* STAGED: HOST, where the copies are */
    void *stream;       /* the program's: the call follows what is on it now */
    uint32_t list;      /* of a list of buffers (coalesced): a hash of its counts; else 0 */
    uint32_t repeats;   /* the same as in the collective's call before: so is all but the buffers;
                           0: nothing is known */
};

/*
 * A posted call. The core owns the memory; the backend may use `own`.
 *
 * The backend sets status once, last, in one of its slots and in no other thread: OK, or an error
 * that it has reported by host->fail in the same slot call, which ends the group. Afterwards it
 * touches neither the ticket nor the call and its buffers. Tickets may end in any order; the
 * program sees collectives end in the order of posting.
 */
struct dist_ticket {
    dist_status status; /* DIST_IN_PROGRESS until it has ended */
    void *own;          /* NULL at first */
};

/* The CPU and machine on which a rank runs. A number is unique within what contains it; -1:
 * unknown. */
struct dist_place {
    int32_t node; /* equal for ranks on one machine; counted from 0 in rank order */
    int32_t package;
    int32_t numa;
    int32_t core;
    int32_t gpu;
};

/* The plan engine, opaque to backends, which open and drive it through dist_host. */
struct dist_engine;

/* The engine's configuration: transports in order of preference, NULL-terminated. */
struct dist_engine_config {
    size_t size;
    const struct dist_transport *const *transports;
    void *transport_context; /* config.context of transports that groups do not share */
};

struct dist_backend_config;

/* Results of arm other than a number of descriptors; see dist_backend.arm. */
#define DIST_ARM_BLIND (-1)
#define DIST_ARM_READY (-2)

/*
 * The library's services for a module, which needs none of its symbols at link time. The table is
 * constant and lives for ever. No function blocks except engine_open, which is collective.
 *
 *   fail            reports an error (printf-like): logs it and keeps it for this thread's
 *                   dist_last_error, so call it in a slot, not in a thread of the module's own.
 *                   Returns status and preserves errno
 *   log             writes a log line (printf-like) that is not an error
 *   sink_apply      copies or reduces `bytes` received bytes at `offset` bytes into the sink
 *   dtype_size      as dist_dtype_size
 *   transport_find  returns a built-in transport, or the one of the module of that name, which it
 *                   loads; NULL: there is none. A backend may list it in its engine's configuration
 *   engine_*        the plan engine, which has every collective over transports; see the backend
 *                   slots of the same names. config must live until engine_close. On failure there
 *                   is no engine; engine_close accepts NULL. A backend may forward its slots to the
 *                   engine: src/backends/gloo.c does nothing else
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
    bool (*op_fits)(dist_op op, dist_dtype dtype); /* does such a reduction exist? */
    dist_status (*engine_prepare)(struct dist_engine *engine, const struct dist_call *call,
                                  void **prepared_p);
    void (*engine_release)(struct dist_engine *engine, void *prepared);
    dist_status (*engine_at_once)(struct dist_engine *engine, const struct dist_call *call);
    /* Writes why transport_find returned NULL, which transports exist, and where it looks. */
    void (*transport_missing)(const char *name, char *text, size_t size);
};

/*
 * A backend's configuration. It lives, with all that it points to, as long as the group. Ranks are
 * those of the group.
 */
struct dist_backend_config {
    size_t size; /* sizeof(struct dist_backend_config) */
    const struct dist_host *host;
    int rank;
    int world_size;
    int local_rank;  /* among the ranks of the group on this machine */
    int local_ranks; /* ranks of the group on this machine, at least 1 */
    int timeout_ms;  /* of a call, above 0; the core watches the deadlines of posted calls */
    uint32_t group;  /* this group's number, the same on every rank */
    const char *job; /* see dist_transport_config */
    const char *bind_host;
    const struct dist_place *places; /* world_size of them, by rank */
    const uint8_t *secret;
    size_t secret_bytes;
    /*
     * All-gather for addresses and ids: every rank sends `bytes` bytes and receives world_size *
     * bytes. Blocks until all ranks have come, at most the timeout; the error (reported) names the
     * missing ranks. Only open may call it, on every rank equally often and in the same order.
     */
    dist_status (*all_gather)(void *all_gather_arg, const void *in, void *out, size_t bytes);
    void *all_gather_arg;
    const int *members; /* rank in the world by rank of this group; NULL: this is the world */
    bool reproducible;  /* as in struct dist_options */
    /*
     * Broadcast of what one rank decides: rank 0 sends `bytes` bytes to all other ranks. Takes
     * all_gather_arg. Blocks until all ranks have come, at most the timeout. NULL: there is none.
     */
    dist_status (*broadcast)(void *all_gather_arg, void *data, size_t bytes);
    int device;      /* the requested GPU, see dist_options; -1: by world_local_rank */
    bool crowded;    /* this machine has more ranks than CPUs for them: a rank that waits yields */
    int shared_cpus; /* CPUs of all ranks, if several machines are containers of one kernel */
    int world_local_rank; /* local rank in the world: the same in all groups of a process, for what
                             a process has one of, such as a device */
    /*
     * Tells the other ranks that this one has left the group, because it `what` ("has ended MPI"):
     * their calls end. For a backend that learns that its process ends. Takes all_gather_arg. Any
     * thread may call it between open and close; does not block. NULL: there is none.
     */
    void (*leave)(void *all_gather_arg, const char *what);
    /*
     * The group's world, for what its groups share: its name and figures, as above. world_ranks 0:
     * nothing is shared.
     */
    const char *world_job;
    int world_rank, world_ranks, world_local_ranks, world_timeout_ms;
    bool left; /* set before close if all ranks have come to the end of the group, so that none
                  uses another's memory any more */
    /*
     * Returns true if the store has reported that a rank of the group failed or exited. Then
     * ERR_PEER_LOST (reported, with that rank's name and reason), else OK. For an open that waits
     * for ranks in another way than by all_gather. Takes all_gather_arg; never blocks. NULL:
     * nothing is known.
     */
    dist_status (*lost)(void *all_gather_arg);
};

/* How a backend with its own launcher (mpi) identifies this process. */
struct dist_identity {
    const struct dist_host *host; /* in */
    int timeout_ms;               /* in: how long all_gather may wait */
    int rank;
    int world_size;
    dist_oob_all_gather_fn all_gather; /* blocks; for bootstrap */
    void *all_gather_arg;
    /* Optional. Ranks are lost, or may be: the process shall not wait for them as it exits. Any
       thread. */
    void (*peers_lost)(void);
};

/* Features of dist.h that a backend does not support. The core refuses calls that need it. */
#define DIST_LACKS_ANY_SOURCE 1u /* receives from any source */
#define DIST_LACKS_TAGS 2u       /* sends and receives with a tag other than 0 */
#define DIST_LACKS_NAN 4u        /* MIN and MAX of a NaN may be the number; not refused */

/*
 * A backend: a constant table. The core allocates state_size zeroed bytes of state for each group,
 * aligned for any type, and frees them after close.
 *
 *   probe --> [identify] --> open --> post, progress, arm, disarm, ... --> close
 *                             |                     |                        ^
 *                             |                     '--> abort --> [free] ---|
 *                             '--> (failed) ---------------------------------'
 *
 * Threads. Calls on one group never overlap, since the core holds the group's lock, except query
 * and manner: any thread calls these without the lock, beside any other slot. The thread that
 * drives the group calls the rest: the program's, or the progress thread (see threads). Calls on
 * different groups may overlap. A slot calls the library through config->host only.
 *
 * Blocking. Only identify and open may wait for other ranks. close and abort end what is pending
 * within some 100 ms and wait for no rank. All others return at once, or after the time that
 * copying takes.
 *
 * Errors. A slot that fails reports the reason by host->fail, names ranks, and returns the status.
 * The meaning of a failure:
 *
 * - probe: the backend cannot be used here. The error states the reason.
 * - identify, open: dist_init_process_group or dist_new_group fails on every rank; close follows.
 * - post: ERR_UNSUPPORTED and ERR_INVALID_ARGUMENT undo the call. Others end the group, since the
 *   other ranks have gone on.
 * - prepare, alloc: that call of the program fails, and nothing else.
 * - a ticket, progress, join, batch: the group ends. The core keeps the first error, tells all
 *   ranks, calls abort, and ends pending calls with that error. On ERR_PEER_LOST it first asks the
 *   store, for half a second at most, which rank went first, and names that rank.
 *
 * After abort only free and close follow; the core ends the pending calls itself.
 *
 * Mandatory are name, summary, probe, query, open, close, post, progress and abort. The remaining
 * slots may be NULL; slots marked "together" are both set or both NULL.
 */
struct dist_backend {
    uint32_t abi;        /* DIST_ABI */
    uint32_t size;       /* sizeof(struct dist_backend) */
    const char *name;    /* not empty; a module dist_NAME.so has the backend NAME */
    const char *summary; /* one line, for lists */
    size_t state_size;   /* bytes */

    /*
     * Reports whether the backend can run in this process. On failure writes the reason to
     * reason[reason_size], reports nothing and returns ERR_UNSUPPORTED. Looks for libraries that
     * the backend needs, with dlopen. Never blocks, contacts no peer. Any thread may call it,
     * often.
     */
    dist_status (*probe)(char *reason, size_t reason_size);

    /*
     * Reports whether the backend supports this call. Returns ERR_UNSUPPORTED, and reports nothing,
     * if not. state NULL asks in general. The answer must be the same on all ranks, and for as long
     * as the group lives. Ignores op where nothing is reduced, and dtype in a BARRIER.
     */
    dist_status (*query)(const void *state, dist_collective collective, dist_dtype dtype,
                         dist_op op);

    /*
     * Joins. Collective; may block until all ranks have come, at most config->timeout_ms. On
     * failure leaves a state that close accepts. Afterwards the core waits for all ranks once more,
     * so that no rank posts before all are open, unless `meets` is set.
     */
    dist_status (*open)(void *state, const struct dist_backend_config *config);

    /*
     * Leaves: local, bounded, called once. Accepts a half-open state, and one after abort. Nothing
     * is pending, and all ranks have come to the end of the group, unless it was aborted. Frees the
     * prepared state; no thread, descriptor or file remains.
     */
    void (*close)(void *state);

    /*
     * Starts a call. Never blocks, but see call->waits. The ticket is IN_PROGRESS, and may end here
     * at once. Any number of calls may be pending. If their buffers overlap, the effect is that of
     * one call after the other. All ranks post a group's collectives in the same order. After a
     * failure the backend does not touch the ticket.
     */
    dist_status (*post)(void *state, const struct dist_call *call, struct dist_ticket *ticket);

    /*
     * Advances all posted calls without waiting. Returns how much happened, 0 for nothing, or a
     * negative dist_status if the backend is broken, see above. Called as long as calls are
     * pending.
     */
    int (*progress)(void *state);

    /*
     * Drops everything at once, after an error or a timeout. Local, bounded, called once.
     * Afterwards neither this rank's threads nor its devices touch any ticket, call or buffer.
     */
    void (*abort)(void *state);

    /*
     * Optional, together. Prepares to sleep: writes at most `room` descriptors (there is room for
     * 16 or more) that become readable when progress has something to do. Returns their number,
     * DIST_ARM_BLIND if there are none, or DIST_ARM_READY if there is something to do already.
     * disarm is the next call after waking, for every result of arm; if nothing is armed it does
     * nothing. The backend owns the descriptors and keeps them open until then. The core polls them
     * without the lock, for at most 100 ms at a time. An event between arm and the sleep must make
     * them readable too. With NULL or BLIND the core naps between polls, for up to 20 ms.
     */
    int (*arm)(void *state, int *fds, int room);
    void (*disarm)(void *state);

    /*
     * Optional. Writes which ranks the oldest pending call waits for ("rank 2, rank 5
     * (unreachable)"), for the error of its timeout; "" if that is not known. "; " and the
     * likely reason may follow. Always terminated; changes nothing.
     */
    void (*describe)(const void *state, char *text, size_t size);

    /*
     * Optional. Identifies this process by the backend's own launcher, and starts that runtime if
     * needed. May block. Called before open if the program names the backend or mpi://, at most
     * once a world.
     */
    dist_status (*identify)(struct dist_identity *identity_p);

    /*
     * Optional, together. Allocates the memory that this backend moves fastest, for dist_alloc,
     * aligned to a page; bytes is not 0. Returns NULL if there is none left. free accepts memory
     * that alloc returned, even after an abort. The core frees what the program leaves before
     * close. Without these slots the core allocates memory that all processes of a machine can map.
     */
    void *(*alloc)(void *state, size_t bytes);
    void (*free)(void *state, void *memory);

    /*
     * Optional. True if a thread of the library may call the slots of an open group, one at a time,
     * while the program's threads run. Asked once a group; NULL means yes. If not, calls advance
     * only while the program is in the library.
     */
    bool (*threads)(const void *state);

    /*
     * Optional, together. Keeps ready what a call needs that will be posted repeatedly. *prepared_p
     * becomes call.prepared of posts that differ in the sequence only, one at a time; NULL: there
     * is nothing to keep. The call's sequence, stream and waits are not yet those of the posts.
     * Local. close and abort free what was not released; release does nothing afterwards. Not
     * called for calls of manner STREAM.
     */
    dist_status (*prepare)(void *state, const struct dist_call *call, void **prepared_p);
    void (*release)(void *state, void *prepared);

    /* Bits of DIST_LACKS_...; 0: nothing. */
    uint32_t lacks;

    /*
     * open ends with engine_open and cannot fail after it. engine_open waits for all ranks, so the
     * core need not do so once more.
     */
    bool meets;

    /*
     * Optional. A blocking collective on host memory, as it was posted before but for its buffers
     * (`repeats` is not 0, and lists stay while it is the same), while no other is pending. OK: it
     * has ended. IN_PROGRESS: it has begun, and the core posts it before it calls another slot.
     * UNSUPPORTED: nothing was done, and the core posts it. Waits for nobody, reports nothing, and
     * leaves what it finds wrong to the post.
     */
    dist_status (*at_once)(void *state, const struct dist_call *call);

    /*
     * Optional. Returns how to do this call; call->memory and call->stream are set. The core asks
     * before each post, but a backend without join only for memory that is not HOST. Never blocks.
     * NULL means HOST on host memory, else STAGED.
     *
     * STREAM: post puts the call on streams and does not wait for the device. With call->waits the
     * call goes on call->stream itself, so that later work of the program there follows it.
     * Otherwise it goes anywhere after what is on call->stream now, and join is called when the
     * program waits. The ticket ends when the device has done the call, or at once where that
     * cannot be known (while a graph is captured). Until then the core keeps the call, the ticket
     * and its deadline.
     */
    dist_manner (*manner)(const void *state, const struct dist_call *call);

    /*
     * Mandatory if manner returns STREAM. Makes what is put on `stream` from now on begin after
     * this call, which was posted without `waits` and whose ticket has not ended. Never blocks.
     * Fails like post.
     */
    dist_status (*join)(void *state, struct dist_ticket *ticket, void *stream);

    /*
     * Optional. Begins a row of posts (begin), or ends it (not begin). The backend starts the posts
     * in between together, so that no send waits for a receive behind it. Never nested. The end
     * comes even if a post failed, but not after abort. If either fails, the tickets stay as they
     * are and the core aborts the group. Other slots may be called in between.
     */
    dist_status (*batch)(void *state, bool begin);
};

/*
 * A module is a shared object dist_NAME.so that defines this one symbol. It has the backend NAME,
 * or transports (NULL-terminated), or both; what it lacks is NULL. It links nothing of libdist.
 *
 * The library looks in the folders of DIST_PLUGIN_PATH, in dist/ beside libdist.so, beside
 * libdist.so, and where libdist was to be installed, in this order; the first file counts. It loads
 * a module when its backend is named, or when NAME stands in DIST_TRANSPORT, and never unloads it.
 * Users can name the transport that has the module's name, which engines of every backend then have
 * besides their own. Before it calls any function, the library compares abi and size of all tables,
 * and checks mandatory slots; ERR_ABI names the file and the slot.
 */
struct dist_module {
    uint32_t abi;  /* DIST_ABI */
    uint32_t size; /* sizeof(struct dist_module) */
    const struct dist_backend *backend;
    const struct dist_transport *const *transports;
};

#define DIST_MODULE_SYMBOL "dist_module_entry"

/*
 * Returns OK if this backend, in general, supports such a call, and ERR_UNSUPPORTED if not. Loads
 * its module if needed.
 *
 * op is one of dist.h's map: for created operations, PREMUL_SUM or USER. It is ignored where
 * nothing is reduced, and so is dtype in a barrier.
 *
 * Errors: ERR_NO_BACKEND and ERR_ABI (the backend cannot be used here), ERR_INVALID_ARGUMENT.
 */
DIST_API dist_status dist_backend_query(const char *backend, dist_collective collective,
                                        dist_dtype dtype, dist_op op);

/* Sets *lacks_p to what that backend lacks, bits of DIST_LACKS_.... Errors: as above. */
DIST_API dist_status dist_backend_lacks(const char *backend, uint32_t *lacks_p);

/* ---- which algorithm, and why ---- */

/* The call that dist_explain explains. */
struct dist_question {
    size_t size; /* sizeof(struct dist_question) */
    dist_collective collective;
    size_t bytes;         /* of a block: of what one rank gives to another */
    int ranks;            /* 0: as many as `topology` says */
    const char *topology; /* "node:2 core:4": where the ranks are; NULL: all on this machine */
};

/* One way to do the call. The strings are static. */
struct dist_candidate {
    const char *algorithm, *summary;
    int segments;   /* 0: shared memory serves the call, without messages */
    double seconds; /* predicted; below 0: not predicted */
    double least;   /* if not predicted: a lower bound in seconds, if above 0 */
    bool chosen;    /* true for exactly one */
    bool rules;     /* the rules, which ignore costs, choose it */
};

/* The answer. */
struct dist_explanation {
    size_t size; /* sizeof(struct dist_explanation), set by the caller */
    int ranks, nodes;
    int candidates;   /* all of them, also those that found no room */
    char reason[256]; /* why the chosen one is chosen */
    char costs[256];  /* the costs, and where they come from */
};

/*
 * Says which algorithm and how many segments a group of backend gloo chooses for such a call, and
 * why.
 *
 * The answer follows from this process's settings (DIST_ALGO, DIST_TUNING, ...) and the costs in
 * its cache. Writes at most `room` candidates, the fastest first. Measures nothing.
 *
 * Errors: ERR_INVALID_ARGUMENT.
 */
DIST_API dist_status dist_explain(const struct dist_question *question,
                                  struct dist_candidate *candidates, int room,
                                  struct dist_explanation *explanation_p);

/* Returns whether the collective reduces, and so has an op. */
DIST_API bool dist_collective_reduces(dist_collective collective);

/*
 * Writes the folders where the library looks for modules, one a line, first to last, to buffer.
 *
 * The text is always terminated. Returns the length of the whole text, as snprintf does.
 */
DIST_API size_t dist_list_module_folders(char *buffer, size_t size);

/*
 * Writes the names of all possible backends and transports, one a line, as above: built in, this
 * project's modules, and all others in these folders. Loads nothing.
 */
DIST_API size_t dist_list_names(char *buffer, size_t size);

/*
 * Sets *place_p to where that rank of the group runs: its node among those of the group, and on
 * that machine the package, NUMA node and core, or -1 where libdist does not know. Blocks for
 * nothing.
 *
 * Errors: ERR_INVALID_ARGUMENT.
 */
DIST_API dist_status dist_get_place(const dist_group *group, int rank, struct dist_place *place_p);

/*
 * Makes `text`, which is copied, this thread's dist_last_error: for code that extends the library,
 * such as the functions of dist/mpi.h. Returns status.
 */
DIST_API dist_status dist_set_last_error(dist_status status, const char *text);

/*
 * Instead of dist_dup_group, by a rank that cannot take part: for a library whose own calls begin
 * with dist_dup_group, when one of them is given a wrong argument. The calls of the other ranks end
 * at once, with `status` and the text of dist_last_error; ERR_ABORTED unless status is
 * ERR_INVALID_ARGUMENT, ERR_UNSUPPORTED, ERR_NO_BACKEND or ERR_ABI. Does not block.
 *
 * Returns status, and leaves dist_last_error as it is. Errors: ERR_INVALID_ARGUMENT.
 */
DIST_API dist_status dist_decline_dup_group(dist_group *parent, dist_status status);

/*
 * Writes the environment variables that matter to the library, one a line, as above, with tabs
 * between four fields: "own", the name, what holds where it is unset (may be empty), what it is
 * for; "foreign", the name, whose it is, what it is for; and for each variable of this process that
 * begins with DIST_ and that nobody reads "unknown", its name, the one that may be meant (may be
 * empty), what that is for; and for each of the library's variables with a value that a job would
 * refuse "wrong", its name, an empty field, why.
 */
DIST_API size_t dist_list_variables(char *buffer, size_t size);

/*
 * Writes what exists under such a name, as above: a line "backend NAME yes|no SUMMARY OR REASON",
 * the same for a transport, or both. A module that this process has not loaded is loaded and probed
 * in a child, which gets 5 s; a line "lost NAME no REASON" says that it crashed or did not answer.
 * Only nccl is loaded here, if the process uses a GPU.
 */
DIST_API size_t dist_probe_name(const char *name, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: elements of a derived type as bytes, and back, by MPI. */
#include "preload/serve.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>

/*
 * MPI has our own communicator for it: an error is the call's, and no affair of MPI_COMM_SELF's
 * handler. MPI_Pack counts its bytes in an int: so many at a time.
 */
#define PACK_BYTES (1 << 30)

/* ---- an element that is longer ---- */

/* Persistent operations have all the other tags of the communicator. */
#define PACK_TAG 0

/* One element is received at a time, lest two threads get each other's. */
static pthread_mutex_t pack_lock = PTHREAD_MUTEX_INITIALIZER;

/* So many packed bytes, as a type. */
static int pack_whole(size_t size, MPI_Datatype *whole_p)
{
    const int lengths[2] = {(int)(size / PACK_BYTES), (int)(size % PACK_BYTES)};
    const MPI_Aint places[2] = {0, (MPI_Aint)(size - size % PACK_BYTES)};
    MPI_Datatype types[2] = {MPI_DATATYPE_NULL, MPI_PACKED};
    int code = PMPI_Type_contiguous(PACK_BYTES, MPI_PACKED, &types[0]);

    if (code != MPI_SUCCESS)
        return code;
    code = PMPI_Type_create_struct(2, lengths, places, types, whole_p);
    PMPI_Type_free(&types[0]);
    return code == MPI_SUCCESS ? PMPI_Type_commit(whole_p) : code;
}

/* As a message to this process itself, which may be as long as it likes. */
static int pack_long(const struct disti_layout *layout, char *memory, char *bytes, bool packs)
{
    MPI_Comm self = disti_preload.self;
    MPI_Datatype whole;
    int code = pack_whole(layout->size, &whole);

    if (code != MPI_SUCCESS)
        return code;
    pthread_mutex_lock(&pack_lock);
    code = packs ? PMPI_Sendrecv(memory, 1, layout->type, 0, PACK_TAG, bytes, 1, whole, 0, PACK_TAG,
                                 self, MPI_STATUS_IGNORE)
                 : PMPI_Sendrecv(bytes, 1, whole, 0, PACK_TAG, memory, 1, layout->type, 0, PACK_TAG,
                                 self, MPI_STATUS_IGNORE);
    pthread_mutex_unlock(&pack_lock);
    PMPI_Type_free(&whole);
    return code;
}

/* ---- all ---- */

static int pack_some(const struct disti_layout *layout, char *memory, char *bytes, int count,
                     bool packs)
{
    MPI_Comm self = disti_preload.self;
    int used = 0, size = count * (int)layout->size;

    return packs ? PMPI_Pack(memory, count, layout->type, bytes, size, &used, self)
                 : PMPI_Unpack(bytes, size, &used, memory, count, layout->type, self);
}

int disti_pack(const struct disti_layout *layout, char *memory, char *bytes, size_t count,
               bool packs)
{
    size_t most = layout->size < PACK_BYTES ? PACK_BYTES / layout->size : 1;
    int code = MPI_SUCCESS;

    while (count && code == MPI_SUCCESS) {
        int n = (int)(count < most ? count : most);

        code = layout->size > INT_MAX ? pack_long(layout, memory, bytes, packs)
                                      : pack_some(layout, memory, bytes, n, packs);
        memory = disti_layout_address(memory, n * layout->extent);
        bytes += (size_t)n * layout->size;
        count -= (size_t)n;
    }
    return code;
}

bool disti_pack_is_data_only(void)
{
    static const int given[3] = {0x01020304, 0, 0x05060708};
    static const int wanted[2] = {0x01020304, 0x05060708};
    char packed[sizeof(wanted)] = "";
    MPI_Datatype type;
    int used = 0;
    bool good = PMPI_Type_vector(2, 1, 2, MPI_INT, &type) == MPI_SUCCESS;

    if (!good)
        return false;
    good = PMPI_Type_commit(&type) == MPI_SUCCESS &&
           PMPI_Pack(given, 1, type, packed, sizeof(packed), &used, MPI_COMM_SELF) == MPI_SUCCESS &&
           used == (int)sizeof(wanted) && memcmp(packed, wanted, sizeof(wanted)) == 0;
    PMPI_Type_free(&type);
    return good;
}

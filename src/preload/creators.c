/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: the calls that make and free communicators. */
#include "preload/preload.h"

/* X(name, parameters, arguments): collective over comm, of which newcomm is made. */
#define CREATORS(X)                                                                                \
    X(Comm_dup, (MPI_Comm comm, MPI_Comm * newcomm), (comm, newcomm))                              \
    X(Comm_dup_with_info, (MPI_Comm comm, MPI_Info info, MPI_Comm * newcomm),                      \
      (comm, info, newcomm))                                                                       \
    X(Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *newcomm),                          \
      (comm, color, key, newcomm))                                                                 \
    X(Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *newcomm),       \
      (comm, type, key, info, newcomm))                                                            \
    X(Comm_create, (MPI_Comm comm, MPI_Group group, MPI_Comm * newcomm), (comm, group, newcomm))   \
    X(Cart_create,                                                                                 \
      (MPI_Comm comm, int dimensions, const int sizes[], const int periods[], int reorder,         \
       MPI_Comm *newcomm),                                                                         \
      (comm, dimensions, sizes, periods, reorder, newcomm))                                        \
    X(Cart_sub, (MPI_Comm comm, const int remain[], MPI_Comm *newcomm), (comm, remain, newcomm))   \
    X(Graph_create,                                                                                \
      (MPI_Comm comm, int nodes, const int index[], const int edges[], int reorder,                \
       MPI_Comm *newcomm),                                                                         \
      (comm, nodes, index, edges, reorder, newcomm))                                               \
    X(Dist_graph_create,                                                                           \
      (MPI_Comm comm, int nodes, const int sources[], const int degrees[],                         \
       const int destinations[], const int weights[], MPI_Info info, int reorder,                  \
       MPI_Comm *newcomm),                                                                         \
      (comm, nodes, sources, degrees, destinations, weights, info, reorder, newcomm))              \
    X(Dist_graph_create_adjacent,                                                                  \
      (MPI_Comm comm, int indegree, const int sources[], const int sourceweights[], int outdegree, \
       const int destinations[], const int destweights[], MPI_Info info, int reorder,              \
       MPI_Comm *newcomm),                                                                         \
      (comm, indegree, sources, sourceweights, outdegree, destinations, destweights, info,         \
       reorder, newcomm))

#define CREATORS_WORDS(...) __VA_ARGS__
#define CREATORS_DEFINE(name, parameters, arguments)                                               \
    int MPI_##name(CREATORS_WORDS parameters)                                                      \
    {                                                                                              \
        int code = PMPI_##name arguments;                                                          \
                                                                                                   \
        if (code == MPI_SUCCESS)                                                                   \
            disti_comm_adopt(comm, *newcomm);                                                      \
        return code;                                                                               \
    }
CREATORS(CREATORS_DEFINE)

/* Collective over the group only. */
int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *newcomm)
{
    int code = PMPI_Comm_create_group(comm, group, tag, newcomm);

    if (code == MPI_SUCCESS)
        disti_comm_adopt_apart(*newcomm);
    return code;
}

int MPI_Intercomm_merge(MPI_Comm comm, int high, MPI_Comm *newcomm)
{
    int code = PMPI_Intercomm_merge(comm, high, newcomm);

    if (code == MPI_SUCCESS)
        disti_comm_adopt_apart(*newcomm);
    return code;
}

/* MPI refuses what is not there. */
int MPI_Comm_free(MPI_Comm *comm)
{
    if (comm)
        disti_comm_release(*comm);
    return PMPI_Comm_free(comm);
}

/* Other than MPI_Comm_free it waits, for operations and for the other ranks. */
int MPI_Comm_disconnect(MPI_Comm *comm)
{
    if (comm) {
        disti_comm_finish(*comm);
        disti_comm_release(*comm);
    }
    return PMPI_Comm_disconnect(comm);
}

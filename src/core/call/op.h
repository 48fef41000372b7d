/* SPDX-License-Identifier: BSD-3-Clause */
/* Reduction operations that the program created. */
#ifndef DISTI_CORE_CALL_OP_H
#define DISTI_CORE_CALL_OP_H

#include <dist/transport.h>

/*
 * What the program's op is: a built-in one is itself, and *reduction_p NULL; a created one is
 * PREMUL_SUM or USER, and its reduction stays where it is until it is freed. ERR_INVALID_ARGUMENT
 * for one that was freed, for nonsense, and for PREMUL_SUM and USER by themselves. Thread-safe.
 */
dist_status disti_op_resolve(dist_op op, dist_op *kind_p,
                             const struct dist_reduction **reduction_p);

#endif

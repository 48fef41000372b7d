# SPDX-License-Identifier: BSD-3-Clause
"""The declarations of dist.h. Written by python/generate: change the header, then run it."""
from ctypes import CFUNCTYPE, Structure, c_bool, c_char_p, c_double, c_int, c_size_t
from ctypes import c_void_p

VERSION = "0.1.0"
STATUSES = {
    "OK": (0, "success"),
    "IN_PROGRESS": (1, "the operation is still in progress"),
    "ERR_INVALID_ARGUMENT": (-1, "invalid argument"),
    "ERR_UNSUPPORTED": (-2, "not supported by this backend"),
    "ERR_NO_MEMORY": (-3, "out of memory"),
    "ERR_SYSTEM": (-4, "a system call failed"),
    "ERR_TIMEOUT": (-5, "the operation timed out"),
    "ERR_PEER_LOST": (-6, "a rank was lost"),
    "ERR_MISMATCH": (-7, "the ranks called different operations"),
    "ERR_NO_BACKEND": (-8, "no such backend, or it cannot run here"),
    "ERR_RENDEZVOUS": (-9, "the ranks could not find each other"),
    "ERR_ADDRESS_IN_USE": (-10, "the address is already in use"),
    "ERR_ABI": (-11, "the module was built for another version of libdist"),
    "ERR_ABORTED": (-12, "the group was aborted after an earlier error"),
    "ERR_INTERNAL": (-13, "internal error in libdist, please report it"),
    "ERR_SCHEDULER": (-14, "this process was the job's scheduler, which is no rank"),
}
DTYPES = {
    "FLOAT32": (0, "float32", 4),
    "FLOAT64": (1, "float64", 8),
    "FLOAT16": (2, "float16", 2),
    "BFLOAT16": (3, "bfloat16", 2),
    "INT8": (4, "int8", 1),
    "UINT8": (5, "uint8", 1),
    "INT32": (6, "int32", 4),
    "UINT32": (7, "uint32", 4),
    "INT64": (8, "int64", 8),
    "UINT64": (9, "uint64", 8),
    "BOOL": (10, "bool", 1),
}
OPS = {
    "SUM": (0, "sum"),
    "AVG": (1, "avg"),
    "PROD": (2, "prod"),
    "MIN": (3, "min"),
    "MAX": (4, "max"),
    "BAND": (5, "band"),
    "BOR": (6, "bor"),
    "BXOR": (7, "bxor"),
    "PREMUL_SUM": (8, "premul_sum"),
    "USER": (9, "user"),
}
ANY_SOURCE = -1
TAG_MAX = 0x7fffffff
NO_COLOR = -1
OP_DYNAMIC = 0x40000000


class dist_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("backend", c_char_p),
        ("init_method", c_char_p),
        ("rank", c_int),
        ("world_size", c_int),
        ("local_rank", c_int),
        ("timeout_ms", c_int),
        ("log", c_void_p),
        ("log_arg", c_void_p),
        ("oob_all_gather", c_void_p),
        ("oob_arg", c_void_p),
        ("reproducible", c_bool),
        ("device", c_int),
        ("stream", c_void_p),
    ]


class dist_group_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("backend", c_char_p),
        ("timeout_ms", c_int),
        ("stream", c_void_p),
        ("meanwhile", c_void_p),
        ("meanwhile_arg", c_void_p),
    ]


dist_oob_all_gather_fn = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t)
dist_reduce_fn = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_int)
dist_work_fn = CFUNCTYPE(None, c_void_p, c_int)
FUNCTIONS = {
    "dist_version": (
        c_char_p,
        [],
    ),
    "dist_status_string": (
        c_char_p,
        [c_int],
    ),
    "dist_dtype_string": (
        c_char_p,
        [c_int],
    ),
    "dist_op_string": (
        c_char_p,
        [c_int],
    ),
    "dist_dtype_size": (
        c_size_t,
        [c_int],
    ),
    "dist_last_error": (
        c_char_p,
        [],
    ),
    "dist_init_process_group": (
        c_int,
        [c_void_p, c_void_p],
    ),
    "dist_destroy_process_group": (
        c_int,
        [c_void_p],
    ),
    "dist_set_timeout": (
        c_int,
        [c_void_p, c_int],
    ),
    "dist_abort": (
        c_int,
        [c_void_p],
    ),
    "dist_flight_dump": (
        c_int,
        [c_char_p],
    ),
    "dist_get_rank": (
        c_int,
        [c_void_p],
    ),
    "dist_get_world_size": (
        c_int,
        [c_void_p],
    ),
    "dist_get_local_rank": (
        c_int,
        [c_void_p],
    ),
    "dist_get_backend": (
        c_char_p,
        [c_void_p],
    ),
    "dist_new_group": (
        c_int,
        [c_void_p, c_void_p, c_int, c_void_p, c_void_p],
    ),
    "dist_split_group": (
        c_int,
        [c_void_p, c_int, c_int, c_void_p, c_void_p],
    ),
    "dist_dup_group": (
        c_int,
        [c_void_p, c_void_p, c_void_p],
    ),
    "dist_shrink": (
        c_int,
        [c_void_p, c_void_p, c_void_p],
    ),
    "dist_get_global_rank": (
        c_int,
        [c_void_p, c_int],
    ),
    "dist_get_group_rank": (
        c_int,
        [c_void_p, c_int],
    ),
    "dist_op_create": (
        c_int,
        [c_void_p, c_void_p, c_void_p],
    ),
    "dist_op_create_premul_sum": (
        c_int,
        [c_double, c_void_p],
    ),
    "dist_op_free": (
        c_int,
        [c_int],
    ),
    "dist_all_reduce": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int],
    ),
    "dist_all_reduce_async": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p],
    ),
    "dist_all_reduce_coalesced": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_int, c_int, c_int],
    ),
    "dist_all_reduce_coalesced_async": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, c_void_p],
    ),
    "dist_reduce": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_int],
    ),
    "dist_reduce_async": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, c_void_p],
    ),
    "dist_broadcast": (
        c_int,
        [c_void_p, c_void_p, c_size_t, c_int, c_int],
    ),
    "dist_broadcast_async": (
        c_int,
        [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p],
    ),
    "dist_barrier": (
        c_int,
        [c_void_p],
    ),
    "dist_barrier_async": (
        c_int,
        [c_void_p, c_void_p],
    ),
    "dist_monitored_barrier": (
        c_int,
        [c_void_p, c_int],
    ),
    "dist_all_gather": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_size_t, c_int],
    ),
    "dist_all_gather_async": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_void_p],
    ),
    "dist_all_gather_v": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int],
    ),
    "dist_all_gather_v_async": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p],
    ),
    "dist_reduce_scatter": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int],
    ),
    "dist_reduce_scatter_async": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p],
    ),
    "dist_reduce_scatter_v": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int],
    ),
    "dist_reduce_scatter_v_async": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int, c_void_p],
    ),
    "dist_gather": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int],
    ),
    "dist_gather_async": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p],
    ),
    "dist_gather_v": (
        c_int,
        [c_void_p, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p, c_int, c_int],
    ),
    "dist_gather_v_async": (
        c_int,
        [c_void_p, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p, c_int, c_int, c_void_p],
    ),
    "dist_scatter": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int],
    ),
    "dist_scatter_async": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p],
    ),
    "dist_scatter_v": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int],
    ),
    "dist_scatter_v_async": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p],
    ),
    "dist_all_to_all": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_size_t, c_int],
    ),
    "dist_all_to_all_async": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_void_p],
    ),
    "dist_all_to_all_v": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int],
    ),
    "dist_all_to_all_v_async": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p],
    ),
    "dist_send": (
        c_int,
        [c_void_p, c_void_p, c_size_t, c_int, c_int, c_int],
    ),
    "dist_recv": (
        c_int,
        [c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, c_void_p],
    ),
    "dist_isend": (
        c_int,
        [c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, c_void_p],
    ),
    "dist_irecv": (
        c_int,
        [c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, c_void_p, c_void_p],
    ),
    "dist_group_start": (
        c_int,
        [],
    ),
    "dist_group_end": (
        c_int,
        [],
    ),
    "dist_wait": (
        c_int,
        [c_void_p],
    ),
    "dist_wait_for": (
        c_int,
        [c_void_p, c_int],
    ),
    "dist_test": (
        c_int,
        [c_void_p, c_void_p],
    ),
    "dist_on_complete": (
        c_int,
        [c_void_p, c_void_p, c_void_p],
    ),
    "dist_all_reduce_init": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p],
    ),
    "dist_start": (
        c_int,
        [c_void_p],
    ),
    "dist_work_free": (
        c_int,
        [c_void_p],
    ),
    "dist_set_stream": (
        c_int,
        [c_void_p, c_void_p],
    ),
    "dist_alloc": (
        c_int,
        [c_void_p, c_size_t, c_void_p],
    ),
    "dist_free": (
        c_int,
        [c_void_p, c_void_p],
    ),
    "dist_shared_alloc": (
        c_int,
        [c_void_p, c_size_t, c_void_p],
    ),
    "dist_shared_free": (
        c_int,
        [c_void_p],
    ),
    "dist_register": (
        c_int,
        [c_void_p, c_void_p, c_size_t],
    ),
    "dist_unregister": (
        c_int,
        [c_void_p, c_void_p],
    ),
    "dist_list_backends": (
        c_size_t,
        [c_void_p, c_size_t],
    ),
}

# SPDX-License-Identifier: BSD-3-Clause
"""The libraries that tensor_parallel.py compares.

find_NAME runs in the parent process and raises an exception if the library cannot be used. open_NAME
runs on every rank with the result of find_NAME. It returns functions for the operations that the
library has; their arguments are output and input. all_reduce is in place. A function that does not
support all dtypes has an attribute `dtypes`.
"""
import ctypes
import importlib.util
import os
import pathlib
import platform
import subprocess
import tempfile

import torch
import torch.distributed as dist

from libdist._library import lib


def open_group(group):
    return {
        "all_reduce": lambda out, x: dist.all_reduce(x, group=group),
        "all_gather": lambda out, x: dist.all_gather_into_tensor(out, x, group=group),
        "reduce_scatter": lambda out, x: dist.reduce_scatter_tensor(out, x, group=group),
    }


def open_direct():
    handle, number = dist.group.WORLD._group._handle, {torch.float32: 0, torch.bfloat16: 3}
    return {
        "all_reduce": lambda out, x: lib.dist_all_reduce(
            handle, x.data_ptr(), out.data_ptr(), x.numel(), number[x.dtype], 0
        ),
        "all_gather": lambda out, x: lib.dist_all_gather(
            handle, x.data_ptr(), out.data_ptr(), x.numel(), number[x.dtype]
        ),
        "reduce_scatter": lambda out, x: lib.dist_reduce_scatter(
            handle, x.data_ptr(), out.data_ptr(), out.numel(), number[x.dtype], 0
        ),
    }


def open_gloo(_):
    return open_group(dist.new_group(backend="gloo"))


def find_deepspeed():
    from deepspeed.ops.op_builder import ShareMemCommBuilder

    module = ShareMemCommBuilder().load(verbose=False)
    if module.vector_kernel_level() < 1:
        raise RuntimeError("the CPU has no AVX2")
    return module.__file__


def open_deepspeed(path):
    spec = importlib.util.spec_from_file_location("deepspeed_shm_comm", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    os.environ["LOCAL_SIZE"] = str(dist.get_world_size())
    module.initialize(dist.get_world_size(), dist.get_rank())

    def all_reduce(out, x):
        torch.ops.deepspeed.inference_all_reduce_(x)

    if module.vector_kernel_level() < 2:  # without AVX-512
        all_reduce.dtypes = [torch.float32]
    return {"all_reduce": all_reduce}


def find_vllm():
    spec = importlib.util.find_spec("vllm")
    if spec is None:
        raise ImportError("No module named 'vllm'")
    flags = pathlib.Path("/proc/cpuinfo").read_text() if platform.machine() == "x86_64" else "avx512_bf16"
    name = "_C" if "avx512_bf16" in flags else "_C_AVX512" if "avx512f" in flags else "_C_AVX2"
    path = os.path.join(spec.submodule_search_locations[0], name + ".abi3.so")
    torch.ops.load_library(path)
    if not hasattr(torch.ops._C, "init_shm_manager"):
        raise RuntimeError(f"{name} has no shared memory kernels")
    return path


def open_vllm(path):
    torch.ops.load_library(path)
    name, threads = f"libdist-bench-{os.environ['MASTER_PORT']}", torch.get_num_threads()
    handle = torch.ops._C.init_shm_manager(name, dist.get_world_size(), dist.get_rank(), threads)
    dist.barrier()
    torch.ops._C.join_shm_manager(handle, name)
    dist.barrier()
    return {
        "all_reduce": lambda out, x: torch.ops._C.shm_allreduce(handle, x),
        "all_gather": lambda out, x: torch.ops._C.shm_all_gather(handle, x, out),
    }


def find_oneccl():
    root = os.environ.get("CCL_ROOT")
    if not root:
        raise RuntimeError("CCL_ROOT is not set")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "oneccl.cc")
    path = os.path.join(tempfile.mkdtemp(prefix="libdist-bench-"), "oneccl.so")
    command = ["c++", "-std=c++17", "-O2", "-shared", "-fPIC", source, f"-I{root}/include", "-o", path]
    subprocess.run([*command, f"{root}/lib/libccl.so", f"-Wl,-rpath,{root}/lib"], check=True)
    return path, f"{root}/lib/libfabric.so.1"


def open_oneccl(paths):
    path, fabric = paths
    if os.path.exists(fabric):
        ctypes.CDLL(fabric, ctypes.RTLD_GLOBAL)  # oneCCL opens it by name
    if 2 * dist.get_world_size() > len(os.sched_getaffinity(0)):
        os.environ.setdefault("CCL_YIELD", "sched_yield")  # its worker threads share CPUs with the ranks
    ccl = ctypes.CDLL(path)
    address = ctypes.create_string_buffer(ccl.address_size())
    if dist.get_rank() == 0:
        ccl.create_store(address)
    addresses = [address.raw]
    dist.broadcast_object_list(addresses, 0)
    ccl.join(dist.get_world_size(), dist.get_rank(), addresses[0])

    def call(function):
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        bf16 = torch.bfloat16
        return lambda out, x: function(x.data_ptr(), out.data_ptr(), min(out.numel(), x.numel()), x.dtype == bf16)

    return {name: call(getattr(ccl, name)) for name in ("all_reduce", "all_gather", "reduce_scatter")}


OTHERS = {
    "gloo": (lambda: None, open_gloo),
    "deepspeed": (find_deepspeed, open_deepspeed),
    "vllm": (find_vllm, open_vllm),
    "oneccl": (find_oneccl, open_oneccl),
}

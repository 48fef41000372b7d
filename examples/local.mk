# SPDX-License-Identifier: BSD-3-Clause
# Example programs. README.md shows the first, docs/embedding.md the other ones.
noinst_PROGRAMS += examples/ddp
examples_ddp_SOURCES = examples/ddp.c
examples_ddp_LDADD = libdist.la

noinst_PROGRAMS += examples/elastic
examples_elastic_SOURCES = examples/elastic.c
examples_elastic_LDADD = libdist.la

noinst_PROGRAMS += examples/hello_all_reduce
examples_hello_all_reduce_SOURCES = examples/hello_all_reduce.c
examples_hello_all_reduce_LDADD = libdist.la

noinst_PROGRAMS += examples/tensor_parallel
examples_tensor_parallel_SOURCES = examples/tensor_parallel.c
examples_tensor_parallel_LDADD = libdist.la -lm

examplesdir = $(docdir)/examples
dist_examples_DATA = \
	examples/CMakeLists.txt \
	examples/ddp.c \
	examples/elastic.c \
	examples/embed_mpi_comm.c \
	examples/embed_oob.c \
	examples/hello_all_reduce.c \
	examples/tensor_parallel.c \
	examples/trainer.c \
	examples/trainer_single.c

clusterdir = $(examplesdir)/cluster
dist_cluster_DATA = \
	examples/cluster/README.md \
	examples/cluster/kubernetes-job.yaml \
	examples/cluster/mpi-operator-job.yaml \
	examples/cluster/train.sbatch

pytorchdir = $(examplesdir)/pytorch
dist_pytorch_DATA = \
	examples/pytorch/README.md \
	examples/pytorch/accumulate.py \
	examples/pytorch/ddp_tutorial.py \
	examples/pytorch/imagenet.py \
	examples/pytorch/spawn.py

plugin_minimaldir = $(examplesdir)/plugin-minimal
dist_plugin_minimal_DATA = \
	examples/plugin-minimal/Makefile \
	examples/plugin-minimal/README.md \
	examples/plugin-minimal/minimal.c \
	examples/plugin-minimal/relay.c

plugin_hccldir = $(examplesdir)/plugin-hccl
dist_plugin_hccl_DATA = \
	examples/plugin-hccl/Makefile \
	examples/plugin-hccl/README.md \
	examples/plugin-hccl/hccl.h \
	examples/plugin-hccl/hccl_abi.h \
	examples/plugin-hccl/hccl_backend.c \
	examples/plugin-hccl/hccl_call.c \
	examples/plugin-hccl/hccl_issue.c \
	examples/plugin-hccl/hccl_library.c \
	examples/plugin-hccl/hccl_memory.c \
	examples/plugin-hccl/hccl_open.c \
	examples/plugin-hccl/hccl_pair.c \
	examples/plugin-hccl/hccl_shape.c \
	examples/plugin-hccl/hccl_worker.c

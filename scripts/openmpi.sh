# SPDX-License-Identifier: BSD-3-Clause
# Environment for Open MPI jobs on one machine: allows more ranks than cores and running as root, and uses
# only the loopback network and no ssh. Sourced by sh and bash.

export OMPI_MCA_rmaps_base_oversubscribe=1                  # Open MPI 4
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe # Open MPI 5
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_oob_tcp_if_include=lo OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_plm_rsh_agent=false

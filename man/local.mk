# SPDX-License-Identifier: BSD-3-Clause
# What people read: man pages, README, documents, and the programs that they show.
dist_man_MANS += man/dist.7 man/dist_info.1 man/libdist.3
dist_doc_DATA += README.md docs/ARCHITECTURE.md docs/embedding.md
EXTRA_DIST += docs/STYLE.md

include examples/local.mk

# SPDX-License-Identifier: BSD-3-Clause
# Installed documents. They keep their directories, so that their links to each other work.
nobase_dist_doc_DATA = \
	docs/ARCHITECTURE.md \
	docs/GLOSSARY.md \
	docs/STYLE.md \
	docs/architecture.svg \
	docs/backends.md \
	docs/building.md \
	docs/embedding.md \
	docs/failures.md \
	docs/faq.md \
	docs/footprint.md \
	docs/launching.md \
	docs/performance/README.md \
	docs/performance/all_reduce-2-medium.svg \
	docs/performance/gpu.md \
	docs/performance/unchanged.md \
	docs/performance/why.md \
	docs/python.md \
	docs/reliability.md \
	docs/report.png \
	docs/reports.md \
	docs/shrinking.md \
	docs/slow.md \
	docs/topology.svg \
	docs/training.md \
	docs/trees.svg \
	docs/writing-a-backend.md \
	packaging/README.md

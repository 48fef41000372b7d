# SPDX-License-Identifier: BSD-3-Clause
# make site: writes the documents and man pages as HTML to site/ in the build directory.
EXTRA_DIST += \
	docs/performance \
	docs/site/check_links.py \
	docs/site/links.lua \
	docs/site/style.css \
	docs/site/template.html \
	scripts/site

site: bench/draw
	builddir='$(abs_top_builddir)' $(BASH) $(srcdir)/scripts/site site
clean-local: clean-site
clean-site:
	rm -rf site
.PHONY: site clean-site

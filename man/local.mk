# SPDX-License-Identifier: BSD-3-Clause
# Man pages, README and other documents, and the example programs.
dist_man_MANS += \
	man/dist-nccl.7 \
	man/dist-tuning.7 \
	man/dist-ucx.7 \
	man/dist.7 \
	man/dist_backend.3 \
	man/dist_bench.1 \
	man/dist_info.1 \
	man/dist_sim.1 \
	man/dist_transport.3 \
	man/distrun.1 \
	man/libdist.3
# Generated pages: the synopsis comes from the public headers, the table of dist-env(7) from variables.def.
made_pages = \
	man/dist-env.7 \
	man/dist_abort.3 \
	man/dist_all_gather.3 \
	man/dist_all_reduce.3 \
	man/dist_alloc.3 \
	man/dist_broadcast.3 \
	man/dist_ddp.3 \
	man/dist_flight_dump.3 \
	man/dist_init_process_group.3 \
	man/dist_last_error.3 \
	man/dist_new_group.3 \
	man/dist_op_create.3 \
	man/dist_register.3 \
	man/dist_sampler.3 \
	man/dist_send.3 \
	man/dist_set_stream.3 \
	man/dist_shared_alloc.3 \
	man/dist_spawn.3 \
	man/dist_wait.3 \
	man/dist_zero.3
nodist_man_MANS = $(made_pages)
CLEANFILES += $(made_pages)
variable_rows = src/base/settings/variables.def
$(made_pages): man/synopsis.awk $(distinclude_HEADERS) $(variable_rows)
SUFFIXES = .3.in .3 .7.in .7
make_page = $(AM_V_GEN)$(MKDIR_P) man && cd $(srcdir) && \
    $(AWK) -f man/synopsis.awk $(distinclude_HEADERS) $(variable_rows) $@.in >'$(abs_builddir)/$@.new' && \
    mv '$(abs_builddir)/$@.new' '$(abs_builddir)/$@'
.3.in.3:
	$(make_page)
.7.in.7:
	$(make_page)
dist_doc_DATA += CONTRIBUTING.md README.md README.zh-CN.md
EXTRA_DIST += $(made_pages:=.in) man/links.sh man/synopsis.awk

# A page may describe several functions: installs a file for each further name, which refers to the page.
install-data-hook:
	$(BASH) $(srcdir)/man/links.sh '$(DESTDIR)$(man3dir)' $(srcdir)/man/*.3 $(srcdir)/man/*.3.in
uninstall-hook:
	$(BASH) $(srcdir)/man/links.sh --remove '$(DESTDIR)$(man3dir)' $(srcdir)/man/*.3 $(srcdir)/man/*.3.in

include examples/local.mk

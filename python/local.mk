# SPDX-License-Identifier: BSD-3-Clause
# The Python package. `make wheel` builds a wheel that contains the library and its modules; `pip install
# ./python` uses an installed library.
python_files = \
	python/README.md \
	python/bench/compare.py \
	python/bench/libraries.py \
	python/bench/oneccl.cc \
	python/bench/tensor_parallel.py \
	python/generate \
	python/libdist/__init__.py \
	python/libdist/_header.py \
	python/libdist/_library.py \
	python/libdist/_programs.py \
	python/libdist/arguments.py \
	python/libdist/buffers.py \
	python/libdist/config.py \
	python/libdist/errors.py \
	python/libdist/group.py \
	python/libdist/info.py \
	python/libdist/memory.py \
	python/libdist/py.typed \
	python/libdist/spawning.py \
	python/libdist/torch/__init__.py \
	python/libdist/torch/_buckets.py \
	python/libdist/torch/_collectives.py \
	python/libdist/torch/_cuda.py \
	python/libdist/torch/_cuda_work.py \
	python/libdist/torch/_eager.py \
	python/libdist/torch/_group.py \
	python/libdist/torch/_monitor.py \
	python/libdist/torch/_profiling.py \
	python/libdist/torch/_running.py \
	python/libdist/torch/_shared.py \
	python/libdist/torch/_tell.py \
	python/libdist/torch/_tensors.py \
	python/libdist/torch/_work.py \
	python/libdist/work.py \
	python/libdist/world.py \
	python/libdist_torch.py \
	python/programs.toml \
	python/pyproject.toml \
	python/setup.py \
	python/tests/collectives.py \
	python/tests/test_arguments.py \
	python/tests/test_bad_input.py \
	python/tests/test_buffers.py \
	python/tests/test_header.py \
	python/tests/test_library.py \
	python/tests/torch_c10d.py \
	python/tests/torch_compile.py \
	python/tests/torch_collectives.py \
	python/tests/torch_cuda.py \
	python/tests/torch_cuda_ddp.py \
	python/tests/torch_ddp.py \
	python/tests/torch_fsdp.py \
	python/tests/torch_killed.py \
	python/tests/torch_replace.py \
	python/tests/torch_standin.py
EXTRA_DIST += $(python_files)

PYTHON3 = python3
PATCHELF = patchelf
# Licences of libraries that are linked statically, for the wheel.
WHEEL_LICENSES =
wheel_programs = dist_bench dist_info distrun
wheel_preload = $(openmpi_preload_LTLIBRARIES) $(mpich_preload_LTLIBRARIES)

# libtool links some of the files with paths of the build tree. In the wheel, their paths are relative.
wheel: libdist.la $(module_LTLIBRARIES) $(wheel_preload) $(wheel_programs)
	@$(PATCHELF) --version >/dev/null || { echo "make wheel needs patchelf. On Debian: apt-get install patchelf" >&2; exit 1; }
	rm -rf wheel && $(MKDIR_P) wheel/libdist/bin wheel/libdist/dist wheel/libdist/include/dist
	cp $(srcdir)/python/setup.py $(srcdir)/python/README.md wheel/
	cat $(srcdir)/python/pyproject.toml $(srcdir)/python/programs.toml >wheel/pyproject.toml
	cp $(srcdir)/LICENSE $(WHEEL_LICENSES) wheel/
	cp -R $(srcdir)/python/libdist $(srcdir)/python/libdist_torch.py wheel/ && find wheel -name __pycache__ -exec rm -r {} +
	cp .libs/libdist.so.0 wheel/libdist/
	for header in $(distinclude_HEADERS); do cp $(srcdir)/$$header wheel/libdist/include/dist/ || exit; done
	for module in .libs/dist_*.so; do [ ! -e "$$module" ] || cp "$$module" wheel/libdist/dist/; done
	for program in $(wheel_programs); do \
	    if [ -e .libs/$$program ]; then file=.libs/$$program; else file=$$program; fi; \
	    cp $$file wheel/libdist/bin/ && $(PATCHELF) --set-rpath '$$ORIGIN/..' wheel/libdist/bin/$$program || exit; \
	done
	for module in $(wheel_preload); do \
	    folder=$${module%/*} && mpi=$${folder##*/} && $(MKDIR_P) wheel/libdist/dist/$$mpi && \
	    cp $$folder/.libs/libdist_mpi.so wheel/libdist/dist/$$mpi/ && \
	    $(PATCHELF) --set-rpath '$$ORIGIN/../..' wheel/libdist/dist/$$mpi/libdist_mpi.so || exit; \
	done
	$(PYTHON3) -m pip wheel -q --no-deps --no-build-isolation --no-index -w . ./wheel
	rm -r wheel
	@ls libdist-*.whl
CLEANFILES += libdist-*.whl
.PHONY: wheel

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
	python/libdist/arguments.py \
	python/libdist/buffers.py \
	python/libdist/errors.py \
	python/libdist/group.py \
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

wheel: libdist.la $(module_LTLIBRARIES)
	rm -rf wheel && $(MKDIR_P) wheel/libdist/dist
	cp -R $(srcdir)/python/pyproject.toml $(srcdir)/python/setup.py $(srcdir)/python/README.md wheel/
	cp -R $(srcdir)/python/libdist $(srcdir)/python/libdist_torch.py wheel/ && find wheel -name __pycache__ -exec rm -r {} +
	cp .libs/libdist.so.0 wheel/libdist/
	for module in .libs/dist_*.so; do [ ! -e "$$module" ] || cp "$$module" wheel/libdist/dist/; done
	$(PYTHON3) -m pip wheel -q --no-deps --no-build-isolation --no-index -w . ./wheel
	@ls libdist-*.whl
.PHONY: wheel

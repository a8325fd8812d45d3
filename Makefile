# make demo   fit LeNet on the embedded MNIST into 6 KB, and print it beside the dense network: minutes
# make test   every check, as CI runs it: minutes (CONTRIBUTING.md says what a test may take)
# make test-full   the same with the long tests, the large grids and many more random examples: most of an hour
# make docs   the documents and the Python reference as a site, build/site/index.html
# make bench  everything in docs/BENCHMARKS.md measured again, against the peers: more than an hour
#             (DEEPSPARSE=old/bin/python: with DeepSparse, which needs an environment of its own, docs/DEPLOYING.md)
# make fuzz   damaged inputs through every reader, random tensors through the projection, then damaged model files through
#             the core under sanitizers
# make sanitize   the core's own test drivers under the address, undefined-behaviour and thread sanitizers
# make test-boards   exported C on emulated microcontrollers; installs qemu and the compilers by apt where it may
# Each sets up .venv by itself: Python 3.11 or newer and a C++ compiler are all that is needed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/kernels/* src/micro/*)
BOARD_TOOLS := qemu-system-arm qemu-system-misc gcc-arm-none-eabi libnewlib-arm-none-eabi gcc-riscv64-unknown-elf
CORES := $(shell nproc 2> /dev/null || echo 2)
REQUIREMENTS := $(BIN)/python -c "import sys, tomllib; p = tomllib.load(open('pyproject.toml', 'rb')); \
  lists = p['project']['optional-dependencies'] | {'build': p['build-system']['requires'], 'run': p['project']['dependencies']}; \
  print(*(r for name in sys.argv[1:] for r in lists[name]), sep='\n')"

INSTALL := $(BIN)/python tools/install_packages.py

# Packages and this one are compiled to byte code when first imported, for all the processes that follow.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
MAKEFLAGS += --jobs=2

# Two test processes on two cores: more threads in each would only wait for one another. Either takes over what the
# other has left, and each begins with tests that lie together, so that they share their fixtures.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: demo test tests test-full test-boards lint style types docs bench fuzz sanitize clean

demo: $(VENV)/trainers $(VENV)/installed
	@echo 'fitting LeNet, and a dense LeNet to compare with: some minutes'
	mkdir -p runs
	$(BIN)/membound fit lenet --data mnist --budget 6KB --steps 2500 --weight-decay 1e-4 --out runs/lenet.safetensors
	@echo 'Next: runs/lenet.report.html shows it in pictures, docs/YOUR_OWN_MODEL.md fits a network of your own.'

# The type checker is one process for half a minute: it runs beside the tests, not before them.
test: types tests

tests: $(VENV)/packages $(VENV)/installed style
	$(PYTEST) -m "not full"

test-full: $(VENV)/packages $(VENV)/installed lint
	$(PYTEST) --hypothesis-profile=full

test-boards: $(VENV)/packages $(VENV)/installed
	@command -v qemu-system-arm qemu-system-riscv32 arm-none-eabi-gcc riscv64-unknown-elf-gcc > /dev/null || \
	  apt-get install -y $(BOARD_TOOLS) || echo "install them, or boards are left out: $(BOARD_TOOLS)"
	$(BIN)/python -m pytest tests/micro/test_micro_boards.py --hypothesis-profile=full

lint: style types

style: $(VENV)/packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: style
	$(BIN)/mypy

# The reference is read from the source: neither torch nor a compiler is needed.
docs: $(VENV)/docs
	PATH=$(BIN):$$PATH $(BIN)/mkdocs build --strict
	@echo build/site/index.html

fuzz: $(VENV)/packages $(VENV)/installed
	$(BIN)/python fuzz/readers.py --seconds $(or $(SECONDS),10)
	$(BIN)/python fuzz/projection.py
	fuzz/under_asan.sh files --count $(or $(COUNT),20000)

# Of the drivers everything, and with the thread sanitizer what is concurrent; `make test` replays networks
# under the first, and has the pool under both.
sanitize: $(VENV)/packages $(VENV)/installed
	$(BIN)/python -m pytest tests/test_kernels.py -k "sanitizers and not (thread and everything)"

# First the few packages that the core is built with; then the core is compiled while those that train are unpacked, which
# is all that the demo waits for, and a change in src/kernels resolves nothing again. Byte code is written as modules are
# imported: of all packages it takes a minute.
$(VENV)/installed: $(VENV)/builders $(SOURCES)
	@echo 'compiling the kernels'
	CMAKE_BUILD_PARALLEL_LEVEL=$(CORES) $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/builders: pyproject.toml constraints.txt | $(VENV)/bin
	$(REQUIREMENTS) build > $@.txt
	$(INSTALL) $@.txt cmake
	touch $@

$(VENV)/trainers: $(VENV)/builders
	@echo 'installing torch and what else trains networks: a minute or more'
	$(REQUIREMENTS) run train > $@.txt
	$(INSTALL) $@.txt onnxruntime onnx
	touch $@

$(VENV)/packages: $(VENV)/trainers
	$(REQUIREMENTS) build run train paper dev > $@.txt
	$(INSTALL) $@.txt
	touch $@

$(VENV)/docs: pyproject.toml | $(VENV)/bin
	$(REQUIREMENTS) docs > $@.txt
	$(BIN)/python -m pip install --quiet -r $@.txt
	touch $@

# uv takes a third of the time that pip takes for so many packages. Where there is no uv, a new pip: the one that comes
# with Python may be years old, and those before 25 take twice as long.
$(VENV)/bin:
	$(PYTHON) -m venv $(VENV)
	-$(BIN)/python -m pip install --quiet --no-compile uv || $(BIN)/python -m pip install --quiet --no-compile 'pip>=25'

bench: $(VENV)/packages $(VENV)/installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/deployment.py --layers $(if $(SKIMCAFFE),--skimcaffe $(SKIMCAFFE)) \
	  $(if $(DEEPSPARSE),--python deepsparse=$(DEEPSPARSE))
	$(BIN)/python benchmarks/training_peers.py lenet mnist
	if $(BIN)/membound data cifar10 > /dev/null; then $(BIN)/python benchmarks/training_peers.py cifar10_quick cifar10 \
	  --bytes 40960 --steps 500 --out results/training-peers-quick.json; fi
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python tools/benchmarks_page.py

clean:
	rm -rf $(VENV) build dist

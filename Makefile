# make demo   fit LeNet on the embedded MNIST into 20 KiB, and print it beside the dense network
# make test   every check, as CI runs it
# make docs   the documents and the Python reference as a site, build/site/index.html
# make bench  everything in docs/BENCHMARKS.md measured again, against the peers: more than an hour
#             (DEEPSPARSE=old/bin/python: with DeepSparse, which needs an environment of its own, docs/DEPLOYING.md)
# make fuzz   damaged inputs through every reader, then damaged model files through the core under sanitizers
# make sanitize   the core's own test drivers under the address, undefined-behaviour and thread sanitizers
# Each sets up .venv by itself: Python 3.11 or newer and a C++ compiler are all that is needed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/kernels/*)

# Two test processes on two cores: more threads in each would only wait for one another.
.PHONY: demo test test-full lint docs bench fuzz sanitize clean

demo: $(VENV)/installed
	mkdir -p runs
	$(BIN)/membound fit lenet --data mnist --budget 20KiB --steps 2800 --weight-decay 1e-4 --out runs/lenet.safetensors

test: $(VENV)/installed lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not full"

test-full: $(VENV)/installed lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The reference is read from the source: neither torch nor a compiler is needed.
docs: $(VENV)/docs
	PATH=$(BIN):$$PATH $(BIN)/mkdocs build --strict
	@echo build/site/index.html

fuzz: $(VENV)/installed
	$(BIN)/python benchmarks/fuzz_readers.py --seconds $(or $(SECONDS),10)
	benchmarks/fuzz_under_asan.sh files --count $(or $(COUNT),20000)

# Of the drivers everything, and with the thread sanitizer what is concurrent; `make test` has the first of the two,
# and the pool under both.
sanitize: $(VENV)/installed
	$(BIN)/python -m pytest tests/test_kernels.py -k "sanitizers and not everything"

$(VENV)/installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[train,dev]'
	touch $@

$(VENV)/docs: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'], sep='\n')" > $@.txt
	$(BIN)/python -m pip install --quiet -r $@.txt
	touch $@

bench: $(VENV)/installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/deployment.py $(if $(SKIMCAFFE),--skimcaffe $(SKIMCAFFE)) \
	  $(if $(DEEPSPARSE),--python deepsparse=$(DEEPSPARSE))
	$(BIN)/python benchmarks/training_peers.py lenet mnist
	if $(BIN)/membound data cifar10 > /dev/null; then $(BIN)/python benchmarks/training_peers.py cifar10_quick cifar10 \
	  --bytes 40960 --steps 500 --out results/training-peers-quick.json; fi
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/benchmarks_page.py

clean:
	rm -rf $(VENV) build dist

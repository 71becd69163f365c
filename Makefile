# The two commands of the README are `make all` and `make test`; each does its own set-up on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: all validate twice test lint audit chaos soak fuzz report setup setup-dev schema lock clean cluster-test container-test gateway-test examples

all: setup
	$(BIN)/snakemake --cores 1 all

# A file of tests at a time in each of four processes: many tests mostly wait, timed tests run alone (tests/conftest.py).
test: setup-dev
	$(BIN)/python -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder

lint: setup-dev
	$(BIN)/ruff check scripts tests benchmarks
	$(BIN)/ruff format --check scripts tests benchmarks
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/mypy

# Random faults, many users for long, any bytes into every reader (docs/reliability.md has what was found).
chaos: setup-dev
	$(BIN)/python benchmarks/faults/configurations.py --faults 2000
	$(BIN)/python benchmarks/faults/keeping.py --faults 10000
	$(BIN)/python benchmarks/faults/chaos.py --faults 10000

soak: setup-dev
	$(BIN)/python benchmarks/faults/soak.py --minutes 30 --users 64

fuzz: setup-dev
	$(PIP) install --require-hashes --only-binary :all: -r benchmarks/faults/atheris.lock
	$(BIN)/python benchmarks/faults/fuzz.py --seconds 600 --corpus results/fuzz

# Known weaknesses of the locked packages (needs uv and internet access).
audit:
	for lock in envs/workflow.lock envs/dev.lock envs/llama-cpp.lock; do uvx pip-audit --strict --disable-pip --requirement $$lock || exit 1; done

report: setup
	$(BIN)/snakemake --cores 1 --report results/report.zip

setup: $(VENV)/.workflow
setup-dev: $(VENV)/.dev

# Install a lock, and print each file as it comes; what pip complains about is printed whole. Since a pipe ends with the
# status of its last command, a file says whether pip succeeded.
# Wheels only, so that nothing is compiled; connection-pool (pure Python) has no wheel.
define locked
@rm -f $(VENV)/.locked
@($(BIN)/python -m pip --disable-pip-version-check install --require-hashes --only-binary :all: --no-binary connection-pool -r $(1) \
	&& touch $(VENV)/.locked) | sed -nE 's,^ *(Downloading|Using cached|Processing) (.*/)?([^ ]+[.](whl|gz)) *(\([0-9.]+ [kMG]?B\))?.*,  \3 \5,p; s/^Installing .*/  unpacking them/p'
@test -e $(VENV)/.locked
endef

# Our own package is a second pip call: pip refuses hashes and `-e .` together.
$(VENV)/.workflow: envs/workflow.lock pyproject.toml | $(BIN)/python
	@echo "servebench: installing the locked packages into $(VENV) (about a minute, 850 MB)"
	$(call locked,envs/workflow.lock)
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.workflow envs/dev.lock
	@echo "servebench: installing the test tools into $(VENV)"
	$(call locked,envs/dev.lock)
	@touch $@

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "servebench needs Python 3.11 or newer, and '$(PYTHON)' was not found; install it or set PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "servebench needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) -V 2>&1); set PYTHON=python3.11 or newer"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "servebench needs Python's venv module: on Debian or Ubuntu, install the package python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# After a change of configuration/sections.py: config/schema.yaml and the tables of keys in config/README.md. After one of
# tables/catalogue.py or tables/published/: docs/tables.md and docs/schemas/. After one of a test's mark `outcome`: the table of
# docs/reliability.md.
schema: setup
	$(BIN)/python -c 'from servebench.configuration import schema; schema.write()'
	$(BIN)/python -c 'from servebench.tables import columns, published; columns.write(); published.write_schemas()'
	$(BIN)/python tests/outcomes.py

# New versions: edit pyproject.toml or envs/*.in, then `make lock` (needs uv on the PATH).
COMPILE := uv pip compile --python-version 3.11 --generate-hashes --quiet --no-header --no-annotate
LOCK := $(COMPILE) --universal
lock:
	$(LOCK) --extra workflow --output-file envs/workflow.lock pyproject.toml
	$(LOCK) --extra workflow --extra dev --constraints envs/workflow.lock --output-file envs/dev.lock pyproject.toml
	$(LOCK) --output-file envs/llama-cpp.lock envs/llama-cpp.in
	$(COMPILE) --python-platform x86_64-manylinux_2_31 --only-binary :all: --output-file envs/vllm-cuda.lock envs/vllm-cuda.in
	$(LOCK) --output-file tests/engine/litellm.lock tests/engine/litellm.in
	$(LOCK) --output-file benchmarks/faults/atheris.lock benchmarks/faults/atheris.in

# How often claims of leaders, differences and choices are false (docs/figures.md), and answers of a search for a capacity
# (docs/benchmarks.md) (an hour and a half).
validate: setup-dev
	$(BIN)/python benchmarks/verdicts/error_rates.py --pages 1000
	$(BIN)/python benchmarks/verdicts/choices.py --pages 300
	$(BIN)/python benchmarks/capacity/random_servers.py --servers 1000
	$(BIN)/python benchmarks/capacity/open_servers.py --servers 1000

# Search the quick start's settings twice on llama.cpp's server: do the answers overlap (docs/benchmarks.md; an hour)?
twice: setup-dev
	$(BIN)/python benchmarks/capacity/twice.py --out results/twice

clean:
	rm -rf $(VENV) build *.egg-info scripts/*.egg-info

# The tests on a real SLURM, started and stopped around them (Debian, as root).
cluster-test: setup-dev
	tests/slurm/up.sh
	$(BIN)/python -m pytest tests/cluster; status=$$?; tests/slurm/down.sh; exit $$status

# LiteLLM's proxy (480 MB) before a server; prints its delay beside the direct one (docs/engines.md).
gateway-test: setup-dev
	SERVEBENCH_TEST_LITELLM=1 $(BIN)/python -m pytest -s tests/engine/test_litellm.py

# Every configuration that the documentation prints, as it stands (docs/experiments.md has how long that took).
examples: setup-dev
	EXAMPLES=1 $(BIN)/python -m pytest -s -v tests/engine/test_examples.py --timeout 7200

# The tests on a real docker and podman, started and stopped around them (as root, on Debian).
container-test: setup-dev
	$(BIN)/servebench environment llama-cpp --runtime '{}' --out results/llama-cpp.json
	tests/container/up.sh $$($(BIN)/python -c 'import json; print(json.load(open("results/llama-cpp.json"))["python"])') --podman
	$(BIN)/python -m pytest tests/engine/test_real_containers.py; status=$$?; tests/container/down.sh; exit $$status

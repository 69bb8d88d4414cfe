# Two commands do everything on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV ?= .venv
# For instance an --extra-index-url with PyTorch's CPU builds: PyPI's bring CUDA on Linux.
PIP_FLAGS ?=
# For instance --device cuda, or --models resnet9.
BENCH ?=
# For how long `make chosen` runs, and what else it is told: --seed 7, --since main.
MINUTES ?= 30
CHOSEN ?=
# Where the load check keeps its ledger: postgres or sqlite.
LEDGER ?= postgres
# More of it: --campaigns 200 --workers 8 --kill-every 60 --plot load.png.
LOAD ?=
# Where people label in tests and pictures; Label Studio wants an environment of its own.
LABEL_STUDIO := $(VENV)-label-studio/bin/label-studio
export CHROMIUM ?= /usr/bin/chromium
export CHROMEDRIVER ?= /usr/bin/chromedriver
BIN := $(VENV)/bin
# Commands are processes of their own; what they import is compiled once.
export PYTHONDONTWRITEBYTECODE :=
STAMP := $(VENV)/.installed

.PHONY: help install data demo demo-capc test lint format slow coverage chosen faults accuracy bench overhead browser screenshots architecture deployments notebooks docs clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

install: $(STAMP) ## create the environment and install everything, pinned

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV), a few minutes ..."
	@# torch first and exactly, so that a CPU build provided on this machine is taken
	$(BIN)/pip install -q --disable-pip-version-check $(PIP_FLAGS) "$$(grep '^torch==' constraints.txt)"
	$(BIN)/pip install -q --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e '.[dev,docs]'
	@touch $@

data: $(STAMP) ## restore the sample data
	DVC_NO_ANALYTICS=1 $(BIN)/dvc pull --quiet

demo: data ## run a whole campaign on the sample data
	$(BIN)/dpal run flows/configs/digits.yaml

demo-capc: data ## five sites that do not trust each other vote on the sample data
	$(BIN)/dpal capc demo

test: data lint ## lint, types, import contracts, tests
	$(BIN)/python -m pytest

coverage: data lint ## the same, and at least the lines that pyproject.toml asks for are run
	$(BIN)/python -m pytest -n $$(getconf _NPROCESSORS_ONLN) --cov --cov-report=term

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## bring the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

slow: data ## the tests that take minutes, and six times as many examples of each property
	$(BIN)/python -m pytest -n 0 -m slow
	$(BIN)/python -m pytest -m 'hypothesis and not slow' --hypothesis-profile thorough

chosen: data ## slow tests for MINUTES: first those that the last change can reach, then by chance
	$(BIN)/python -m tests.chosen --minutes $(MINUTES) $(CHOSEN)

faults: data ## kill campaigns at 240 random moments, and break what they live in
	$(BIN)/python -m pytest -n 0 -m 'slow or not slow' tests/faults

accuracy: data ## train on real data sets, three runs each, beside baselines (DPAL_DATA; an hour)
	$(BIN)/python -m pytest -n 0 -m slow tests/accuracy

load: data ## 20 campaigns at once on 4 workers, one ledger, one data set (LEDGER=postgres or sqlite; LOAD: more)
	$(BIN)/python -m tests.scale.load --ledger $(LEDGER) $(LOAD)

bench: $(STAMP) ## time and memory of private training beside its peers (BENCH: see docs/benchmarks.md)
	$(BIN)/python -m tests.benchmarks.training $(BENCH)

overhead: data ## time that orchestration adds to the sample campaign (docs/benchmarks.md)
	$(BIN)/python -m tests.benchmarks.orchestration $(BENCH)

browser: data $(LABEL_STUDIO) $(CHROMIUM) ## a stranger's tour in a real browser; installs it and Label Studio, or fails
	DPAL_LABEL_STUDIO=$(abspath $(LABEL_STUDIO)) DPAL_BROWSER=required \
		$(BIN)/python -m pytest -n 0 -s -m browser tests/browser

screenshots: data $(LABEL_STUDIO) $(CHROMIUM) ## take the pictures of the documentation anew
	DPAL_LABEL_STUDIO=$(abspath $(LABEL_STUDIO)) $(BIN)/python -m docs.take_screenshots

$(LABEL_STUDIO):
	$(PYTHON) -m venv $(VENV)-label-studio
	@echo "installing Label Studio into $(VENV)-label-studio, some minutes ..."
	$(VENV)-label-studio/bin/pip install -q --disable-pip-version-check $(PIP_FLAGS) label-studio

$(CHROMIUM):
	@test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -qq -y chromium chromium-driver \
		|| { echo "there is no browser: install chromium and chromium-driver, or set CHROMIUM and" \
		"CHROMEDRIVER to where they are; nothing was tested" >&2; exit 1; }

deployments: $(STAMP) ## write prefect.yaml anew, from the kinds of runs
	$(BIN)/python -m flows.ops.prefect_yaml > prefect.yaml.new && mv prefect.yaml.new prefect.yaml

notebooks: data ## execute the notebooks of docs/notebooks anew
	$(BIN)/python -m docs.run_notebooks

architecture: $(STAMP) ## draw the pictures of the documentation anew, and the table of rooms
	$(BIN)/python -m docs.draw_architecture
	$(BIN)/python -m docs.draw_pictures

docs: $(STAMP) ## build the site into build/site; a broken link or a page outside of it fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "open build/site/index.html; with its search: $(BIN)/python -m http.server -d build/site"

clean: ## remove the environment; campaigns and their ledger stay
	rm -rf $(VENV)

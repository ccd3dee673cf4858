# Developer commands. Tools are built from pinned modules below hack/ and kept outside the checkout,
# in files named by the content of their modules: a second checkout finds them built.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

OBJCACHE_CACHE ?= $(HOME)/.cache/objcache
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
TAGS := integration,tests3,soak

# key FILE... is a name for the content of the files.
key = $(shell cat /dev/null $(wildcard $(1)) | sha256sum | cut -c1-16)

TOOLS     := $(OBJCACHE_CACHE)/tools-$(call key,hack/tools/go.mod hack/tools/go.sum hack/tools/protogen/*.go)
LINT      := $(OBJCACHE_CACHE)/golangci-lint-$(call key,hack/golangci-lint/go.mod hack/golangci-lint/go.sum)
VERSITYGW := $(OBJCACHE_CACHE)/versitygw-$(call key,hack/versitygw/go.mod hack/versitygw/go.sum)
MINIO     := $(OBJCACHE_CACHE)/minio-$(call key,hack/minio/go.mod hack/minio/go.sum)

RCLONE    := $(OBJCACHE_CACHE)/rclone-$(call key,hack/rclone/go.mod hack/rclone/go.sum hack/rclone/*.go)

PROTOS := $(sort $(wildcard api/rpc/*.proto server/record/*.proto))

GOTEST := go test -race -timeout 20m -p 2

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Programs

.PHONY: build
build: bin/versitygw ## Build bin/objcache, bin/objcache-csi, bin/objcache-operator and the test server bin/versitygw
	go build -trimpath -buildvcs=false -ldflags '-X main.version=$(VERSION)' -o bin/ ./cmd/...

bin/versitygw: $(VERSITYGW)
	@mkdir -p bin
	cp $< $@.tmp && mv $@.tmp $@

bin/minio: $(MINIO)
	@mkdir -p bin
	cp $< $@.tmp && mv $@.tmp $@

bin/rclone: $(RCLONE)
	@mkdir -p bin
	cp $< $@.tmp && mv $@.tmp $@

# Demo

.PHONY: demo
demo: ## Build everything and show it at work on this machine, checking every byte (needs root or fusermount3, and /dev/fuse)
	@hack/demo/prepare.sh
	@$(MAKE) build bin/rclone
	go run ./hack/demo -bin bin

# Tests

.PHONY: test
test: bin/versitygw ## Run every test with the race detector; integration tests need root and /dev/fuse
	OBJCACHE_VERSITYGW=$(CURDIR)/bin/versitygw $(GOTEST) -tags integration ./...

.PHONY: soak
soak: SECONDS ?= 600
soak: ## Break clusters in a simulated time with new seeds for SECONDS=600, until one fails; its journal is kept in bin/soak
	@mkdir -p bin/soak
	OBJCACHE_SOAK=$(SECONDS) OBJCACHE_JOURNALS=$(CURDIR)/bin/soak \
		go test -tags soak -count=1 -timeout 0 -v -run 'TestSoak$$' ./server/servertest/bubble | tee bin/soak/soak.log

.PHONY: soak-crash
soak-crash: SECONDS ?= 600
soak-crash: bin/versitygw ## Walk all failpoints of real processes with kill and stop, and kill at random for SECONDS=600, with a new seed
	@mkdir -p bin/soak
	OBJCACHE_VERSITYGW=$(CURDIR)/bin/versitygw OBJCACHE_CRASH_SECONDS=$(SECONDS) OBJCACHE_SQLITE_SECONDS=$(SECONDS) OBJCACHE_SEED=$$(date +%s) \
		go test -tags integration -count=1 -timeout 0 -v ./test/crash | tee bin/soak/crash.log

.PHONY: test-s3
test-s3: bin/versitygw bin/minio ## Run the contract of external storage on every S3 server at hand, MinIO included
	OBJCACHE_VERSITYGW=$(CURDIR)/bin/versitygw OBJCACHE_MINIO=$(CURDIR)/bin/minio \
		$(GOTEST) -tags $(TAGS) ./server/external/... ./test/s3server/...

.PHONY: arch
arch: ## Check who imports whom (the table is test/arch/table.go)
	go test -count=1 ./test/arch

.PHONY: mutants
mutants: bin/versitygw ## Break the code on purpose and check that the tests notice
	OBJCACHE_VERSITYGW=$(CURDIR)/bin/versitygw test/mutants/run.sh

.PHONY: e2e-short
e2e-short: demo ## The end-to-end check of every change: the demo, which exits non-zero if a single byte differs

# Measurements

.PHONY: bench
bench: build bin/minio ## Measure beside s3fs, ext4 and a plain client; needs root. BENCH='-runs 1 -scale 16 -only read' passes flags
	@mkdir -p bin/bench
	go build -o bin/bench/bench ./test/bench
	bin/bench/bench $(BENCH)

# Static checks

.PHONY: fmt
fmt: ## Format the Go code
	gofmt -w .

.PHONY: check-fmt
check-fmt: ## Fail if Go code is not formatted
	@files=$$(gofmt -l .); if [[ -n $$files ]]; then echo "not formatted:"; echo "$$files"; exit 1; fi

.PHONY: vet
vet: ## Run go vet, with and without the tags of the tests
	go vet ./...
	go vet -tags $(TAGS) ./...
	cd hack/tools && go vet ./...
	cd hack/rclone && go vet ./...

.PHONY: lint
lint: $(LINT) ## Run golangci-lint
	$(LINT) run --build-tags $(TAGS) ./...

# Generated code

.PHONY: generate
generate: $(TOOLS)/protogen ## Generate Go from api/rpc/*.proto and server/record/*.proto
	@hack/generate.sh $(TOOLS) . $(PROTOS)

.PHONY: check-generated
check-generated: $(TOOLS)/protogen ## Fail if generated code or go.mod is not what its sources give
	@hack/check-generated.sh $(TOOLS) $(PROTOS)
	go mod tidy -diff

# Tools. Each is built beside its place and then moved there, so that a broken build leaves nothing behind.

$(TOOLS)/protogen:
	@mkdir -p $(TOOLS)
	cd hack/tools && go build -o $(TOOLS)/ google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
	cd hack/tools && go build -o $@.tmp ./protogen && mv $@.tmp $@

$(LINT):
	@mkdir -p $(@D)
	cd hack/golangci-lint && go build -o $@.tmp github.com/golangci/golangci-lint/v2/cmd/golangci-lint && mv $@.tmp $@

$(VERSITYGW):
	@mkdir -p $(@D)
	cd hack/versitygw && go build -o $@.tmp github.com/versity/versitygw/cmd/versitygw && mv $@.tmp $@

$(MINIO):
	@mkdir -p $(@D)
	cd hack/minio && go build -o $@.tmp github.com/minio/minio && mv $@.tmp $@

$(RCLONE):
	@mkdir -p $(@D)
	cd hack/rclone && go build -trimpath -ldflags '-s -w' -o $@.tmp . && mv $@.tmp $@

.PHONY: clean
clean: ## Remove what was built in the checkout
	rm -rf bin

# Developer commands. Tools are built from pinned modules below hack/ and kept outside the checkout,
# in a directory named by the content of their go.mod and go.sum: a second checkout finds them built.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

OBJCACHE_CACHE ?= $(HOME)/.cache/objcache
ROOT := $(CURDIR)
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# key DIR... is the first 16 digits of a hash of the tool modules' files.
key = $(shell cat $(1) 2>/dev/null | sha256sum | cut -c1-16)

TOOLS := $(OBJCACHE_CACHE)/tools-$(call key,hack/tools/go.mod hack/tools/go.sum hack/tools/protogen/*.go)
LINT  := $(OBJCACHE_CACHE)/golangci-lint-$(call key,hack/golangci-lint/go.mod hack/golangci-lint/go.sum)

PROTOS := $(sort $(wildcard api/rpc/*.proto server/record/*.proto))

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' Makefile

##@ Generated code

$(TOOLS)/protogen:
	@mkdir -p $(TOOLS).tmp
	cd hack/tools && go build -o $(TOOLS).tmp/ ./protogen \
		google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
	@mkdir -p $(TOOLS) && mv $(TOOLS).tmp/* $(TOOLS)/ && rmdir $(TOOLS).tmp

.PHONY: generate
generate: $(TOOLS)/protogen ## Generate Go from api/rpc/*.proto and server/record/*.proto
	@hack/generate.sh $(TOOLS) $(ROOT) $(PROTOS)

.PHONY: check-generated
check-generated: $(TOOLS)/protogen ## Fail if generated code is not what its sources give
	@hack/check-generated.sh $(TOOLS) $(PROTOS)

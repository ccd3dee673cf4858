package main

import (
	"context"
	"strings"
)

// benchmark adds rows to the table.
type benchmark struct {
	name, what string
	run        func(ctx context.Context, e *env, add func(row)) error
}

var benchmarks = []benchmark{
	{"throttled", "cold reads of an object behind a slow S3", throttled},
	{"read", "cold, second and warm reads, one mount after the other", reads},
	{"write", "write and close of a large file", writes},
	{"create", "transactions of one and of two groups", creates},
	{"small", "create, write and close of many small files", small},
	{"list", "requests to S3 for listings", lists},
}

func names() string {
	var all []string
	for _, b := range benchmarks {
		all = append(all, b.name)
	}
	return strings.Join(all, ", ")
}

//go:build deps

package objcache

import (
	_ "github.com/anishathalye/porcupine"
	_ "github.com/aws/aws-sdk-go-v2/config"
	_ "github.com/aws/aws-sdk-go-v2/credentials"
	_ "github.com/aws/aws-sdk-go-v2/service/s3"
	_ "github.com/aws/smithy-go"
	_ "github.com/cespare/xxhash/v2"
	_ "github.com/cockroachdb/pebble/v2"
	_ "github.com/google/uuid"
	_ "github.com/hanwen/go-fuse/v2/fuse"
	_ "github.com/hashicorp/raft"
	_ "github.com/hashicorp/raft-wal"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/spf13/cobra"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "google.golang.org/grpc"
	_ "google.golang.org/protobuf/proto"
	_ "sigs.k8s.io/yaml"
)

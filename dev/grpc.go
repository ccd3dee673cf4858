package dev

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// quick asks a server that is starting again soon: the default pauses grow to two minutes.
var quick = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.3, MaxDelay: 200 * time.Millisecond},
	MinConnectTimeout: time.Second,
}

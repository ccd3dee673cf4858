package replica

import "github.com/hashicorp/raft"

// transport keeps heartbeats on raft's main goroutine: its fast path beside it can let replicas diverge (hashicorp/raft issue 695).
// With one replica nothing is ever sent; with more, the embedded transport is the one that sends.
type transport struct{ raft.Transport }

// SetHeartbeatHandler declines the fast path.
func (transport) SetHeartbeatHandler(func(raft.RPC)) {}

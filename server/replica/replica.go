// Package replica is one member of one Raft group: a replicated log with its leader. It promises that an entry reported as
// committed is on disk, and that apply sees every committed entry once and in order after the last one the state machine says it
// holds. It does not know what entries mean. It is the only room that imports hashicorp/raft.
package replica

// Package bubble runs a whole cluster in one testing/synctest bubble: servers, clients, a network, disks and a bucket, all in memory, in a time that
// passes at once when everybody waits. While clients work it breaks all of it, and then judges what is left. It promises that the faults it injects are
// ones that real machines, networks and buckets have, and that it counts them. It knows how servers are assembled, not what they do.
package bubble

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Draw makes the settings of a seed: a few minutes of a cluster's life.
func Draw(seed uint64) Settings {
	rng := rand.New(rand.NewPCG(seed, 0x73657474))
	s := Settings{
		Seed: seed, Servers: 1 + rng.IntN(4), Players: 1 + rng.IntN(2), Sharers: rng.IntN(4), Rounds: 1 + rng.IntN(2), Steps: 20 + rng.IntN(50),
		Chaos: rng.IntN(25), Large: rng.IntN(10) == 0, Full: rng.IntN(3) == 0, Calm: rng.IntN(20) == 0,
		FlushInterval: time.Duration(200+rng.IntN(4000)) * time.Millisecond, ExternalTTL: time.Duration(100+rng.IntN(5000)) * time.Millisecond,
		Upload: "background", Capacity: 256 << 20,
	}
	if rng.IntN(3) == 0 {
		s.Chaos = 0
	}
	if rng.IntN(6) == 0 {
		s.Lockers = 2 + rng.IntN(3)
	}
	return s
}

// Brief are the settings of a seed for a run of half a minute, of which many are made with every change.
func Brief(seed uint64) Settings {
	s := Draw(seed)
	s.Servers, s.Rounds, s.Steps, s.Sharers, s.Large = 1+int(seed%3), 1, 8+s.Steps/5, s.Sharers/2*2, s.Large && seed%4 == 0
	return s
}

// String tells what is special.
func (s Settings) String() string {
	return fmt.Sprintf("seed %d: %d servers, %d players, %d sharers, %d lockers, %d steps, chaos %d%%, large %t, full %t, calm %t, flush %v, ttl %v",
		s.Seed, s.Servers, s.Players, s.Sharers, s.Lockers, s.Steps, s.Chaos, s.Large, s.Full, s.Calm, s.FlushInterval, s.ExternalTTL)
}

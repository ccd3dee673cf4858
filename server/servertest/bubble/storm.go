package bubble

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// storm breaks things, one after the other and several at a time, until it is told to end. When it has ended everything works again.
type storm struct {
	c    *cluster
	rng  *rand.Rand
	stop chan struct{}
	work sync.WaitGroup
	fail func(error)
	// hosts of clients, whose way to servers may break
	clients []string
}

func (s *storm) run() {
	for s.pause(10, 900) {
		s.strike()
	}
	s.work.Wait()
	s.c.net.heal()
	s.c.chaos.down.Store(false)
}

// pause waits for a random time in milliseconds and reports whether to go on.
func (s *storm) pause(lo, hi int) bool {
	t := time.NewTimer(time.Duration(lo+s.rng.IntN(hi-lo)) * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.stop:
		return false
	}
}

func (s *storm) strike() {
	n := s.c.nodes[s.rng.IntN(len(s.c.nodes))]
	switch k := s.rng.IntN(100); {
	case k < 25:
		s.crashAt(n)
	case k < 33:
		s.crash("crash", n)
	case k < 37:
		s.crash("crash of all servers", s.c.nodes...)
	case k < 42:
		s.restart(n)
	case k < 60:
		s.partition()
	case k < 70:
		s.slow()
	case k < 84:
		s.snap()
	case k < 92:
		s.outage()
	default:
		if s.c.set.Full {
			s.fill(n)
		}
	}
}

// later runs f beside the storm.
func (s *storm) later(f func()) { s.work.Go(f) }

func (s *storm) between(lo, hi int) time.Duration {
	return time.Duration(lo+s.rng.IntN(hi-lo)) * time.Millisecond
}

var percents = []int{0, 0, 30, 70, 100}

// crashAt crashes a server in the middle of what it is doing: before one of its next writing operations on the disk.
func (s *storm) crashAt(n *node) {
	l := n.alive()
	if l == nil {
		return
	}
	after, percent, down, patience := 1+s.rng.IntN(1+s.rng.IntN(80)), percents[s.rng.IntN(len(percents))], s.between(5, 3000), s.between(500, 4000)
	s.c.logger.Info("storm: crash armed", "server", n.i, "after", after, "percent", percent)
	l.disk.arm(after, percent, func(at string) {
		s.c.faults.Add("crash at " + at)
		n.cut(l)
	})
	s.later(func() {
		t := time.NewTimer(patience)
		defer t.Stop()
		select {
		case <-l.dead:
		case <-t.C:
			s.c.faults.Add("crash while idle")
		}
		s.end(n, l, percent, down)
	})
}

// end ends a life and begins the next one after a while.
func (s *storm) end(n *node, l *life, percent int, down time.Duration) {
	if !n.crashLife(l, percent) {
		return // somebody else does that
	}
	s.c.logger.Info("storm: crashed", "server", n.i, "percent", percent)
	time.Sleep(down)
	if err := n.up(); err != nil {
		s.fail(err)
	}
}

func (s *storm) crash(kind string, ns ...*node) {
	s.c.faults.Add(kind)
	percent, down := percents[s.rng.IntN(len(percents))], s.between(5, 3000)
	for _, n := range ns {
		if l := n.alive(); l != nil {
			n.cut(l)
			s.later(func() { s.end(n, l, percent, down) })
		}
	}
}

func (s *storm) restart(n *node) {
	s.c.faults.Add("restart")
	s.c.logger.Info("storm: restart", "server", n.i)
	down := s.between(5, 2000)
	s.later(func() {
		was, err := n.stop()
		if err != nil {
			s.fail(fmt.Errorf("stop server %d: %w", n.i, err))
		}
		if !was {
			return
		}
		time.Sleep(down)
		if err := n.up(); err != nil {
			s.fail(err)
		}
	})
}

// ends draws two hosts that talk to each other.
func (s *storm) ends() direction {
	to := host(s.rng.IntN(len(s.c.nodes)))
	from := host(s.rng.IntN(len(s.c.nodes)))
	if from == to || s.rng.IntN(2) == 0 {
		from = s.clients[s.rng.IntN(len(s.clients))]
	}
	if s.rng.IntN(2) == 0 {
		return direction{to, from}
	}
	return direction{from, to}
}

func (s *storm) partition() {
	d, both, during := s.ends(), s.rng.IntN(2) == 0, s.between(50, 6000)
	kind := "network: partition one way"
	if both {
		kind = "network: partition"
	}
	s.c.faults.Add(kind)
	s.c.logger.Info("storm: "+kind, "from", d.from, "to", d.to, "during", during)
	back := direction{d.to, d.from}
	s.c.net.block(d, true)
	if both {
		s.c.net.block(back, true)
	}
	s.later(func() {
		time.Sleep(during)
		s.c.net.block(d, false)
		s.c.net.block(back, false)
	})
}

func (s *storm) slow() {
	d, by, during := s.ends(), s.between(20, 1500), s.between(100, 4000)
	s.c.faults.Add("network: slow")
	s.c.logger.Info("storm: slow", "from", d.from, "to", d.to, "by", by, "during", during)
	s.c.net.slowDown(d, by)
	s.later(func() {
		time.Sleep(during)
		s.c.net.slowDown(d, 0)
	})
}

func (s *storm) snap() {
	d := s.ends()
	if s.c.net.snap(d.from, d.to) > 0 {
		s.c.faults.Add("network: connection broken")
	}
}

func (s *storm) outage() {
	during := s.between(100, 8000)
	s.c.faults.Add("s3: outage")
	s.c.logger.Info("storm: outage of the bucket", "during", during)
	s.c.chaos.down.Store(true)
	s.later(func() {
		time.Sleep(during)
		s.c.chaos.down.Store(false)
	})
}

// fill lets the disk of chunks be full for a while. The log's is not: raft ends the process then, and here that would be all servers.
func (s *storm) fill(n *node) {
	l := n.alive()
	if l == nil {
		return
	}
	during := s.between(100, 5000)
	s.c.faults.Add("disk: full")
	s.c.logger.Info("storm: disk is full", "server", n.i, "during", during)
	l.disk.fill(func(name string) bool { return strings.Contains(name, "/chunks/") })
	s.later(func() {
		time.Sleep(during)
		l.disk.fill(nil)
	})
}

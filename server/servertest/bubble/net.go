package bubble

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// network carries bytes between named hosts in memory, in order and after a delay, as TCP does. A blocked direction keeps what is sent and delivers it
// when it is opened again; a broken connection loses what is under way.
type network struct {
	faults *Faults
	mu     struct {
		sync.Mutex
		rng       *rand.Rand
		listeners map[string]*listener
		blocked   map[direction]bool
		slow      map[direction]time.Duration
		conns     map[*conn]bool
		gone      map[string]bool // hosts that are cut off
		silent    map[string]bool // hosts whose packets wait, to and fro
	}
}

type direction struct{ from, to string }

// latency is the least and the spread of a packet's way.
const latency, spread = 100 * time.Microsecond, 900 * time.Microsecond

func newNetwork(seed uint64, f *Faults) *network {
	n := &network{faults: f}
	n.mu.rng = rand.New(rand.NewPCG(seed, 0x6e6574))
	n.mu.listeners = map[string]*listener{}
	n.mu.blocked = map[direction]bool{}
	n.mu.slow = map[direction]time.Duration{}
	n.mu.conns = map[*conn]bool{}
	n.mu.gone = map[string]bool{}
	n.mu.silent = map[string]bool{}
	return n
}

func (n *network) wayLocked(d direction) time.Duration {
	way := latency + time.Duration(n.mu.rng.Int64N(int64(spread)))
	if x := n.mu.slow[d]; x > 0 {
		way += time.Duration(n.mu.rng.Int64N(int64(x)))
	}
	return way
}

func (n *network) way(d direction) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.wayLocked(d)
}

func (n *network) isBlocked(d direction) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.blockedLocked(d)
}

func (n *network) blockedLocked(d direction) bool {
	return n.mu.blocked[d] || n.mu.silent[d.from] || n.mu.silent[d.to]
}

// silence keeps everything that a host sends and that is sent to it, until that is ended. Healing the network does not end it.
func (n *network) silence(host string, on bool) {
	n.mu.Lock()
	n.mu.silent[host] = on
	cs := n.connsLocked(func(c *conn) bool { return c.in.from == host || c.in.to == host })
	n.mu.Unlock()
	for _, c := range cs {
		c.wake()
	}
}

// block closes or opens one direction.
func (n *network) block(d direction, on bool) {
	n.mu.Lock()
	n.mu.blocked[d] = on
	cs := n.connsLocked(func(c *conn) bool { return c.in == d })
	n.mu.Unlock()
	for _, c := range cs {
		c.wake()
	}
}

// slowDown adds up to x to every packet of one direction; 0 ends it.
func (n *network) slowDown(d direction, x time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.slow[d] = x
}

// snap breaks the connections between two hosts.
func (n *network) snap(a, b string) int {
	n.mu.Lock()
	cs := n.connsLocked(func(c *conn) bool { return c.in == direction{a, b} || c.in == direction{b, a} })
	n.mu.Unlock()
	for _, c := range cs {
		c.reset()
	}
	return len(cs)
}

// cut takes a host off the network for good: what it sends from now on nobody sees. A host of the same name may listen again after join.
func (n *network) cut(host string) {
	n.mu.Lock()
	l := n.mu.listeners[host]
	n.mu.gone[host] = true
	cs := n.connsLocked(func(c *conn) bool { return c.in.from == host || c.in.to == host })
	n.mu.Unlock()
	if l != nil {
		l.stop()
	}
	for _, c := range cs {
		c.reset()
	}
}

func (n *network) join(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.mu.gone, host)
}

// heal opens and speeds up everything.
func (n *network) heal() {
	n.mu.Lock()
	clear(n.mu.blocked)
	clear(n.mu.slow)
	cs := n.connsLocked(func(*conn) bool { return true })
	n.mu.Unlock()
	for _, c := range cs {
		c.wake()
	}
}

func (n *network) connsLocked(want func(*conn) bool) []*conn {
	var cs []*conn
	for c := range n.mu.conns {
		if want(c) {
			cs = append(cs, c)
		}
	}
	return cs
}

type listener struct {
	n       *network
	host    string
	backlog chan net.Conn
	done    chan struct{}
	once    sync.Once
}

func (n *network) listen(host string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &listener{n: n, host: host, backlog: make(chan net.Conn, 128), done: make(chan struct{})}
	n.mu.listeners[host] = l
	return l, nil
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.stop()
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	if l.n.mu.listeners[l.host] == l {
		delete(l.n.mu.listeners, l.host)
	}
	return nil
}

func (l *listener) stop()          { l.once.Do(func() { close(l.done) }) }
func (l *listener) Addr() net.Addr { return hostAddr(l.host) }

var errRefused = errors.New("connection refused")

// dialer is what the host from calls out with.
func (n *network) dialer(from string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, to string) (net.Conn, error) { return n.dial(ctx, from, to) }
}

func (n *network) dial(ctx context.Context, from, to string) (net.Conn, error) {
	out, back := direction{from, to}, direction{to, from}
	wait := n.way(out) + n.way(back)
	if n.isBlocked(out) || n.isBlocked(back) {
		wait = time.Second
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	l := n.mu.listeners[to]
	if l == nil || n.mu.gone[from] || n.mu.gone[to] || n.blockedLocked(out) || n.blockedLocked(back) {
		n.mu.Unlock()
		return nil, errRefused
	}
	a, b := newConn(n, back), newConn(n, out)
	a.peer, b.peer = b, a
	n.mu.conns[a], n.mu.conns[b] = true, true
	n.mu.Unlock()
	select {
	case l.backlog <- b:
		return a, nil
	case <-l.done:
	case <-ctx.Done():
	}
	_ = a.Close()
	_ = b.Close()
	return nil, errRefused
}

type packet struct {
	at   time.Time
	data []byte
}

// conn is one end. Bytes wait at the receiving end until their time.
type conn struct {
	n    *network
	in   direction // of what is read here
	peer *conn
	cond sync.Cond
	mu   struct {
		sync.Mutex
		queue  []packet
		ended  bool  // the peer has closed
		err    error // closed here, or broken
		until  time.Time
		newest time.Time
	}
}

func newConn(n *network, in direction) *conn {
	c := &conn{n: n, in: in}
	c.cond.L = &c.mu
	return c
}

func (c *conn) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cond.Broadcast()
}

func (c *conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		now := time.Now()
		wait := time.Duration(-1)
		if !c.mu.until.IsZero() {
			wait = max(0, c.mu.until.Sub(now))
		}
		switch ready := !c.n.isBlocked(c.in); {
		case c.mu.err != nil:
			return 0, c.mu.err
		case wait == 0:
			return 0, os.ErrDeadlineExceeded
		case ready && len(c.mu.queue) > 0:
			d := c.mu.queue[0].at.Sub(now)
			if d <= 0 {
				return c.takeLocked(p), nil
			}
			if wait < 0 || d < wait {
				wait = d
			}
		case ready && c.mu.ended:
			return 0, io.EOF
		}
		if wait < 0 {
			c.cond.Wait()
			continue
		}
		t := time.AfterFunc(wait, c.wake)
		c.cond.Wait()
		t.Stop()
	}
}

func (c *conn) takeLocked(p []byte) int {
	n := copy(p, c.mu.queue[0].data)
	if c.mu.queue[0].data = c.mu.queue[0].data[n:]; len(c.mu.queue[0].data) == 0 {
		c.mu.queue = c.mu.queue[1:]
	}
	return n
}

func (c *conn) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

func (c *conn) Write(p []byte) (int, error) {
	if err := c.failed(); err != nil {
		return 0, err
	}
	if !c.peer.deliver(packet{time.Now().Add(c.n.way(c.peer.in)), append([]byte(nil), p...)}) {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

func (c *conn) deliver(x packet) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return false
	}
	if x.at.Before(c.mu.newest) {
		x.at = c.mu.newest
	}
	c.mu.newest = x.at
	c.mu.queue = append(c.mu.queue, x)
	c.cond.Broadcast()
	return true
}

func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.mu.err == nil {
		c.mu.err = err
	}
	c.mu.queue = nil
	c.cond.Broadcast()
	c.mu.Unlock()
	c.n.mu.Lock()
	delete(c.n.mu.conns, c)
	c.n.mu.Unlock()
}

func (c *conn) Close() error {
	c.fail(net.ErrClosed)
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	c.peer.mu.ended = true
	c.peer.cond.Broadcast()
	return nil
}

var errReset = errors.New("connection reset by peer")

func (c *conn) reset() {
	c.fail(errReset)
	c.peer.fail(errReset)
}

func (c *conn) LocalAddr() net.Addr              { return hostAddr(c.in.to) }
func (c *conn) RemoteAddr() net.Addr             { return hostAddr(c.in.from) }
func (c *conn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.until = t
	c.cond.Broadcast()
	return nil
}

type hostAddr string

func (hostAddr) Network() string  { return "memory" }
func (h hostAddr) String() string { return string(h) }

package bubble

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/client"
)

// player works in a subtree of its own and keeps a model of it, in which the result of every operation is known.
type player struct {
	set    Settings
	name   string
	c      *client.Client
	others []*client.Client // see what the player has done
	rng    *rand.Rand
	root   *inode
	open   []*inode // files that are kept open
	log    *journal
	fail   func(error)
}

// stopped ends a player that has failed.
type stopped struct{}

func (p *player) failf(format string, args ...any) {
	p.fail(fmt.Errorf("%s: "+format, append([]any{p.name}, args...)...))
	panic(stopped{})
}

// guard ends quietly when the player has failed.
func guard(f func()) {
	defer func() {
		if e := recover(); e != nil {
			if _, ok := e.(stopped); !ok {
				panic(e)
			}
		}
	}()
	f()
}

// patience is how long one operation may take, all faults included. Longer is stuck.
const patience = 5 * time.Minute

// do runs an operation; a full disk is waited for as programs cannot.
func (p *player) do(op func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := op(ctx)
		if errors.Is(err, objcache.Fenced) {
			p.log.note("%s: the session has ended, again", p.name) // it was not done
			continue
		}
		if !p.set.Full || !errors.Is(err, objcache.NoSpace) {
			return err
		}
		p.log.note("%s: no space, again", p.name)
		time.Sleep(time.Second)
	}
}

// expect checks an error against what the model says must happen, and reports whether the operation took effect.
func (p *player) expect(err error, want objcache.Kind, fails bool) bool {
	switch {
	case !fails && err != nil:
		p.failf("failed: %v", err)
	case fails && err == nil:
		p.failf("succeeded, should be refused: %v", want)
	case fails && !errors.Is(err, want):
		p.failf("refused with %v, should be %v", err, want)
	}
	return !fails
}

func (p *player) must(op func(ctx context.Context) error) { p.expect(p.do(op), 0, false) }

func (p *player) note(format string, args ...any) {
	p.log.note("%s: %s", p.name, fmt.Sprintf(format, args...))
}

func (p *player) pick(ok func(*inode) bool) (named, bool) {
	var fit []named
	for _, n := range places(p.root) {
		if ok(n.node) {
			fit = append(fit, n)
		}
	}
	if len(fit) == 0 {
		return named{}, false
	}
	return fit[p.rng.IntN(len(fit))], true
}

func (p *player) dir() *inode {
	if n, ok := p.pick(isDir); ok && p.rng.IntN(4) > 0 {
		return n.node
	}
	return p.root
}

func (p *player) newName() string { return fmt.Sprintf("n%d", p.rng.IntN(6)) }

func (p *player) play(steps int, stop <-chan struct{}) {
	guard(func() {
		for range steps {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(p.rng.IntN(150)) * time.Millisecond):
			}
			p.step()
		}
	})
}

var weights = []struct {
	n    int
	step func(*player)
}{
	{17, (*player).create}, {8, (*player).mkdir}, {20, (*player).write}, {8, (*player).truncate}, {6, (*player).add}, {14, (*player).rename},
	{5, (*player).link}, {8, (*player).unlink}, {4, (*player).rmdir}, {4, (*player).chmod}, {3, (*player).xattr}, {2, (*player).chmodDir},
	{5, (*player).look}, {2, (*player).names}, {2, (*player).persist}, {3, (*player).keepOpen}, {3, (*player).release}, {3, (*player).useOpen},
	{2, (*player).symlink}, {2, (*player).refresh},
}

func (p *player) step() {
	total := 0
	for _, w := range weights {
		total += w.n
	}
	k := p.rng.IntN(total)
	for _, w := range weights {
		if k -= w.n; k < 0 {
			w.step(p)
			return
		}
	}
}

package fuse

import (
	"context"
	"time"
)

// interruptGrace is how long an operation goes on after its caller got a signal. The kernel interrupts requests for any signal, also those that
// restart system calls elsewhere (timers of git, preemption of Go programs); programs do not expect EINTR from mkdir(2). A signal that kills is
// therefore served this much later.
const interruptGrace = time.Second

// begin returns the context of one kernel request. Always call the function it returns.
func (fs *FS) begin(cancel <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(fs.ctx)
	if cancel == nil {
		return ctx, stop
	}
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-cancel:
		}
		t := time.NewTimer(interruptGrace)
		defer t.Stop()
		select {
		case <-ctx.Done():
		case <-t.C:
			stop()
		}
	}()
	return ctx, stop
}

package replica

import (
	"context"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// bridge is a logger for hashicorp's libraries that passes warnings and errors on to slog.
func bridge(to *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Level: hclog.Warn, Output: io.Discard})
	l.RegisterSink(sink{to})
	return l
}

type sink struct{ to *slog.Logger }

// Accept receives one message with alternating keys and values.
func (s sink) Accept(name string, level hclog.Level, msg string, args ...any) {
	if level < hclog.Warn {
		return
	}
	at := slog.LevelWarn
	if level >= hclog.Error {
		at = slog.LevelError
	}
	s.to.Log(context.Background(), at, "raft: "+msg, args...)
}

package bubble

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// journal keeps what happened in a run, for whoever has to understand a failure.
type journal struct {
	mu    sync.Mutex
	lines []string
	echo  io.Writer // nil: nobody watches
}

// note adds a line with the bubble's time.
func (j *journal) note(format string, args ...any) {
	line := time.Now().Format("04:05.000000 ") + fmt.Sprintf(format, args...)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
	if j.echo != nil {
		fmt.Fprintln(j.echo, line)
	}
}

// Write takes the lines of a logger.
func (j *journal) Write(p []byte) (int, error) {
	j.note("%s", strings.TrimSpace(string(p)))
	return len(p), nil
}

func (j *journal) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// String is everything.
func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n") + "\n"
}

package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestCommands_EachHasAnExample(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Runnable() && c.Example == "" && c.Name() != "version" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
}

func TestCommands_BadInputIsOneLineThatNamesIt(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for want, args := range map[string][]string{
		"config":        {"server"},
		none:            {"server", "--config", none},
		"servers":       {"mount", "/mnt"},
		"passthrough":   {"mount", "--servers", "127.0.0.1:1", "--passthrough", "maybe", "/mnt"},
		"no number":     {"mount", "--servers", "127.0.0.1:1", "--cache-bytes", "many", "/mnt"},
		"objcache at":   {"flush", t.TempDir()},
		"dev up":        {"dev", "status", "--state", none},
		"table or json": {"status", "--server", "127.0.0.1:1", "--timeout", "1ms", "-o", "xml"},
		"--s3 needs":    {"dev", "up", "--state", none, "--s3", "http://127.0.0.1:1"},
		"go with --s3":  {"dev", "up", "--state", none, "--access-key", "k"},
	} {
		_, err := execute(t, args...)
		if err == nil || !strings.Contains(oneLine(err), want) || strings.Contains(oneLine(err), "\n") {
			t.Errorf("%v: %v, want a word on %q", args, err, want)
		}
	}
}

func TestByteSize_ReadsUnits(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1048576": 1 << 20, "64MiB": 64 << 20, "64M": 64 << 20, "10GiB": 10 << 30, "1TB": 1 << 40, "3KiB": 3072} {
		var b byteSize
		if err := b.Set(text); err != nil || int64(b) != want {
			t.Errorf("%s: %d, %v", text, b, err)
		}
		var again byteSize
		if err := again.Set(b.String()); err != nil || again != b {
			t.Errorf("%s is written %s", text, b.String())
		}
	}
	for _, text := range []string{"", "many", "-1", "1.5GiB", "9999999TiB"} {
		var b byteSize
		if b.Set(text) == nil {
			t.Errorf("%q is %d", text, b)
		}
	}
}

func TestNotify_TellsSystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	if err := notify("READY=1"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	n, err := l.Read(b)
	if err != nil || string(b[:n]) != "READY=1" {
		t.Errorf("%q, %v", b[:n], err)
	}
	t.Setenv("NOTIFY_SOCKET", "")
	if err := notify("READY=1"); err != nil {
		t.Errorf("without systemd: %v", err)
	}
}

func TestProgress_PlainLinesOffATerminal(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, "persisted")
	for i := range uint64(1000) {
		p.show(i+1, 1000, i<<20, 1000<<20)
	}
	p.end()
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "persisted 1000 of 1000 files") || strings.Contains(got, "\r") {
		t.Errorf("printed %q", got)
	}
}

func TestDefaultState_IsBelowTheUsersHome(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", "")
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	if got := defaultState(); got != filepath.Join(home, ".local/share/objcache/dev") {
		t.Errorf("state directory %s", got)
	}
}

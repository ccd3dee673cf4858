//go:build failpoints

package failpoint

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
)

// Enabled reports whether this program was built with failpoints.
const Enabled = true

// action is what an armed point does, once.
type action struct {
	verb  string // kill, stop, delay or error
	after atomic.Int64
	delay time.Duration
}

var (
	hits  [count]atomic.Uint64
	armed [count]atomic.Pointer[action]
)

func init() {
	if spec := os.Getenv(EnvArm); spec != "" {
		if err := Arm(spec); err != nil {
			panic(EnvArm + ": " + err.Error())
		}
	}
}

// Hit passes a point.
func Hit(p Point) {
	hits[p].Add(1)
	a := armed[p].Load()
	if a == nil || a.after.Add(-1) != 0 {
		return
	}
	armed[p].CompareAndSwap(a, nil)
	say(p, a.verb)
	switch a.verb {
	case "kill":
		signal(unix.SIGKILL)
	case "stop":
		signal(unix.SIGSTOP)
	case "delay":
		<-time.After(a.delay)
	}
}

// Fail passes a point whose step may fail; the error is what it is armed for.
func Fail(p Point) error {
	a := armed[p].Load()
	if a == nil || a.verb != "error" {
		Hit(p)
		return nil
	}
	hits[p].Add(1)
	if a.after.Add(-1) != 0 {
		return nil
	}
	armed[p].CompareAndSwap(a, nil)
	say(p, a.verb)
	return objcache.Errorf(objcache.Unavailable, "failpoint %v", p)
}

// say writes one line to the process's log before it can be too late for it.
func say(p Point, verb string) { _, _ = fmt.Fprintf(os.Stderr, "failpoint %v: %s\n", p, verb) }

// signal signals the calling thread, so that not one more instruction of it runs before the whole process is stopped or dead.
func signal(s unix.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Tgkill(unix.Getpid(), unix.Gettid(), s); err != nil {
		panic(err)
	}
	if s == unix.SIGKILL {
		select {}
	}
}

// Arm arms points: "name=action", separated by commas or line ends. Actions are kill (SIGKILL), stop (SIGSTOP; somebody else sends SIGCONT),
// delay(1s) and, where the step can fail, error; "off" disarms. @n behind it: not before the n-th time. A point does it once.
func Arm(spec string) error {
	for _, one := range strings.FieldsFunc(spec, func(r rune) bool { return r == ',' || r == '\n' }) {
		name, what, ok := strings.Cut(strings.TrimSpace(one), "=")
		p, known := byName(name)
		if !ok || !known {
			return objcache.Errorf(objcache.Invalid, "failpoint %q", one)
		}
		a, err := parse(what)
		if err != nil {
			return err
		}
		armed[p].Store(a)
	}
	return nil
}

func byName(name string) (Point, bool) {
	for p, i := range table {
		if i.Name == name {
			return Point(p), true
		}
	}
	return 0, false
}

func parse(what string) (*action, error) {
	verb, n, counted := strings.Cut(what, "@")
	a := &action{verb: verb}
	a.after.Store(1)
	if counted {
		v, err := strconv.ParseInt(n, 10, 64)
		if err != nil || v < 1 {
			return nil, objcache.Errorf(objcache.Invalid, "failpoint action %q", what)
		}
		a.after.Store(v)
	}
	if d, ok := strings.CutPrefix(verb, "delay("); ok {
		var err error
		if a.delay, err = time.ParseDuration(strings.TrimSuffix(d, ")")); err != nil {
			return nil, objcache.Errorf(objcache.Invalid, "failpoint action %q: %w", what, err)
		}
		a.verb = "delay"
	}
	switch a.verb {
	case "kill", "stop", "delay", "error":
		return a, nil
	case "off":
		return nil, nil
	}
	return nil, objcache.Errorf(objcache.Invalid, "failpoint action %q", what)
}

// Handle lets /failpoints arm points of this process (POST, the text of Arm) and count who passed (GET: a name and a number a line).
func Handle(mux *http.ServeMux) {
	mux.HandleFunc("POST /failpoints", func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err == nil {
			err = Arm(string(b))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	mux.HandleFunc("GET /failpoints", func(w http.ResponseWriter, _ *http.Request) {
		for p, i := range table {
			fmt.Fprintf(w, "%s %d\n", i.Name, hits[p].Load())
		}
	})
}

// Number is what the environment says for one of the names above; 0 without a word.
func Number(name string) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return 0
	}
	return n
}

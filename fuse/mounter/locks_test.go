//go:build integration

package mounter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/fuse/fusetest"
	"github.com/objcache/objcache/fuse/mounter"
)

func openAll(t *testing.T, name string, ms ...*mount) []*os.File {
	t.Helper()
	var fs []*os.File
	for _, m := range ms {
		f, err := os.OpenFile(m.path(name), os.O_RDWR|os.O_CREATE, 0o644)
		must(t, err)
		t.Cleanup(func() { _ = f.Close() }) // most tests close it themselves
		fs = append(fs, f)
	}
	return fs
}

// fcntlLock is one call of fcntl(2). cmd is F_SETLK, F_OFD_SETLK or their waiting kin.
func fcntlLock(f *os.File, cmd int, typ int16, start, n int64) error {
	l := unix.Flock_t{Type: typ, Start: start, Len: n}
	for {
		if err := unix.FcntlFlock(f.Fd(), cmd, &l); err != unix.EINTR {
			return err
		}
	}
}

const (
	setOFD  = unix.F_OFD_SETLK
	waitOFD = unix.F_OFD_SETLKW
	setPID  = unix.F_SETLK
)

func wantErrno(t *testing.T, what string, err error, want syscall.Errno) {
	t.Helper()
	if want == 0 && err != nil || want != 0 && !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func TestLocks_HoldAcrossMountsAndWithinOne(t *testing.T) {
	c := fusetest.New()
	m1, m2 := mountOn(t, c), mountOn(t, c)
	for name, ms := range map[string][]*mount{"across": {m1, m2}, "within": {m1, m1}} {
		t.Run(name, func(t *testing.T) {
			fs := openAll(t, name, ms...)
			a, b := fs[0], fs[1]
			wantErrno(t, "first", fcntlLock(a, setOFD, unix.F_WRLCK, 0, 10), 0)
			wantErrno(t, "overlapping", fcntlLock(b, setOFD, unix.F_RDLCK, 9, 1), unix.EAGAIN)
			wantErrno(t, "apart", fcntlLock(b, setOFD, unix.F_WRLCK, 10, 0), 0)
			l := unix.Flock_t{Type: unix.F_WRLCK, Len: 100}
			must(t, unix.FcntlFlock(b.Fd(), unix.F_OFD_GETLK, &l))
			if l.Type != unix.F_WRLCK || l.Start != 0 || l.Len != 10 {
				t.Errorf("F_GETLK says %+v", l)
			}
			wantErrno(t, "unlock the middle", fcntlLock(a, setOFD, unix.F_UNLCK, 3, 4), 0)
			wantErrno(t, "the middle", fcntlLock(b, setOFD, unix.F_WRLCK, 3, 4), 0)
			wantErrno(t, "the head", fcntlLock(b, setOFD, unix.F_RDLCK, 0, 1), unix.EAGAIN)
			wantErrno(t, "downgrade", fcntlLock(a, setOFD, unix.F_RDLCK, 0, 3), 0)
			wantErrno(t, "shared", fcntlLock(b, setOFD, unix.F_RDLCK, 0, 3), 0)
			wantErrno(t, "upgrade against a reader", fcntlLock(a, setOFD, unix.F_WRLCK, 0, 3), unix.EAGAIN)
			// flock(2) is another space.
			wantErrno(t, "flock", unix.Flock(int(b.Fd()), unix.LOCK_EX|unix.LOCK_NB), 0)
			wantErrno(t, "flock again", unix.Flock(int(a.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EAGAIN)
			must(t, b.Close())
			within(t, 5*time.Second, "the close gives the flock back", func() bool { return unix.Flock(int(a.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil })
			must(t, a.Close())
			within(t, 5*time.Second, "nothing is locked", func() bool { return c.Locks() == 0 })
		})
	}
}

func TestLocks_AnyCloseGivesAProcessesLocksBack(t *testing.T) {
	c := fusetest.New()
	m1, m2 := mountOn(t, c), mountOn(t, c)
	must(t, os.WriteFile(m1.path("f"), []byte("some bytes"), 0o644))
	_, err := os.ReadFile(m1.path("f")) // complete in the cache: the next reader may get the backing file
	must(t, err)
	fs := openAll(t, "f", m1, m2)
	wantErrno(t, "lock", fcntlLock(fs[0], setPID, unix.F_WRLCK, 0, 0), 0)
	wantErrno(t, "the same process again", fcntlLock(fs[0], setPID, unix.F_WRLCK, 5, 5), 0)
	wantErrno(t, "the other mount", fcntlLock(fs[1], setPID, unix.F_WRLCK, 0, 0), unix.EAGAIN)
	reader, err := os.Open(m1.path("f"))
	must(t, err)
	must(t, reader.Close())
	wantErrno(t, "after the close of another descriptor", fcntlLock(fs[1], setPID, unix.F_WRLCK, 0, 0), 0)
}

func TestLocks_WithoutAnyNobodyIsAsked(t *testing.T) {
	c := fusetest.New()
	m := mountOn(t, c)
	must(t, os.WriteFile(m.path("f"), []byte("x"), 0o644))
	for range 3 {
		_, err := os.ReadFile(m.path("f"))
		must(t, err)
	}
	for _, op := range []string{"TryLock", "Unlock", "TestLock", "LeaveLock"} {
		if n := c.Calls(op); n != 0 {
			t.Errorf("%d calls of %s", n, op)
		}
	}
}

func TestLocks_ShowWhatTheHolderBeforeHasWritten(t *testing.T) {
	for mode, change := range modes {
		t.Run(mode, func(t *testing.T) {
			c := fusetest.New()
			fs := openAll(t, "f", mountOn(t, c, change), mountOn(t, c, change))
			must(t, fs[0].Truncate(8192))
			var before [2]byte
			for i := range 200 {
				f := fs[i%2]
				wantErrno(t, "lock", fcntlLock(f, waitOFD, unix.F_WRLCK, 0, 0), 0)
				for k, off := range []int64{0, int64(i) + 8190} { // the second makes the file longer
					var got [1]byte
					if n, err := f.ReadAt(got[:], max(0, off-int64(k))); n != 1 || err != nil {
						t.Fatalf("round %d: %d bytes, %v", i, n, err)
					}
					if i > 0 && got[0] != before[k] {
						t.Fatalf("round %d reads %d at %d, not %d", i, got[0], off, before[k])
					}
					before[k] = byte(i + k)
					_, err := f.WriteAt([]byte{before[k]}, off)
					must(t, err)
				}
				if st, err := f.Stat(); err != nil || st.Size() != max(8192, int64(i)+8191) {
					t.Fatalf("round %d: %v bytes, %v", i, st.Size(), err)
				}
				wantErrno(t, "unlock", fcntlLock(f, waitOFD, unix.F_UNLCK, 0, 0), 0)
			}
		})
	}
}

func TestLocks_ReaderPastThisProcessIsToldThatItsFileIsOld(t *testing.T) {
	c := fusetest.New()
	m1, m2 := mountOn(t, c), mountOn(t, c)
	must(t, os.WriteFile(m1.path("f"), []byte("one"), 0o644))
	r, err := os.Open(m1.path("f"))
	must(t, err)
	defer func() { must(t, r.Close()) }()
	pass := m1.FS().Status().Passthrough.Open > 0
	wantErrno(t, "first lock", fcntlLock(r, setOFD, unix.F_RDLCK, 0, 0), 0)
	wantErrno(t, "unlock", fcntlLock(r, setOFD, unix.F_UNLCK, 0, 0), 0)
	must(t, os.WriteFile(m2.path("f"), []byte("two"), 0o644))
	err = fcntlLock(r, setOFD, unix.F_RDLCK, 0, 0)
	if pass {
		wantErrno(t, "lock of an old version", err, unix.ESTALE)
		if n := c.Locks(); n != 0 {
			t.Errorf("%d locks are left", n)
		}
		must(t, r.Close())
		if r, err = os.Open(m1.path("f")); err != nil {
			t.Fatal(err)
		}
		err = fcntlLock(r, setOFD, unix.F_RDLCK, 0, 0)
	}
	must(t, err)
	if got, err := io.ReadAll(io.NewSectionReader(r, 0, 10)); string(got) != "two" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if m1.FS().Status().Passthrough.Open > 0 && pass {
		t.Log("a locked file was opened for passthrough") // it had no lock when it was opened
	}
}

// waitingChild starts a process that waits for an exclusive flock.
func waitingChild(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "flock", "-x", path, "true")
	must(t, cmd.Start())
	return cmd
}

func TestLocks_WaitersAreInterruptedAndLeaveNothing(t *testing.T) {
	c := fusetest.New()
	m1, m2 := mountOn(t, c), mountOn(t, c)
	f := openAll(t, "f", m1)[0]
	wantErrno(t, "lock", unix.Flock(int(f.Fd()), unix.LOCK_EX), 0)
	var kids []*exec.Cmd
	for range 5 {
		kids = append(kids, waitingChild(t, m2.path("f")))
	}
	within(t, 10*time.Second, "five wait", func() bool { return m2.FS().Status().LockWaiters == 5 })
	for _, k := range kids[:4] {
		must(t, k.Process.Signal(syscall.SIGTERM))
		if err := k.Wait(); err == nil {
			t.Error("a waiter got the lock")
		}
	}
	within(t, 5*time.Second, "one waits", func() bool { return m2.FS().Status().LockWaiters == 1 })
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_UN))
	must(t, kids[4].Wait())
	within(t, 5*time.Second, "nothing is locked", func() bool { return c.Locks() == 0 })
}

// TestLocks_LateAnswerToAnInterruptedLockIsUndone holds the answer back until the program has gone.
func TestLocks_LateAnswerToAnInterruptedLockIsUndone(t *testing.T) {
	c := fusetest.New()
	m := mountOn(t, c)
	must(t, os.WriteFile(m.path("f"), nil, 0o644))
	asked, answer := make(chan struct{}), make(chan struct{})
	c.SetHook(func(_ context.Context, op string, _ objcache.Ino) error {
		if op == "TryLock" {
			close(asked)
			<-answer
		}
		return nil
	})
	k := waitingChild(t, m.path("f"))
	<-asked
	must(t, k.Process.Signal(syscall.SIGTERM))
	if err := k.Wait(); err == nil {
		t.Error("the program got the lock")
	}
	close(answer)
	within(t, 5*time.Second, "the lock is undone", func() bool { return c.Calls("Unlock") > 0 && c.Locks() == 0 })
}

func TestLocks_TwoHundredWaitersLeaveTheMountFree(t *testing.T) {
	c := fusetest.New()
	m := mountOn(t, c, func(cfg *mounter.Config) { cfg.MemoryBytes = 16 << 20 })
	f := openAll(t, "f", m)[0]
	wantErrno(t, "lock", fcntlLock(f, setOFD, unix.F_WRLCK, 0, 0), 0)
	const n = 200
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			w, err := os.OpenFile(m.path("f"), os.O_RDWR, 0)
			if err == nil {
				err = errors.Join(fcntlLock(w, waitOFD, unix.F_WRLCK, 0, 0), w.Close())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	within(t, 30*time.Second, "all wait", func() bool { return m.FS().Status().LockWaiters == n })
	start := time.Now()
	for i := range 50 {
		name := m.path(fmt.Sprint("g", i))
		must(t, os.WriteFile(name, make([]byte, 100_000), 0o644))
		got, err := os.ReadFile(name)
		if len(got) != 100_000 || err != nil {
			t.Fatal(len(got), err)
		}
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("50 files took %v", took)
	}
	wantErrno(t, "unlock", fcntlLock(f, setOFD, unix.F_UNLCK, 0, 0), 0)
	all.Wait()
}

func TestLocks_AWriterIsNotKeptBackByReadersForEver(t *testing.T) {
	c := fusetest.New()
	m := mountOn(t, c)
	fs := openAll(t, "f", m, m, m)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for _, f := range fs[:2] { // one of them has the lock all the time
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := errors.Join(fcntlLock(f, waitOFD, unix.F_RDLCK, 0, 0), fcntlLock(f, waitOFD, unix.F_UNLCK, 0, 0)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 10 {
		wantErrno(t, "write lock", fcntlLock(fs[2], waitOFD, unix.F_WRLCK, 0, 0), 0)
		wantErrno(t, "unlock", fcntlLock(fs[2], waitOFD, unix.F_UNLCK, 0, 0), 0)
	}
	close(stop)
	readers.Wait()
}

func TestSession_LostLocksMakeTheirDescriptorsUseless(t *testing.T) {
	c := fusetest.New()
	m := mountOn(t, c)
	fs := openAll(t, "f", m, m)
	locked, other := fs[0], fs[1]
	_, err := locked.Write([]byte("committed"))
	must(t, err)
	must(t, locked.Sync())
	wantErrno(t, "lock", fcntlLock(locked, setOFD, unix.F_WRLCK, 0, 0), 0)
	m.backend.Lose()
	if n := c.Locks(); n != 0 {
		t.Errorf("%d locks are left", n)
	}
	_, err = locked.WriteAt([]byte("x"), 0)
	wantErrno(t, "write", err, unix.EIO)
	wantErrno(t, "lock again", fcntlLock(locked, setOFD, unix.F_WRLCK, 0, 0), unix.EIO)
	within(t, 5*time.Second, "reading is refused", func() bool {
		_, err := locked.ReadAt(make([]byte, 9), 0)
		return errors.Is(err, unix.EIO)
	})
	_, err = other.WriteAt([]byte("C"), 0)
	wantErrno(t, "write through another descriptor", err, 0)
	wantErrno(t, "lock through it", fcntlLock(other, setOFD, unix.F_WRLCK, 0, 0), 0)
	must(t, other.Close())
	if got, _ := c.Content("f"); string(got) != "Committed" {
		t.Errorf("%q", got)
	}
}

func TestSession_WritesOfALostOneAreCommittedOnlyIfNobodyWroteSince(t *testing.T) {
	for _, changed := range []bool{false, true} {
		t.Run(fmt.Sprintf("changed %v", changed), func(t *testing.T) {
			c := fusetest.New()
			m, other := mountOn(t, c), mountOn(t, c)
			must(t, os.WriteFile(m.path("f"), []byte("base base base"), 0o644))
			f, err := os.OpenFile(m.path("f"), os.O_RDWR, 0)
			must(t, err)
			_, err = f.WriteAt([]byte("MINE"), 5)
			must(t, err)
			if changed {
				must(t, os.WriteFile(other.path("f"), []byte("THEIRS THEIRS THEIRS"), 0o644))
			}
			m.backend.Lose()
			want := "base MINE base"
			if changed {
				want = "THEIRS THEIRS THEIRS"
				within(t, 10*time.Second, "the writes are set aside", func() bool { return len(m.FS().Status().SetAside) == 1 })
				got, ok := c.Content(m.FS().Status().SetAside[0])
				if !ok || string(got) != "THEIRMINEEIRS THEIRS" {
					t.Errorf("set aside: %q", got)
				}
			}
			within(t, 10*time.Second, "the file is as it should be", func() bool { got, _ := c.Content("f"); return string(got) == want })
			must(t, f.Close())
			if got, _ := c.Content("f"); string(got) != want {
				t.Errorf("%q", got)
			}
		})
	}
}

// TestLocks_ShowWhatWasWrittenPastThePagesOfTheSameMount: two nodes of one file, one with pages, the other beside the backing file of a reader. sqlite on one
// mount lost updates so.
func TestLocks_ShowWhatWasWrittenPastThePagesOfTheSameMount(t *testing.T) {
	c := fusetest.New()
	m := mountOn(t, c)
	must(t, os.WriteFile(m.path("f"), make([]byte, 8192), 0o644))
	reader, err := os.Open(m.path("f"))
	must(t, err)
	paged, err := os.OpenFile(m.path("f"), os.O_RDWR, 0)
	must(t, err)
	beside, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", reader.Fd()), os.O_WRONLY, 0)
	must(t, err)
	var got [1]byte
	for i := range byte(20) {
		wantErrno(t, "lock", fcntlLock(beside, waitOFD, unix.F_WRLCK, 0, 0), 0)
		_, err := beside.WriteAt([]byte{i + 1}, 4096)
		must(t, err)
		wantErrno(t, "unlock", fcntlLock(beside, waitOFD, unix.F_UNLCK, 0, 0), 0)
		wantErrno(t, "lock", fcntlLock(paged, waitOFD, unix.F_WRLCK, 0, 0), 0)
		_, err = paged.ReadAt(got[:], 4096)
		must(t, err)
		if got[0] != i+1 {
			t.Fatalf("%d instead of %d", got[0], i+1)
		}
		wantErrno(t, "unlock", fcntlLock(paged, waitOFD, unix.F_UNLCK, 0, 0), 0)
	}
	_, err = beside.WriteAt([]byte{99}, 4096) // without a lock a moment later
	must(t, err)
	within(t, 5*time.Second, "the pages are dropped", func() bool {
		_, err := paged.ReadAt(got[:], 4096)
		return err == nil && got[0] == 99
	})
	must(t, errors.Join(paged.Close(), beside.Close(), reader.Close()))
}

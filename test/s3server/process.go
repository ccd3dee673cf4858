package s3server

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// process is a child that dies with this process. The kernel sends Pdeathsig when the *thread* that forked ends, so one
// goroutine holds that thread for as long as the child lives.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child is gone
	err  error         // its end; read only after done
	kill sync.Once
}

func startProcess(cmd *exec.Cmd, logFile string) (*process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own copy
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, <-started
}

// stop kills the child. That it died of it is no error.
func (p *process) stop() error {
	var err error
	p.kill.Do(func() { err = p.cmd.Process.Kill() })
	<-p.done
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

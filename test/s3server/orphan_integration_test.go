//go:build integration

package s3server

import (
	"bufio"
	"fmt"
	"github.com/objcache/objcache/test/wait"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// starterDir in the environment makes this test binary start a server in that directory, print its pid and hang.
const starterDir = "OBJCACHE_TEST_STARTER_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(starterDir); dir != "" {
		starter(dir)
	}
	os.Exit(m.Run())
}

func starter(dir string) {
	bin, err := Find("OBJCACHE_VERSITYGW", "versitygw")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	p, err := startProcess(exec.Command(bin, "--access", AccessKey, "--secret", SecretKey, "--port", "127.0.0.1:0", "posix", dir), dir+"/log.txt")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(p.cmd.Process.Pid)
	<-p.done
	os.Exit(1)
}

func TestStart_ServerDiesWithItsStarter(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), starterDir+"="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, readErr := bufio.NewReader(out).ReadString('\n')
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || readErr != nil {
		t.Fatalf("the starter said %q (%v)", line, readErr)
	}
	t.Cleanup(func() {
		if alive(pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	wait.Until(t, 30*time.Second, "the server ends with its starter", func() bool { return !alive(pid) })
}

// alive: a zombie waits only for init to fetch it.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

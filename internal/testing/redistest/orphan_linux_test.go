package redistest_test

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
)

// orphanEnv in the environment makes TestOrphan the process that is killed.
const orphanEnv = "REDISTEST_ORPHAN"

// TestOrphan runs this test binary again, kills it, and checks that its server ends too.
func TestOrphan(t *testing.T) {
	if os.Getenv(orphanEnv) != "" {
		s := redistest.Start(t)
		os.Stdout.WriteString("\nserver " + s.Addr() + "\n")
		<-time.After(time.Minute) // until it is killed
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestOrphan$")
	cmd.Env = append(os.Environ(), orphanEnv+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	var addr string
	for lines := bufio.NewScanner(out); addr == "" && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "server "); ok {
			addr = text
		}
	}
	must.Succeed(t, cmd.Process.Kill())
	// The error only reports that it was killed.
	_ = cmd.Wait()
	if addr == "" {
		t.Fatal("the server has not started")
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("the server has outlived the test binary")
		}
	}
}

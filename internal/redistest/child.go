package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// child is one process that this package started. Its pid is never signalled after it has been reaped: os.Process
// sees to that.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the process has been reaped
}

// startChild starts the program with its output appended to the log file.
func startChild(program string, args []string, dir, logPath string) (*child, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	c := &child{cmd: exec.Command(program, args...), done: make(chan struct{})}
	c.cmd.Dir, c.cmd.Stdout, c.cmd.Stderr = dir, log, log
	c.cmd.SysProcAttr = dieWithParent()
	started := make(chan error, 1)
	go c.runChild(started)
	return c, <-started
}

// runChild starts the process and reaps it on one locked thread. The kernel sends a parent-death signal when the
// thread that forked ends, not the process; the thread of an ordinary goroutine ends whenever some other goroutine
// that locked itself to it returns, and would take the server along in the middle of a test.
func (c *child) runChild(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.done)
	err := c.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	// The exit status says nothing that the log doesn't say better.
	_ = c.cmd.Wait()
}

// exited tells whether the process has ended.
func (c *child) exited() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// signal sends a signal; a process that has ended is no error.
func (c *child) signal(sig syscall.Signal) error {
	if err := c.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %v: %w", sig, err)
	}
	return nil
}

// kill ends the process at once, stopped or not, and waits until it is gone.
func (c *child) kill() error {
	if err := c.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-c.done
	return nil
}

// terminate asks the process to end, and kills it if it has not done so in time.
func (c *child) terminate(patience time.Duration) error {
	// A stopped process would see SIGTERM only after it is continued.
	if err := errors.Join(c.signal(syscall.SIGTERM), c.signal(syscall.SIGCONT)); err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-time.After(patience):
		return errors.Join(fmt.Errorf("did not end %v after SIGTERM", patience), c.kill())
	}
}

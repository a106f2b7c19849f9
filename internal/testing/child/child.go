package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Child is one process.
type Child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the process has been reaped
}

// Start starts a command and reaps it when it ends. It sets cmd.SysProcAttr.
func Start(cmd *exec.Cmd) (*Child, error) {
	c := &Child{cmd: cmd, done: make(chan struct{})}
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error, 1)
	go c.runChild(started)
	return c, <-started
}

// runChild starts the process and reaps it on one locked thread. The kernel sends a parent-death
// signal when the thread that forked ends, not the process; the thread of an ordinary goroutine may
// end at any time, when another goroutine that was locked to it returns. That would kill the child
// in the middle of a test.
func (c *Child) runChild(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.done)
	err := c.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = c.cmd.Wait() // see ExitCode
}

// Pid returns the process id.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Done is closed once the process has been reaped.
func (c *Child) Done() <-chan struct{} { return c.done }

// Exited reports whether the process has ended.
func (c *Child) Exited() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// ExitCode waits for the end of the process and returns its status, -1 if a signal ended it.
func (c *Child) ExitCode() int {
	<-c.done
	return c.cmd.ProcessState.ExitCode()
}

// Signal sends a signal. It is not an error if the process has ended.
func (c *Child) Signal(sig syscall.Signal) error {
	if err := c.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %v: %w", sig, err)
	}
	return nil
}

// Pause stops the process (SIGSTOP), and returns once it does nothing any more.
func (c *Child) Pause() error {
	if err := c.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return c.awaitStop()
}

// Kill ends the process at once, stopped or not, and waits until it is gone.
func (c *Child) Kill() error {
	if err := c.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-c.done
	return nil
}

// Terminate sends SIGTERM. If the process has not ended after patience, it kills the process and
// returns an error.
func (c *Child) Terminate(patience time.Duration) error {
	// A stopped process would see SIGTERM only after it is continued.
	if err := errors.Join(c.Signal(syscall.SIGTERM), c.Signal(syscall.SIGCONT)); err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-time.After(patience):
		return errors.Join(fmt.Errorf("did not end %v after SIGTERM", patience), c.Kill())
	}
}

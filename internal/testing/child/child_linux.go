package child

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent makes the kernel kill the child when the thread that started it ends: see runChild.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// awaitStop waits until all threads of the process have stopped: after SIGSTOP they go on until
// they next leave the kernel or are interrupted. It is not an error if the process has ended.
func (c *Child) awaitStop() error {
	for {
		err := unix.Waitid(unix.P_PID, c.Pid(), nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err == nil, errors.Is(err, unix.ECHILD):
			return nil
		}
		return fmt.Errorf("wait for the stop: %w", err)
	}
}

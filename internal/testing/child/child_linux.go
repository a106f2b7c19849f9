package child

import "syscall"

// dieWithParent makes the kernel kill the child when the thread that started it ends: see runChild.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

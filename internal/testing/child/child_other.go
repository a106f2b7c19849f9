//go:build !linux

package child

import "syscall"

// dieWithParent does nothing: this system has no parent-death signal, so a killed test binary
// leaves its children behind.
func dieWithParent() *syscall.SysProcAttr { return nil }

// awaitStop does nothing: the process may go on for a moment.
func (c *Child) awaitStop() error { return nil }

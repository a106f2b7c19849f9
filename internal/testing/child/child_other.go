//go:build !linux

package child

import "syscall"

// dieWithParent does nothing: this system has no parent-death signal, so a killed test binary
// leaves its children behind.
func dieWithParent() *syscall.SysProcAttr { return nil }

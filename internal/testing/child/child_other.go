//go:build !linux

package child

import "syscall"

// dieWithParent does nothing where there is no parent-death signal: there a killed test binary
// leaves its children behind.
func dieWithParent() *syscall.SysProcAttr { return nil }

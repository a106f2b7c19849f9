//go:build !linux

package redistest

import "syscall"

// dieWithParent does nothing where there is no parent-death signal: there a killed test binary leaves its servers behind.
func dieWithParent() *syscall.SysProcAttr { return nil }

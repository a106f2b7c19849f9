//go:build !linux

package faulttest

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }

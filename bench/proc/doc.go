// Package proc starts the servers that are measured, each in a process of its own on a free port of
// 127.0.0.1, and stops only those. The caller owns a process that it starts and must call Stop; the
// process also ends when this process does.
package proc

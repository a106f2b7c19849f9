// Package proc starts the measured servers, each in a separate process on a free port of 127.0.0.1,
// and stops only these. The caller owns a process that it starts and must call Stop; the process
// also ends when this process does.
package proc

// Package proc starts the servers that are measured, each as a process of its own on a free port of 127.0.0.1, and stops
// exactly those. A started process is owned by whoever started it, who must call Stop; cancelling the context does the
// same.
package proc

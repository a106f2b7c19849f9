// Package proc starts the servers that are measured, each as a process of its own on a free port of
// 127.0.0.1, and stops exactly those. A started process is owned by whoever started it, who must
// call Stop; it also ends when this process does.
package proc

// Package drive has one driver for all limiters: it draws decisions from a workload, asks for them one by one or many at a
// time, in a closed or an open loop, and measures what came of it.
package drive

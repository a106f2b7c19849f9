// Package zones reads the time zones of calendar windows from the newer of two databases: the one
// of the machine and the one that is built into the program. So an old database of a machine does
// not shift a period, and a new one needs no new program.
//
// zoneinfo.zip is the database of the Go distribution. When a new one has appeared, copy its
// lib/time/zoneinfo.zip and set builtInVersion; a test compares both.
//
// All functions are safe for concurrent use. The choice is made once, at the first use: an update
// of the machine takes effect when the program starts again.
package zones

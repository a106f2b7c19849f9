// Package load makes calls at a rate or as fast as they return, and measures their latencies.
//
// There are two modes. A closed loop ([Loop].Rate is 0) keeps a number of connections busy. It
// finds the highest throughput, but it slows down with the server, so its latencies are too good.
// An open loop sends at a fixed rate whether the server keeps up or not, and measures each latency
// from the time the request was due, not from the time a connection became free. A stall then
// counts for every request that had to wait (coordinated omission, see Gil Tene, "How NOT to
// Measure Latency").
//
// [Loop] makes and times calls of any kind in either mode, and [Keys] draws keys.
package load

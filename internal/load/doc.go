// Package load generates load for a running twotier server and measures the latency of its answers.
//
// There are two modes. A closed loop ([Options].Rate is 0) keeps a number of connections busy. It
// finds the highest throughput, but it slows down with the server, so its latencies are too good.
// An open loop sends at a fixed rate whether the server keeps up or not, and measures each latency
// from the time the request was due, not from the time a connection became free. A stall then
// counts for every request that had to wait (coordinated omission, see Gil Tene, "How NOT to
// Measure Latency").
//
// [Loop] makes and times calls of any kind in either mode, [Client] posts JSON, and [Keys] draws
// keys. [Run] combines them, as do the benchmarks of other limiters in the bench module.
//
// [Run] ends at the latest one timeout after its duration, and waits for all goroutines it started.
// The keys it counts start with "bench:" and stay until they expire.
package load

// Package load generates load for a running twotier server and measures how long its answers take.
//
// There are two ways to do so. A closed loop ([Options].Rate is 0) keeps a number of connections
// busy: it finds the largest throughput, but slows down together with the server, so its latencies
// flatter. An open loop sends at a fixed rate whether the server keeps up or not, and measures each
// latency from the moment when the request was due, not when a connection became free for it: a
// stall counts for every request that had to wait (coordinated omission, see Gil Tene, "How NOT to
// Measure Latency").
//
// [Loop] makes calls of any kind in either way and times them, [Client] posts JSON, [Keys] draws
// keys: they are what [Run] is made of, and what the benchmarks of the bench module drive other
// limiters with.
//
// [Run] ends after the duration and one timeout at the latest. It waits for all goroutines it
// starts. The keys it counts start with "bench:"; nothing removes them but time.
package load

// Command compare drives every limiter through the same workloads and measures throughput, latency, processor time, what is
// asked of Redis, memory and allocations. Each rival starts anew for each workload.
package main

// Package micro has the Go benchmarks: the parts by themselves, compared with Sentinel's leap array
// and a bare map under mutexes; the memory and time that keys take; and what it costs to share a
// key, to read it back, and to ask a node that doesn't own it. The commands of cmd/bench run them
// and make tables from their results.
//
// With -max-keys they use as many keys as memory allows.
package micro

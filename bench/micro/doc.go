// Package micro has the Go benchmarks: the parts by themselves, compared with Sentinel's leap array
// and a bare map under mutexes; the memory and time that keys take; what a flush interval trades,
// requests notice of a flush, a crash loses, and a forwarded request costs; a server compared with
// one that does nothing, and with Envoy's own rate limit service. The commands of cmd/bench run
// them and make tables from what they print.
//
// Flags raise the sizes, as far as there is memory and time.
package micro

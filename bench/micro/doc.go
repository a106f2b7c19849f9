// Package micro has the Go benchmarks: the parts by themselves, compared with Sentinel's leap array
// and a bare map under mutexes; the memory and time that keys take; the trade-off of a flush
// interval, the effect of a flush on requests, the loss in a crash, and the cost of a forwarded
// request; a server compared with one that does nothing, and with Envoy's own rate limit service.
// The commands of cmd/bench run them and make tables from their output.
//
// Flags raise the sizes, as far as there is memory and time.
package micro

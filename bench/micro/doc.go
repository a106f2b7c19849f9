// Package micro has the Go benchmarks of what can be measured by calling it over and over: parts by
// themselves, against Sentinel's leap array and a bare map under mutexes; what keys take and cost;
// and what it costs to share a key, to read it back, and to ask another node than its owner. The
// commands of cmd/bench run them and make tables of what they report.
//
// With -max-keys they go to as many keys as there is memory for.
package micro

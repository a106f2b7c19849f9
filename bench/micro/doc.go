// Package micro has the Go benchmarks of twotier's parts by themselves, against Sentinel's leap
// array and a bare map under mutexes.
package micro

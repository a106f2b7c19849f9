// Package trace makes the traffic that the comparisons replay. Everything comes from a seed: the same arguments give the
// same trace on every machine.
package trace

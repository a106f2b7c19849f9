// Package bench compares the parts of twotier with what one would use instead. It has benchmarks only; the comparisons of
// whole servers are the commands below cmd. See README.md.
package bench

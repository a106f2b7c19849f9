// Package measure says what work costs: processor time of each of the processes that take part, what Redis did, memory, and
// allocations.
package measure

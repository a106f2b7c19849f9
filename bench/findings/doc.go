// Package findings reads what the benchmarks have written, for what is made of it: the report with its pictures and goals, and
// the plan.
package findings

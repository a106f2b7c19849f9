// Package mutants breaks the code on purpose, in the ways in which counters like this one go wrong,
// and shows that the schedules of internal/e2e/simtest, or the model of a part, notice each of
// them. The tree is not touched: the compiler is given another text of one file (go help build,
// -overlay).
//
//	go test ./internal/e2e/mutants -v
package mutants

// Package mutants breaks the code on purpose, in the ways in which counters like this one go wrong,
// and checks that the schedules of internal/e2e/simtest, or the model of a part, notice each
// mutant. The tree is not changed: the compiler reads one file from an overlay (go help build,
// -overlay).
//
//	go test ./internal/e2e/mutants -v -all
//
// Without -all it leaves out rare mutants, which resemble others or take long to be noticed;
// with -sample 8 -draw 7 it draws 8 of them by the seed 7.
package mutants

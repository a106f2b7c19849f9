// Command testrun runs go test so that nothing is skipped silently.
//
//	testrun [-stall TIME] [-dir DIR] [-allow FILE] -- [ARGUMENTS] [PACKAGES]
//
// It prints a line when a package is done, the whole output of failed tests, then every skipped
// test with its reason, the ten packages that took longest, and at the end go test's own lines, one
// per package. A skipped test must be on the list of allowed skips: each line of that file is a
// regular expression that is matched against "package.Test: reason"; empty lines and lines that
// begin with # are ignored. Any other skip is a failure, as is everything that go test reports as
// one.
//
// With -stall, all processes of the tests stand still for moments of up to that time.
package main

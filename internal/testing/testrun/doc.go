// Command testrun runs go test so that nothing is skipped silently.
//
//	testrun [-race] [-plain ARGUMENTS] [-stall TIME] [-dir DIR] [-allow FILE] --
//	    [ARGUMENTS] [PACKAGES]
//
// It prints a line when a package is done, the whole output of failed tests, then every skipped
// test with its reason, and at the end go test's own lines, one per package. A test that skips
// itself under the race detector, with "race detector" in its reason, is run again without it. A
// test that is still skipped must be on the list of allowed skips: each line of that file is a
// regular expression that is matched against "package.Test: reason"; empty lines and lines that
// begin with # are ignored. Any other skip is a failure, as is everything that go test reports as
// one.
//
// With -plain, further packages are tested at the same time, never under the race detector, and
// reported together with the others.
//
// With -stall, all processes of the tests stand still for moments of up to that time.
package main

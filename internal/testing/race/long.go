package race

import "testing"

// SkipLong skips a test that computes for long and shares little memory between goroutines: in the
// short run of make test, and under the race detector, which makes it ten times as long. make check
// runs it.
func SkipLong(t *testing.T) {
	t.Helper()
	if testing.Short() || Enabled {
		t.Skip("takes long: make check runs it")
	}
}

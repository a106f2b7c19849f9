package resp_test

import (
	"testing"

	"twotier.dev/twotier/internal/resp"
	"twotier.dev/twotier/internal/testing/costtable"
)

// TestEveryCommandHasACost compares the commands with the table of costs.
func TestEveryCommandHasACost(t *testing.T) {
	costtable.Compare(t, "../../docs/security.md", resp.Names(), func(call string) bool {
		return call[0] != '/'
	})
}

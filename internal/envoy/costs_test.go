package envoy_test

import (
	"strings"
	"testing"

	"twotier.dev/twotier/internal/envoy"
	"twotier.dev/twotier/internal/testing/costtable"
)

// TestEveryMethodHasACost compares the methods with the table of costs.
func TestEveryMethodHasACost(t *testing.T) {
	costtable.Compare(t, "../../docs/security.md", serve(t, envoy.Options{}).Methods(),
		func(call string) bool { return strings.Contains(call, ".v") })
}

package node_test

import (
	"testing"

	"twotier.dev/twotier/internal/node"
)

// TestRequestKindsDiffer: no two kinds of requests share a number or a name.
func TestRequestKindsDiffer(t *testing.T) {
	codes, names := map[byte]bool{}, map[string]bool{}
	for _, kind := range node.RequestKinds() {
		if codes[kind.Code] || names[kind.Name] {
			t.Errorf("there are two of number %d or name %q", kind.Code, kind.Name)
		}
		codes[kind.Code], names[kind.Name] = true, true
	}
}

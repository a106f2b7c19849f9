package trace_test

import (
	"strings"
	"testing"

	"twotier.dev/twotier/internal/trace"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestParseID covers all parts of the header.
func TestParseID(t *testing.T) {
	for _, good := range []string{parent, parent[:53] + "02", parent[:53] + "ff",
		"cc" + parent[2:], "cc" + parent[2:] + "-future"} {
		if id := trace.ParseID(good); id != parent[3:35] {
			t.Errorf("%q: %q", good, id)
		}
	}
	for _, bad := range []string{"", parent[:54], parent + "-x", parent + "0",
		"cc" + parent[2:] + "x", "ff" + parent[2:], "0g" + parent[2:], strings.ToUpper(parent),
		parent[:53] + "0x", "00_" + parent[3:], parent[:35] + "_" + parent[36:],
		parent[:52] + "_" + parent[53:],
		parent[:3] + "g" + parent[4:], parent[:36] + "g" + parent[37:],
		"00-" + strings.Repeat("0", 32) + parent[35:],
		parent[:36] + strings.Repeat("0", 16) + "-00",
	} {
		if id := trace.ParseID(bad); id != "" {
			t.Errorf("%q: %q", bad, id)
		}
	}
}

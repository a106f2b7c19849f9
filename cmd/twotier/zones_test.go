package main

import (
	"testing"

	"twotier.dev/twotier/internal/warning"
	"twotier.dev/twotier/ring"
)

// TestMembersWithOtherZones lists the releases of a cluster: one warning for each other release,
// and none about members that announce none.
func TestMembersWithOtherZones(t *testing.T) {
	list := lintZones("2025c", []ring.Member{{ID: "self", Zones: "2025c"},
		{ID: "d", Zones: "2026a"}, {ID: "old"}, {ID: "c", Zones: "2024a"},
		{ID: "b", Zones: "2026a"}})
	if len(list) != 2 || list[0].At != "nodes c" || list[1].At != "nodes b, d" {
		t.Errorf("%v", list)
	}
	for _, w := range list {
		if w.Code != warning.ZonesDiffer || w.Reason == "" || w.Instead == "" {
			t.Errorf("%+v", w)
		}
	}
	if list := lintZones("2025c", []ring.Member{{ID: "self", Zones: "2025c"}, {ID: "old"}}); len(
		list) > 0 {
		t.Errorf("%v", list)
	}
}

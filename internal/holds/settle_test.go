package holds_test

import (
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/holds"
)

// TestMarksOutliveTheirHolds: each check of a hold has a mark of its own, in the partition of its
// key, and the store keeps it until the hold has ended, however long it lasts.
func TestMarksOutliveTheirHolds(t *testing.T) {
	place := twotier.Placement{Partitions: 1021}
	spans := twotier.CompanionNamespaces()
	for _, length := range []int64{1, 60_000, 120_000, 120_001, 3_600_000, 86_400_000} {
		h, err := newSealer("s").Open(newSealer("s").Seal(&holds.Hold{Until: length,
			Checks: []holds.Check{{Key: []byte("k"), N: 1},
				{Key: []byte("k"), N: 1, Leased: true}}}))
		if err != nil {
			t.Fatal(err)
		}
		s := h.Settle(0, []int64{3, 0}, func(*holds.Check) []twotier.Limit { return nil })
		marks := map[string]bool{}
		for i := range s.Ops {
			op := &s.Ops[i]
			mark := &op.Checks[1]
			if op.Checks[0].N != int64(2-3*i) || op.TS != 0 || mark.Until != length+600_000 {
				t.Errorf("%+v", op)
			}
			span := spans[twotier.Companion(mark.NS)].Milliseconds()
			if span < length+660_000 {
				t.Errorf("the mark of %d ms lasts %d", length, span)
			}
			if place.Of(mark.NS, mark.Key) != place.Of(nil, []byte("k")) {
				t.Error("a mark is in another partition")
			}
			marks[string(mark.Key)] = true
		}
		if len(marks) != 2 || len(s.Ops[0].Checks) != 2 || len(s.Ops[1].Checks) != 3 {
			t.Errorf("%d marks, %+v", len(marks), s.Ops)
		}
	}
}

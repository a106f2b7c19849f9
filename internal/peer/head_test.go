package peer_test

import (
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/peer"
)

// TestHead reads every head that there could be: a node accepts those that it would write, with a
// bit for each boolean, and refuses bits that it does not know.
func TestHead(t *testing.T) {
	known, want := uint16(0), uint16(0x732f) // of the verb, the time, the kind and the ack
	for f := range fields.Booleans.All() {
		want |= f.Bit()
	}
	for head := range 1 << 16 {
		op, again, ok := peer.ReadHead(uint16(head))
		if ok && again != uint16(head) {
			t.Fatalf("%016b is read as %+v, which is written as %016b", head, op, again)
		}
		for f := range fields.Booleans.All() {
			if ok && *f.Value(&op) != (uint16(head)&f.Bit() != 0) {
				t.Fatalf("%016b: %s is %v", head, f.Name(), *f.Value(&op))
			}
		}
		if ok {
			known |= uint16(head)
		}
	}
	if known != want {
		t.Errorf("the known bits are %016b, want %016b", known, want)
	}
	op := twotier.Op{Kind: twotier.Acquire, Ack: twotier.AckStore, Charge: true, DryRun: true,
		CountDenied: true}
	if head := peer.Head(&op); head != 0x2a90 {
		t.Errorf("%#x; nodes of the previous version write 0x2a90", head)
	}
}

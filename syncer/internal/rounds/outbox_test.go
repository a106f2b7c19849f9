package rounds

import (
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier/syncer/store"
)

func sequences(rounds []*Round) (all []store.Mark) {
	for _, r := range rounds {
		all = append(all, store.Mark{Writer: r.Writer, Seq: r.Seq})
	}
	return all
}

// TestOutboxKeepsWhatIsQueuedInOrder sends rounds that were cut by this counter and by another one.
func TestOutboxKeepsWhatIsQueuedInOrder(t *testing.T) {
	o := Outbox{Writer: "here"}
	own := &Round{Round: store.Round{Writer: "here"}}
	o.AssignSequence(own)
	o.Flight = own
	now := time.Now()
	for seq := uint64(3); seq <= 4; seq++ {
		r := Adopt(&store.Round{Writer: "there", Seq: seq, Keys: make([]store.KeyRound, 2)})
		if !o.QueueImport(r, now) {
			t.Fatalf("round %d was taken over before", seq)
		}
	}
	if o.QueueImport(&Round{Round: store.Round{Writer: "there", Seq: 4}}, now) {
		t.Error("a round is taken over twice")
	}
	want := []store.Mark{{Writer: "here", Seq: 1}, {Writer: "there", Seq: 3},
		{Writer: "there", Seq: 4}}
	if got := sequences(o.All()); !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	if o.MaybeSent = true; o.ImportsSent() || o.ImportedKeys != 4 || o.ImportedSince != now {
		t.Errorf("%+v", o)
	}
	for o.Acknowledge(5, o.Flight); len(o.Queue) > 0; o.Acknowledge(5, o.Flight) {
		if !o.MaybeSent {
			t.Error("nobody else may have sent what is in the queue")
		}
		o.Next()
	}
	o.Flight = nil
	imports := !o.ImportsSent() || o.MaybeSent || o.ImportedKeys != 0 || !o.ImportedSince.IsZero()
	if !o.IsEmpty() || imports {
		t.Errorf("%+v", o)
	}
	if want := (store.Mark{Partition: 5, Writer: "there", Seq: 4}); o.Mark != want || o.Acked != 1 {
		t.Errorf("acknowledged %v, and %d of the own, want %v and 1", o.Mark, o.Acked, want)
	}
}

// TestRenumberedRoundsFollowOneAnother renames the rounds in flight, except the ones that another
// counter cut.
func TestRenumberedRoundsFollowOneAnother(t *testing.T) {
	o := Outbox{Writer: "here", seq: 8, Acked: 6}
	flight := &Round{Round: store.Round{Writer: "here", Seq: 7, Acked: 6, Nonce: 1}}
	o.Flight = flight
	o.Queue = []*Round{
		{Round: store.Round{Writer: "there", Seq: 3, Acked: 2}},
		{Round: store.Round{Writer: "here", Seq: 8, Acked: 6, Nonce: 2}},
	}
	name := o.Renumber(flight)
	want := []store.Mark{{Writer: name, Seq: 1}, {Writer: "there", Seq: 3}, {Writer: name, Seq: 2}}
	if got := sequences(o.All()); name == "here" || !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if flight.Acked != 0 || flight.Nonce == 1 || o.Queue[0].Acked != 2 {
		t.Errorf("the flight %+v, the other's %+v", flight, o.Queue[0])
	}
	if next := (&Round{}); o.Writer != name || o.Acked != 0 {
		t.Errorf("%+v", o)
	} else if o.AssignSequence(next); next.Seq != 3 {
		t.Errorf("the next is number %d, want 3", next.Seq)
	}
}

// TestWhatMayHaveBeenSentIsRemembered takes all rounds out to hand them off.
func TestWhatMayHaveBeenSentIsRemembered(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		first := &Round{Round: store.Round{Seq: 1}, OutcomeUnknown: unknown}
		o := Outbox{Flight: first, Queue: []*Round{{Round: store.Round{Seq: 2}}}}
		if got := o.RemoveAll(); len(got) != 2 || !o.IsEmpty() || o.MaybeSent != unknown {
			t.Errorf("of unknown outcome %v: took %d, %+v", unknown, len(got), o)
		}
		o.ResetAfterHandoff("n1")
		o.ResetAfterHandoff("n1")
		if o.Writer != "n1.2" || o.MaybeSent || o.seq != 0 {
			t.Errorf("%+v", o)
		}
	}
}

// TestReadsLeaveNoDoubt: once a round that only read has failed, no round is left that others may
// have sent.
func TestReadsLeaveNoDoubt(t *testing.T) {
	o := Outbox{Flight: &Round{}, MaybeSent: true, Queue: []*Round{{}}}
	if o.GiveUp(); !o.MaybeSent {
		t.Error("the queue may have been sent")
	}
	o.Queue = nil
	if o.GiveUp(); o.MaybeSent || !o.IsEmpty() {
		t.Errorf("%+v", o)
	}
}

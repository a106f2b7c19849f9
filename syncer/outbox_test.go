package syncer

import (
	"testing"
	"time"
)

func sequences(rounds []*round) (all []Mark) {
	for _, r := range rounds {
		all = append(all, Mark{Writer: r.Writer, Seq: r.Seq})
	}
	return all
}

func equalMarks(a, b []Mark) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// TestOutboxKeepsWhatIsQueuedInOrder sends rounds that were cut by this counter and by another one.
func TestOutboxKeepsWhatIsQueuedInOrder(t *testing.T) {
	o := outbox{writer: "here"}
	own := &round{Round: Round{Writer: "here"}}
	o.number(own)
	o.flight = own
	now := time.Now()
	for seq := uint64(3); seq <= 4; seq++ {
		r := &round{Round: Round{Writer: "there", Seq: seq, Keys: make([]KeyRound, 2)}}
		if !o.queueImport(r, now) {
			t.Fatalf("round %d was taken over before", seq)
		}
	}
	if o.queueImport(&round{Round: Round{Writer: "there", Seq: 4}}, now) {
		t.Error("a round is taken over twice")
	}
	want := []Mark{{Writer: "here", Seq: 1}, {Writer: "there", Seq: 3}, {Writer: "there", Seq: 4}}
	if got := sequences(o.all()); !equalMarks(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	if o.maybeSent = true; o.importsSent() || o.importedKeys != 4 || o.importedSince != now {
		t.Errorf("%+v", o)
	}
	for o.acknowledge(5, o.flight); len(o.queue) > 0; o.acknowledge(5, o.flight) {
		if !o.maybeSent {
			t.Error("nobody else may have sent what is in the queue")
		}
		o.next()
	}
	o.flight = nil
	imports := !o.importsSent() || o.maybeSent || o.importedKeys != 0 || !o.importedSince.IsZero()
	if !o.isEmpty() || imports {
		t.Errorf("%+v", o)
	}
	if want := (Mark{Partition: 5, Writer: "there", Seq: 4}); o.mark != want || o.acked != 1 {
		t.Errorf("acknowledged %v, and %d of the own, want %v and 1", o.mark, o.acked, want)
	}
}

// TestRenumberedRoundsFollowOneAnother renames the rounds in flight, except the ones that another
// counter cut.
func TestRenumberedRoundsFollowOneAnother(t *testing.T) {
	o := outbox{writer: "here", seq: 8, acked: 6}
	flight := &round{Round: Round{Writer: "here", Seq: 7, Acked: 6, Nonce: 1}}
	o.flight = flight
	o.queue = []*round{
		{Round: Round{Writer: "there", Seq: 3, Acked: 2}},
		{Round: Round{Writer: "here", Seq: 8, Acked: 6, Nonce: 2}},
	}
	name := o.renumber(flight)
	want := []Mark{{Writer: name, Seq: 1}, {Writer: "there", Seq: 3}, {Writer: name, Seq: 2}}
	if got := sequences(o.all()); name == "here" || !equalMarks(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if flight.Acked != 0 || flight.Nonce == 1 || o.queue[0].Acked != 2 {
		t.Errorf("the flight %+v, the other's %+v", flight, o.queue[0])
	}
	if next := (&round{}); o.writer != name || o.acked != 0 {
		t.Errorf("%+v", o)
	} else if o.number(next); next.Seq != 3 {
		t.Errorf("the next is number %d, want 3", next.Seq)
	}
}

// TestWhatMayHaveBeenSentIsRemembered takes all rounds out to hand them off.
func TestWhatMayHaveBeenSentIsRemembered(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		first := &round{Round: Round{Seq: 1}, outcomeUnknown: unknown}
		o := outbox{flight: first, queue: []*round{{Round: Round{Seq: 2}}}}
		if got := o.takeAll(); len(got) != 2 || !o.isEmpty() || o.maybeSent != unknown {
			t.Errorf("of unknown outcome %v: took %d, %+v", unknown, len(got), o)
		}
		o.release("n1")
		o.release("n1")
		if o.writer != "n1.2" || o.maybeSent || o.seq != 0 {
			t.Errorf("%+v", o)
		}
	}
}

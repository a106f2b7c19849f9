package rounds

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/store"
)

// Outbox holds the rounds of a partition that the store has not acknowledged, and the writer and
// sequence of the next one. At most one writing round is with the store at a time. An unanswered
// one stays unchanged until there is an answer. It is guarded by the partition's lock.
type Outbox struct {
	Retry       Backoff    // after a failed exchange
	Writer      string     // the name under which rounds are cut here
	incarnation int        // number of earlier names, one for each handoff
	seq, Acked  uint64     // the writer's last sequence cut, and acknowledged
	Mark        store.Mark // of the last acknowledged round of any writer

	Sent   bool     // a round, possibly of a restoration, is with the store now
	Flight *Round   // sent, or to be sent again unchanged; nil if none
	Queue  []*Round // cut earlier, here or elsewhere; sent before anything else is cut
	// MaybeSent means that others may have sent rounds in the queue, or may still do so: the
	// store's report of a key may or may not include them.
	MaybeSent bool

	imported      map[string]uint64 // by writer, the last sequence taken over from others
	ImportedKeys  int64             // keys in others' unacknowledged rounds
	ImportedSince time.Time         // the time of the oldest count in them; zero if none
}

// IsEmpty reports whether the store has acknowledged all rounds.
func (o *Outbox) IsEmpty() bool { return o.Flight == nil && len(o.Queue) == 0 }

// All returns the rounds that the store has not acknowledged, in the order in which they are sent.
func (o *Outbox) All() []*Round {
	if o.Flight == nil {
		return o.Queue
	}
	return append([]*Round{o.Flight}, o.Queue...)
}

// RemoveAll empties the outbox and returns its rounds. It sets MaybeSent if any of them may have
// been sent.
func (o *Outbox) RemoveAll() []*Round {
	rounds := o.All()
	o.Flight, o.Queue = nil, nil
	sent := func(r *Round) bool { return r.OutcomeUnknown }
	o.MaybeSent = o.MaybeSent || slices.ContainsFunc(rounds, sent)
	return rounds
}

// Next makes the first round of the queue the flight.
func (o *Outbox) Next() *Round {
	o.Flight, o.Queue = o.Queue[0], o.Queue[1:]
	o.Flight.OutcomeUnknown = true // the counter that cut it may have sent it
	return o.Flight
}

// ImportsSent reports whether the store has acknowledged everything taken over from others.
func (o *Outbox) ImportsSent() bool {
	return len(o.Queue) == 0 && (o.Flight == nil || !o.Flight.Imported)
}

// AssignSequence gives a round the writer's next sequence.
func (o *Outbox) AssignSequence(r *Round) {
	o.seq++
	r.Seq, r.Nonce = o.seq, newNonce()
}

// ChangeWriter gives all later rounds a new, unused writer.
func (o *Outbox) ChangeWriter() { o.Writer, o.seq, o.Acked = NewWriter(), 0, 0 }

// Renumber gives a round, and all queued rounds of the same writer, another writer and new
// sequences.
func (o *Outbox) Renumber(r *Round) (name string) {
	old, name, seq := r.Writer, NewWriter(), uint64(0)
	for _, next := range append([]*Round{r}, o.Queue...) {
		if next.Writer == old {
			seq++
			next.Writer, next.Seq, next.Acked, next.Nonce = name, seq, 0, newNonce()
		}
	}
	if o.Writer == old {
		o.Writer, o.seq, o.Acked = name, seq, 0
	}
	return name
}

// QueueImport takes over a round of another counter. None of its counts is older than since. It
// returns false if the round had been taken over before.
func (o *Outbox) QueueImport(r *Round, since time.Time) bool {
	if r.Seq <= o.imported[r.Writer] {
		return false
	}
	if o.imported == nil {
		o.imported = map[string]uint64{}
	}
	o.imported[r.Writer] = r.Seq
	r.Imported = true
	o.ImportedKeys += int64(len(r.Keys))
	o.Queue = append(o.Queue, r)
	if o.ImportedSince.IsZero() || since.Before(o.ImportedSince) {
		o.ImportedSince = since
	}
	return true
}

// Acknowledge records that the store has a round, which was the flight. The queued rounds of the
// same writer then carry its sequence as Acked.
func (o *Outbox) Acknowledge(partition int, r *Round) {
	if r.Imported {
		o.ImportedKeys -= int64(len(r.Keys))
	}
	if r.Seq != 0 {
		o.Mark = store.Mark{Partition: partition, Writer: r.Writer, Seq: r.Seq}
		if r.Writer == o.Writer {
			o.Acked = r.Seq
		}
	}
	for _, next := range o.Queue {
		if next.Writer == r.Writer && r.Seq != 0 {
			next.Acked = r.Seq
		}
	}
	o.settle()
}

// GiveUp forgets the flight, which only read.
func (o *Outbox) GiveUp() {
	o.Flight = nil
	o.settle()
}

// settle records that nothing is in doubt any more once no round is left in the queue.
func (o *Outbox) settle() {
	if len(o.Queue) == 0 {
		o.MaybeSent, o.ImportedSince = false, time.Time{}
	}
}

// ForgetAcked clears Acked in all rounds, because it belongs to an epoch that has ended.
func (o *Outbox) ForgetAcked() {
	for _, r := range o.All() {
		r.Acked = 0
	}
}

// ResetAfterHandoff drops everything that was handed off. All later rounds have a new writer,
// derived from the counter's, because the new owner sends the old rounds under the old one.
func (o *Outbox) ResetAfterHandoff(counter string) {
	*o = Outbox{incarnation: o.incarnation + 1, Mark: o.Mark, Retry: o.Retry}
	o.Writer = fmt.Sprintf("%s.%d", counter, o.incarnation)
}

// HasKey reports whether any unacknowledged round has a part for a key, even one that is not in
// memory any more.
func (o *Outbox) HasKey(hash uint32, ns, key []byte) bool {
	return AnyHasKey(o.All(), hash, ns, key)
}

// ResetsKey reports whether any unacknowledged round deletes a key.
func (o *Outbox) ResetsKey(hash uint32, e keys.Entry) bool {
	ns, key := e.Name()
	deletes := func(r *Round) bool {
		k := r.part(hash, ns, key)
		return k != nil && k.Reset
	}
	return e.HasFlag(keys.FlagBusy) && o.Flight != nil && deletes(o.Flight) ||
		slices.ContainsFunc(o.Queue, deletes)
}

// NewWriter returns the unused name of a writer.
func NewWriter() string { return rand.Text()[:12] }

// newNonce returns a number that distinguishes rounds cut under the same writer and sequence. It
// must not come from a generator whose state is copied along with the process.
func newNonce() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.LittleEndian.Uint64(b[:])
}

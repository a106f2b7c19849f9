package syncer

import (
	"bytes"
	"fmt"
	"slices"
	"time"
	"twotier.dev/twotier/syncer/internal/keys"
)

// outbox holds the rounds of a partition that the store has not acknowledged, and the writer and
// sequence of the next one. At most one writing round is with the store at a time. An unanswered
// one stays unchanged until there is an answer. It is guarded by the partition's lock.
type outbox struct {
	retry       backoff // after a failed exchange
	writer      string  // the name under which rounds are cut here
	incarnation int     // number of earlier names, one for each handoff
	seq, acked  uint64  // the writer's last sequence cut, and acknowledged
	mark        Mark    // of the last acknowledged round of any writer

	sent   bool     // a round, possibly of a restoration, is with the store now
	flight *round   // sent, or to be sent again unchanged; nil if none
	queue  []*round // cut earlier, here or elsewhere; sent before anything else is cut
	// maybeSent means that others may have sent rounds in the queue, or may still do so: the
	// store's report of a key may or may not include them.
	maybeSent bool

	imported      map[string]uint64 // by writer, the last sequence taken over from others
	importedKeys  int64             // keys in others' unacknowledged rounds
	importedSince time.Time         // the time of the oldest count in them; zero if none
}

// isEmpty reports whether the store has acknowledged all rounds.
func (o *outbox) isEmpty() bool { return o.flight == nil && len(o.queue) == 0 }

// all returns the rounds that the store has not acknowledged, in the order in which they are sent.
func (o *outbox) all() []*round {
	if o.flight == nil {
		return o.queue
	}
	return append([]*round{o.flight}, o.queue...)
}

// takeAll empties the outbox and returns its rounds. It sets maybeSent if any of them may have been
// sent.
func (o *outbox) takeAll() []*round {
	rounds := o.all()
	o.flight, o.queue = nil, nil
	sent := func(r *round) bool { return r.outcomeUnknown }
	o.maybeSent = o.maybeSent || slices.ContainsFunc(rounds, sent)
	return rounds
}

// next makes the first round of the queue the flight.
func (o *outbox) next() *round {
	o.flight, o.queue = o.queue[0], o.queue[1:]
	o.flight.outcomeUnknown = true // the counter that cut it may have sent it
	return o.flight
}

// importsSent reports whether the store has acknowledged everything taken over from others.
func (o *outbox) importsSent() bool {
	return len(o.queue) == 0 && (o.flight == nil || !o.flight.imported)
}

// number gives a round the writer's next sequence.
func (o *outbox) number(r *round) {
	o.seq++
	r.Seq, r.Nonce = o.seq, newNonce()
}

// rename gives all later rounds a new, unused writer.
func (o *outbox) rename() { o.writer, o.seq, o.acked = newWriter(), 0, 0 }

// renumber gives a round, and all queued rounds of the same writer, another writer and new
// sequences.
func (o *outbox) renumber(r *round) (name string) {
	old, name, seq := r.Writer, newWriter(), uint64(0)
	for _, next := range append([]*round{r}, o.queue...) {
		if next.Writer == old {
			seq++
			next.Writer, next.Seq, next.Acked, next.Nonce = name, seq, 0, newNonce()
		}
	}
	if o.writer == old {
		o.writer, o.seq, o.acked = name, seq, 0
	}
	return name
}

// queueImport takes over a round of another counter. None of its counts is older than since. It
// returns false if the round had been taken over before.
func (o *outbox) queueImport(r *round, since time.Time) bool {
	if r.Seq <= o.imported[r.Writer] {
		return false
	}
	if o.imported == nil {
		o.imported = map[string]uint64{}
	}
	o.imported[r.Writer] = r.Seq
	r.imported = true
	o.importedKeys += int64(len(r.Keys))
	o.queue = append(o.queue, r)
	if o.importedSince.IsZero() || since.Before(o.importedSince) {
		o.importedSince = since
	}
	return true
}

// acknowledge records that the store has a round, which was the flight. The queued rounds of the
// same writer then carry its sequence as Acked.
func (o *outbox) acknowledge(partition int, r *round) {
	if r.imported {
		o.importedKeys -= int64(len(r.Keys))
	}
	if r.Seq != 0 {
		o.mark = Mark{Partition: partition, Writer: r.Writer, Seq: r.Seq}
		if r.Writer == o.writer {
			o.acked = r.Seq
		}
	}
	for _, next := range o.queue {
		if next.Writer == r.Writer && r.Seq != 0 {
			next.Acked = r.Seq
		}
	}
	if len(o.queue) == 0 {
		o.maybeSent, o.importedSince = false, time.Time{}
	}
}

// forgetAcked clears Acked in all rounds, because it belongs to an epoch that has ended.
func (o *outbox) forgetAcked() {
	for _, r := range o.all() {
		r.Acked = 0
	}
}

// release drops everything that was handed off. All later rounds have a new writer, derived from
// the counter's, because the new owner sends the old rounds under the old one.
func (o *outbox) release(counter string) {
	*o = outbox{incarnation: o.incarnation + 1, mark: o.mark, retry: o.retry}
	o.writer = fmt.Sprintf("%s.%d", counter, o.incarnation)
}

// has reports whether any unacknowledged round has a part for a key, even one that is not in memory
// any more.
func (o *outbox) has(t *target) bool { return anyHas(o.all(), t) }

// resets reports whether any unacknowledged round deletes a key.
func (o *outbox) resets(hash uint32, e keys.Entry) bool {
	ns, key := e.Name()
	deletes := func(r *round) bool {
		k := r.part(hash, ns, key)
		return k != nil && k.Reset
	}
	return e.Has(keys.FlagBusy) && o.flight != nil && deletes(o.flight) ||
		slices.ContainsFunc(o.queue, deletes)
}

// anyHas reports whether any of the rounds has a part for a key.
func anyHas(rounds []*round, t *target) bool {
	return slices.ContainsFunc(rounds, func(r *round) bool {
		return r.part(t.hash, t.ns, t.check.Key) != nil
	})
}

// part returns a round's part for a key, or nil if there is none.
func (r *round) part(hash uint32, ns, key []byte) *part {
	for i := range r.parts {
		k := &r.parts[i]
		if (k.ref != 0 || k.hash == hash) && bytes.Equal(k.Key, key) && bytes.Equal(k.NS, ns) {
			return k
		}
	}
	return nil
}

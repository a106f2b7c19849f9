package syncer

import (
	"fmt"
	"slices"
	"time"
)

// outbox is the rounds of a partition that the store has not acknowledged, and the name and number
// under which the next is cut. At most one that writes is with the store at a time; one without an
// answer stays what it is, until there is one. It is guarded by the partition's lock.
type outbox struct {
	retry       backoff // after a failed exchange
	writer      string  // whose rounds those are that are cut here
	incarnation int     // how many names of writer there were before, one for each handoff
	seq, acked  uint64  // of the writer: cut last, and acknowledged last
	mark        Mark    // acknowledged last, of any writer

	sent   bool     // a round, be it one that restores, is with the store at this moment
	flight *Round   // sent, or to be sent again unchanged; nil if there is none
	queue  []*Round // cut before, by whomever: they go before anything else is cut
	// maybeSent says that others may have sent what is in the queue, or still do: what the store
	// says of a key may or may not include it.
	maybeSent bool

	imported      map[string]uint64 // the last sequence by writer that was taken over from others
	importedKeys  int64             // in rounds of others that the store has not acknowledged
	importedSince time.Time         // when the first of those was taken over; zero if there is none
}

// isEmpty reports whether the store has acknowledged all rounds.
func (o *outbox) isEmpty() bool { return o.flight == nil && len(o.queue) == 0 }

// all is the rounds that the store has not acknowledged, in the order in which they go.
func (o *outbox) all() []*Round {
	if o.flight == nil {
		return o.queue
	}
	return append([]*Round{o.flight}, o.queue...)
}

// takeAll empties the outbox. If any of the rounds may have been sent, it is remembered that others
// may have sent it.
func (o *outbox) takeAll() []*Round {
	rounds := o.all()
	o.flight, o.queue = nil, nil
	sent := func(r *Round) bool { return r.outcomeUnknown }
	o.maybeSent = o.maybeSent || slices.ContainsFunc(rounds, sent)
	return rounds
}

// next makes the first of the queue the flight.
func (o *outbox) next() *Round {
	o.flight, o.queue = o.queue[0], o.queue[1:]
	o.flight.outcomeUnknown = true // whoever cut it may have sent it
	return o.flight
}

// importsSent reports whether the store has all that was taken over from others.
func (o *outbox) importsSent() bool {
	return len(o.queue) == 0 && (o.flight == nil || !o.flight.imported)
}

// number makes a round the next of this writer.
func (o *outbox) number(r *Round) {
	o.seq++
	r.Seq, r.Nonce = o.seq, newNonce()
}

// rename has what is cut from now on go under a name that nobody has used.
func (o *outbox) rename() { o.writer, o.seq, o.acked = newWriter(), 0, 0 }

// renumber has a round, and what is queued under the same name, go under another name.
func (o *outbox) renumber(r *Round) (name string) {
	old, name, seq := r.Writer, newWriter(), uint64(0)
	for _, next := range append([]*Round{r}, o.queue...) {
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

// queueImport takes over a round of another counter, nothing of which was counted before since. It
// reports whether it had not been taken over before.
func (o *outbox) queueImport(r *Round, since time.Time) bool {
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

// acknowledge notes that the store has a round, which was the flight: the next one of the same
// writer may say so.
func (o *outbox) acknowledge(partition int, r *Round) {
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

// forgetAcked has what waits say that the store has acknowledged nothing: it is of an epoch that
// has ended.
func (o *outbox) forgetAcked() {
	for _, r := range o.all() {
		r.Acked = 0
	}
}

// release forgets all that was handed off. What is cut from now on goes under another name, made of
// that of the counter: whoever has the rounds now sends them under the old one.
func (o *outbox) release(counter string) {
	*o = outbox{incarnation: o.incarnation + 1, mark: o.mark, retry: o.retry}
	o.writer = fmt.Sprintf("%s.%d", counter, o.incarnation)
}

// has reports whether a round that is on its way, may still be, or waits to be sent writes a key.
func (o *outbox) has(hash uint32, e entry) bool { return anyWrites(o.all(), hash, e) }

// anyWrites reports whether any of some rounds has something of a key.
func anyWrites(rounds []*Round, hash uint32, e entry) bool {
	for _, r := range rounds {
		for i := range r.Keys {
			k := &r.Keys[i]
			if (k.ref != 0 || k.hash == hash) && e.is(k.NS, k.Key) {
				return true
			}
		}
	}
	return false
}

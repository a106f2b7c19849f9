package redisstore

import (
	"errors"
	"fmt"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer"
)

// The status of a round in a script's reply.
const (
	statusDone = iota
	statusLost
	statusUsed
	statusLater
	statusFirst
)

// takeStatus reads the values that every reply to a round begins with, and returns the rest. ok is
// false if the rest must not be read.
func (s *Store) takeStatus(r *syncer.Round, v any) (rest []any, ok bool) {
	reply, _ := v.([]any)
	if len(reply) < 5 {
		r.Err = fmt.Errorf("%w: round: unexpected reply %v", twotier.ErrUnknownOutcome, v)
		return nil, false
	}
	r.Version, r.Quieted, r.Epoch = whole(reply[1]), whole(reply[2]), whole(reply[3])
	r.LastChange = textAt(reply, 4)
	status := whole(reply[0])
	r.Lost, r.Used, r.Later = status == statusLost, status == statusUsed, status == statusLater
	r.First = status == statusFirst
	if r.Lost {
		// The values that all nodes must agree on may be lost too: the probe before the next
		// exchange writes them again.
		s.ready.Store(false)
	}
	return reply[5:], !r.Lost && !r.Used
}

// take reads a script's reply into a round.
func (s *Store) take(r *syncer.Round, v any) {
	rest, ok := s.takeStatus(r, v)
	if !ok {
		return
	}
	if len(rest) < 3 {
		r.Err = fmt.Errorf("%w: round: unexpected reply %v", twotier.ErrUnknownOutcome, v)
		return
	}
	takeValues(r, rest[2], rest[3:])
	takeErrors(r, rest[0])
	takeLoaded(r, rest[1])
}

// takeRestored reads the counts of a restored part's buckets, as they are after it.
func (s *Store) takeRestored(r *syncer.Round, v any) {
	values, ok := s.takeStatus(r, v)
	if !ok {
		return
	}
	at := 0
	for i := range r.Keys {
		for j := range r.Keys[i].Adds {
			b := &r.Keys[i].Adds[j]
			b.Stored = b.N
			if at < len(values) {
				b.Stored, _ = values[at].(int64)
			}
			at++
		}
	}
}

// textAt returns a string of a reply, or "" if there is none.
func textAt(reply []any, i int) string {
	if i >= len(reply) {
		return ""
	}
	text, _ := reply[i].(string)
	return text
}

// whole returns an integer of a reply, or 0 if it is not one.
func whole(v any) uint64 {
	n, _ := v.(int64)
	return uint64(n)
}

// takeValues reads the counts after the adds. A key that was new, as believed, has exactly the
// added counts.
func takeValues(r *syncer.Round, notMade any, values []any) {
	known, _ := notMade.([]any)
	at := 0
	for i := range r.Keys {
		k := &r.Keys[i]
		k.Err, k.Loaded, k.Existed = nil, k.Loaded[:0], false
		made := isNew(k)
		if made && len(known) > 0 {
			switch pos, _ := known[0].(int64); pos {
			case int64(-1 - i):
				k.Existed = true
				fallthrough
			case int64(i):
				made, known = false, known[1:]
			}
		}
		for j := range k.Adds {
			if made {
				k.Adds[j].Stored = k.Adds[j].N
				continue
			}
			if at < len(values) {
				k.Adds[j].Stored, _ = values[at].(int64)
			}
			at++
		}
		if k.Load {
			// If the script doesn't send the key's buckets, the key holds nothing but the counts
			// just added.
			for j := range k.Adds {
				b := k.Adds[j]
				k.Loaded = append(k.Loaded, syncer.Bucket{Stretch: b.Stretch, N: b.Stored})
			}
		}
	}
}

func takeErrors(r *syncer.Round, reply any) {
	list, _ := reply.([]any)
	for i := 0; i+1 < len(list); i += 2 {
		pos, _ := list[i].(int64)
		text, _ := list[i+1].(string)
		if pos < int64(len(r.Keys)) {
			r.Keys[pos].Err = fmt.Errorf("%w: %s", syncer.ErrNotApplied, text)
		}
	}
}

func takeLoaded(r *syncer.Round, reply any) {
	list, _ := reply.([]any)
	for i := 0; i+1 < len(list); i += 2 {
		pos, _ := list[i].(int64)
		fields, _ := list[i+1].([]any)
		if pos < int64(len(r.Keys)) {
			k := &r.Keys[pos]
			k.Loaded = parseBuckets(fields, k.Loaded[:0])
		}
	}
}

// classify returns the outcome of a call that failed with this error or whose answer can't be
// decoded: refused, not applied or, if any attempt to send it may have run it, unknown. It also
// marks a Redis that is only late. If an earlier attempt may have run the call and Redis refused
// the last one, Redis can be reached: it is late.
func (c *scriptCall) classify(err error) error {
	if c.mayHaveRun || mayHaveRun(err) {
		return markLate(fmt.Errorf("%w: %w", twotier.ErrUnknownOutcome, err),
			c.late || isRefusal(err))
	}
	return markLate(notApplied(err), c.late || isBusy(err))
}

// notApplied wraps the error of a call that was certainly not carried out. Any answer of a server,
// even that it is loading its data or serves no such slot, is a refusal: the server can be reached.
func notApplied(err error) error {
	if isRefusal(err) || errors.Is(err, ErrMismatch) {
		return fmt.Errorf("%w: %w", syncer.ErrRefused, err)
	}
	return fmt.Errorf("%w: %w", syncer.ErrNotApplied, err)
}

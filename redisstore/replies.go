package redisstore

import (
	"fmt"

	"twotier.dev/twotier"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/redisstore/internal/scripts"
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

// decodeStatus decodes the values that every reply to a round begins with, and returns the rest. ok
// is false if the rest must not be read.
func (s *Store) decodeStatus(r *syncer.Round, v any) (rest []any, ok bool) {
	reply, _ := v.([]any)
	if len(reply) < 5 {
		r.Err = fmt.Errorf("%w: round: unexpected reply %v", twotier.ErrUnknownOutcome, v)
		return nil, false
	}
	r.Version, r.Quieted = scripts.NumberAt(reply, 1), scripts.NumberAt(reply, 2)
	r.Epoch = scripts.NumberAt(reply, 3)
	r.LastChange = scripts.TextAt(reply, 4)
	status := scripts.NumberAt(reply, 0)
	r.Lost, r.Used, r.Later = status == statusLost, status == statusUsed, status == statusLater
	r.First = status == statusFirst
	if r.Lost {
		// The values that all nodes must agree on may be lost too: the probe before the next
		// exchange writes them again.
		s.ready.Store(false)
	}
	return reply[5:], !r.Lost && !r.Used
}

// decodeRound decodes a script's reply into a round.
func (s *Store) decodeRound(r *syncer.Round, v any) {
	rest, ok := s.decodeStatus(r, v)
	if !ok {
		return
	}
	if len(rest) < 3 {
		r.Err = fmt.Errorf("%w: round: unexpected reply %v", twotier.ErrUnknownOutcome, v)
		return
	}
	decodeValues(r, rest[2], rest[3:])
	decodeErrors(r, rest[0])
	decodeLoaded(r, rest[1])
}

// decodeRestored decodes the counts of a restored part's buckets, as they are after it.
func (s *Store) decodeRestored(r *syncer.Round, v any) {
	values, ok := s.decodeStatus(r, v)
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

// decodeValues decodes the counts after the adds. A key that was new, as believed, has exactly the
// added counts.
func decodeValues(r *syncer.Round, notMade any, values []any) {
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
			switch {
			case made:
				k.Adds[j].Stored = k.Adds[j].N
				continue
			case k.Adds[j].Width == 1:
				k.Adds[j].Stored = syncer.Unread
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
				if b.Stored != syncer.Unread {
					b.N = b.Stored
				}
				k.Loaded = append(k.Loaded, syncer.Bucket{Stretch: b.Stretch, N: b.N})
			}
		}
	}
}

func decodeErrors(r *syncer.Round, reply any) {
	list, _ := reply.([]any)
	for i := 0; i+1 < len(list); i += 2 {
		pos, _ := list[i].(int64)
		text, _ := list[i+1].(string)
		if pos < int64(len(r.Keys)) {
			r.Keys[pos].Err = fmt.Errorf("%w: %s", syncer.ErrNotApplied, text)
		}
	}
}

func decodeLoaded(r *syncer.Round, reply any) {
	list, _ := reply.([]any)
	for i := 0; i+1 < len(list); i += 2 {
		pos, _ := list[i].(int64)
		fields, _ := list[i+1].([]any)
		if pos < int64(len(r.Keys)) {
			k := &r.Keys[pos]
			k.Loaded = layout.ParseBuckets(fields, k.Loaded[:0])
		}
	}
}

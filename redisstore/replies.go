package redisstore

import (
	"fmt"

	"twotier.dev/twotier"
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
	statusDiffers // of a part of a restoration, see decodeRestored
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
	for i := range r.Keys {
		k := &r.Keys[i]
		k.Err, k.Made, k.Read, k.Loaded, k.LoadedLog = nil, false, false, k.Loaded[:0], 0
	}
	eachKey(r, rest[0], 2, func(k *syncer.KeyRound, v []any) {
		k.Err = fmt.Errorf("%w: %s", syncer.ErrNotApplied, scripts.TextAt(v, 1))
	})
	eachKey(r, rest[1], 2, func(k *syncer.KeyRound, v []any) {
		fields, _ := v[1].([]any)
		setLoaded(k, fields)
	})
	eachKey(r, rest[2], 1, func(k *syncer.KeyRound, _ []any) { k.Made = true })
	decodeTimes(r, rest[3:])
}

// eachKey calls fn for each key of a list, with its n values, of which the first is its position.
func eachKey(r *syncer.Round, reply any, n int, fn func(k *syncer.KeyRound, v []any)) {
	list, _ := reply.([]any)
	for ; len(list) >= n; list = list[n:] {
		if pos := scripts.NumberAt(list, 0); pos < uint64(len(r.Keys)) {
			fn(&r.Keys[pos], list[:n])
		}
	}
}

// decodeTimes decodes when values were last seen.
func decodeTimes(r *syncer.Round, times []any) {
	for i := range r.Keys {
		for j := range r.Keys[i].Adds {
			if v := &r.Keys[i].Adds[j]; v.IsValue() && len(times) > 0 {
				v.Stored, _ = times[0].(int64)
				times = times[1:]
			}
		}
	}
}

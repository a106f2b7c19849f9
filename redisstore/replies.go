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
	decodeErrors(r, rest[0])
	decodeLoaded(r, rest[1])
	decodeMade(r, rest[2])
	decodeTimes(r, rest[3:])
}

// decodeMade decodes which keys did not exist although they were to.
func decodeMade(r *syncer.Round, reply any) {
	list, _ := reply.([]any)
	for _, v := range list {
		if pos, _ := v.(int64); pos < int64(len(r.Keys)) {
			r.Keys[pos].Made = true
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
			setLoaded(&r.Keys[pos], fields)
		}
	}
}

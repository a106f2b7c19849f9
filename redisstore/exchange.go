package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/redisstore/internal/scripts"
	"twotier.dev/twotier/syncer"
)

// sequenceTTL is how long the sequence of a writer is kept after its last round, and the least time
// that a key's restoration record is kept. A writer that returns later takes the missing sequence
// for a loss of data, and restores its counts.
const sequenceTTL = 48 * time.Hour

// A script applies at most this many rounds, with up to this many keys, so that it holds up Redis
// for only about a millisecond. In a cluster, where partitions are in different slots, it applies
// one.
const (
	maxRoundsTogether = 64
	maxKeysTogether   = 256
)

// Exchange implements syncer.Store with one script call for several rounds, all in one pipeline. It
// sends parts of restorations again until their keys are as it expects.
func (s *Store) Exchange(ctx context.Context, rounds []*syncer.Round) {
	if len(rounds) == 0 {
		return
	}
	if err := s.ensureReady(ctx); err != nil {
		for _, r := range rounds {
			r.Err = err
		}
		return
	}
	calls := s.groupIntoCalls(rounds)
	for tries := 0; len(calls) > 0 && tries < restoreTries; tries++ {
		list := make([]*scripts.Call, len(calls))
		for i, c := range calls {
			list[i] = &c.Call
		}
		s.runPipeline(ctx, list)
		calls = slices.DeleteFunc(calls, func(c *roundCall) bool { return !s.decodeCall(c) })
	}
	for _, c := range calls {
		c.rounds[0].Err = scripts.MarkLate(errContended, true)
	}
	s.recordHealth(rounds)
}

// roundCall is a call that serves rounds of one partition or more.
type roundCall struct {
	scripts.Call
	rounds []*syncer.Round
	// parts are the arguments that describe the work on keys, and alike is their decoded form.
	parts []any
	alike []part
}

func (s *Store) groupIntoCalls(rounds []*syncer.Round) (calls []*roundCall) {
	e := encoder{payloads: s.restores.Load()}
	var open *roundCall // the call that takes more rounds
	for _, r := range rounds {
		switch {
		case r.Republish:
			calls = append(calls, s.newRestoreCall(r))
		case r.ReadOnly:
			calls = append(calls, s.newReadCall(r))
		default:
			if open == nil || s.conn.Cluster || len(open.rounds) >= maxRoundsTogether ||
				len(open.Keys)+len(r.Keys) > maxKeysTogether {
				open = &roundCall{}
				open.Script = s.scripts.Round
				calls = append(calls, open)
			}
			s.addRound(open, r, &e)
		}
	}
	for _, c := range calls {
		if c.Script == s.scripts.Round {
			c.Args = slices.Concat([]any{number(len(c.alike))}, c.parts, c.Args)
		}
	}
	return calls
}

// decodeCall decodes the reply to a call into its rounds. It reports whether the call has to be
// made again, with the arguments that it then has.
func (s *Store) decodeCall(c *roundCall) (again bool) {
	for _, r := range c.rounds {
		r.Err, r.Lost, r.Used, r.Later, r.First = nil, false, false, false, false
	}
	if c.Script == nil {
		s.decodeReads(c.rounds[0], c)
		return false
	}
	reply, err := c.Cmd.Slice()
	switch {
	case err == nil && c.Script == s.scripts.Restore:
		return s.decodeRestored(c, reply)
	case err == nil && len(reply) != len(c.rounds):
		err = fmt.Errorf("%w: %d rounds, %d replies", twotier.ErrUnknownOutcome, len(c.rounds),
			len(reply))
	}
	for i, r := range c.rounds {
		failed := err
		if err == nil {
			failed, _ = reply[i].(error)
		}
		if failed != nil {
			r.Err = c.Classify(failed)
			continue
		}
		s.decodeRound(r, reply[i])
	}
	return false
}

// newReadCall makes a call that reads keys without a script, which would cost more than the reads
// when there are only one or two.
func (s *Store) newReadCall(r *syncer.Round) *roundCall {
	keys := s.appendKeys(nil, r)
	c := &roundCall{rounds: []*syncer.Round{r}}
	for _, key := range keys[2:] {
		c.Commands = append(c.Commands, []any{s.readVerb(), key})
	}
	c.State = keys[1]
	c.LastChange = r.LastChange
	if change, ok := layout.ParseChange(r.LastChange); ok {
		c.Writer, c.Own = change.Writer, change.Writer == keys[0]
	}
	return c
}

func (s *Store) readVerb() string {
	if s.opt.Expiry == ExpiryTairhash {
		return "EXHGETALL"
	}
	return "HGETALL"
}

func (s *Store) decodeReads(r *syncer.Round, c *roundCall) {
	if err := c.Err(); err != nil {
		r.Err = c.Classify(err)
		return
	}
	if s.decodeState(r, c); r.Lost {
		return
	}
	for i := range r.Keys {
		k := &r.Keys[i]
		flat, err := c.Reads[i].Slice()
		k.Err = nil
		setLoaded(k, flat)
		if err != nil {
			k.Err = fmt.Errorf("%w: %w", syncer.ErrNotApplied, err)
		}
	}
}

// decodeState decodes the state of a partition into a round that used no script, and compares it
// with the state that the round expects.
func (s *Store) decodeState(r *syncer.Round, c *roundCall) {
	var now [3]uint64
	values, _ := c.StateReply.Slice()
	for i := range now {
		now[i], _ = strconv.ParseUint(scripts.TextAt(values, i), 10, 64)
	}
	epoch, version, quieted, last := now[0], now[1], now[2], scripts.TextAt(values, len(now))
	r.Lost = r.Epoch != 0 && (epoch != r.Epoch || version < r.Version || quieted < r.Quieted ||
		r.LastChange != last && c.lacksChange(r.LastChange))
	r.Epoch, r.Version, r.Quieted, r.LastChange = epoch, version, quieted, last
	if r.Lost {
		s.ready.Store(false) // see decodeStatus
	}
}

func (s *Store) addRound(c *roundCall, r *syncer.Round, e *encoder) {
	c.rounds = append(c.rounds, r)
	c.Keys = s.appendKeys(c.Keys, r)
	c.Args = slices.Grow(c.Args, 13+4*len(r.Keys))
	c.Args = append(c.Args, number(len(r.Keys)), number(r.Seq),
		strconv.FormatUint(r.Nonce, 10), number(r.Acked),
		s.sequenceTTL, number(r.Epoch), number(r.Version), number(r.Quieted),
		r.LastChange, s.prefix.FormatChange(r), flag(r.Quiet))
	hashes, ttl := hashesToList(r)
	c.Args = append(c.Args, hashes, number(ttl))
	for i := range r.Keys {
		at := len(c.Args)
		c.Args = append(c.Args, nil)
		p := e.appendKey(c, &r.Keys[i])
		c.Args[at] = number(c.partNumber(p))
	}
}

// part describes the work on one key or on several.
type part struct {
	flags, values, pages, gone, logged int
	ttl                                int64
}

// partsSeen is how many of the latest parts are searched for an equal one. Most keys of a flush
// were counted once.
const partsSeen = 8

// partNumber returns the number of a part of a call. Equal parts are sent once.
func (c *roundCall) partNumber(p part) int {
	for i := len(c.alike) - 1; i >= max(0, len(c.alike)-partsSeen); i-- {
		if c.alike[i] == p {
			return i + 1
		}
	}
	c.alike = append(c.alike, p)
	c.parts = append(c.parts, number(p.flags), number(p.ttl), number(p.values), number(p.pages),
		number(p.gone), number(p.logged))
	return len(c.alike)
}

// number returns the decimal digits of a number.
func number[T int | int64 | uint64](n T) string { return layout.Number(int64(n)) }

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func (s *Store) appendKeys(keys []string, r *syncer.Round) []string {
	keys = slices.Grow(keys, 2+len(r.Keys))
	keys = append(keys, s.prefix.WriterKey(r.Partition, r.Writer), s.prefix.StateKey(r.Partition))
	for i := range r.Keys {
		keys = append(keys, s.prefix.Key(r.Partition, r.Keys[i].NS, r.Keys[i].Key))
	}
	return keys
}

// The flags of a key's part of a round, after those of keyFlags.
const (
	flagRewrite = 16
	flagCounts  = 32
	flagPayload = 64
)

func keyFlags(k *syncer.KeyRound) (f int) {
	for i, is := range [...]bool{k.Reset, k.Load, isNew(k), k.Renew} {
		if is {
			f |= 1 << i
		}
	}
	return f
}

// isNew reports whether a key is believed to be new and is not read for any other reason.
func isNew(k *syncer.KeyRound) bool { return k.New && !k.Reset && !k.Load }

// remembered is how long after a change its writer's sequence certainly still exists. The sequence
// lives twice as long.
const remembered = sequenceTTL / 2

// lacksChange reports whether the writer's sequence, as read, shows that the data lacks a change.
// It matches lacks in Lua.
func (c *roundCall) lacksChange(told string) bool {
	change, ok := layout.ParseChange(told)
	if !ok || c.SequenceReply == nil {
		return false
	}
	kept, err := c.SequenceReply.Text()
	if err != nil { // it does not exist, or is not a string
		return time.Since(time.Unix(int64(change.Second), 0)) < remembered
	}
	return scripts.LeadingNumber(kept) < change.Seq
}

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

package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
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

// Exchange implements syncer.Store with one script call for several rounds, all in one pipeline.
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
	list := make([]*scripts.Call, len(calls))
	for i, c := range calls {
		list[i] = &c.Call
	}
	s.runPipeline(ctx, list)
	for _, c := range calls {
		s.decodeCall(c)
	}
	s.recordHealth(rounds)
}

// roundCall is a call that serves rounds of one partition or more.
type roundCall struct {
	scripts.Call
	rounds   []*syncer.Round
	payloads bool // keys that are believed to be new may be sent as payloads
	ladders  scripts.Ladders
	// parts are the arguments that describe the work on keys, and alike is their decoded form.
	parts []any
	alike []part
}

// groupIntoCalls groups rounds into script calls.
func (s *Store) groupIntoCalls(rounds []*syncer.Round) (calls []*roundCall) {
	var f layout.Fields
	var open *roundCall // the call that takes more rounds
	for _, r := range rounds {
		switch {
		case r.Republish:
			calls = append(calls, s.republishCall(r, &f))
		case r.ReadOnly:
			calls = append(calls, s.newReadCall(r))
		default:
			if open == nil || s.conn.Cluster || len(open.rounds) >= maxRoundsTogether ||
				len(open.Keys)+len(r.Keys) > maxKeysTogether {
				open = &roundCall{payloads: s.restores.Load()}
				open.Script = s.scripts.Round
				calls = append(calls, open)
			}
			s.addRound(open, r, &f)
		}
	}
	for _, c := range calls {
		if c.Script == s.scripts.Round {
			c.Args = slices.Concat([]any{number(len(c.alike))}, c.parts, c.Args)
		}
		if c.Script != nil {
			c.Args = append(c.ladders.Args(), c.Args...)
		}
	}
	return calls
}

// decodeCall decodes the reply to a call into its rounds.
func (s *Store) decodeCall(c *roundCall) {
	for _, r := range c.rounds {
		r.Err, r.Lost, r.Used, r.Later, r.First = nil, false, false, false, false
	}
	if c.Script == nil {
		s.decodeReads(c.rounds[0], c)
		return
	}
	reply, err := c.Cmd.Slice()
	switch {
	case err == nil && c.Script == s.scripts.Republish:
		s.decodeRestored(c.rounds[0], reply)
		return
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
}

// newReadCall makes a call that reads keys without a script, which would cost more than the reads
// when there are only one or two.
func (s *Store) newReadCall(r *syncer.Round) *roundCall {
	keys := s.appendKeys(nil, r)
	c := &roundCall{rounds: []*syncer.Round{r}}
	c.Keys, c.State, c.Args = keys[2:], keys[1], []any{s.readVerb()}
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
		k.Err, k.Loaded = nil, layout.ParseBuckets(flat, k.Loaded[:0])
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

// addRound adds a round to a call.
func (s *Store) addRound(c *roundCall, r *syncer.Round, f *layout.Fields) {
	c.rounds = append(c.rounds, r)
	c.Keys = s.appendKeys(c.Keys, r)
	c.Args = slices.Grow(c.Args, 14+len(r.Keys))
	c.Args = append(c.Args, number(len(r.Keys)), number(r.Seq),
		strconv.FormatUint(r.Nonce, 10), number(r.Acked),
		s.sequenceTTL, number(r.Epoch), number(r.Version), number(r.Quieted),
		r.LastChange, s.prefix.FormatChange(r), flag(r.Quiet), number(r.Now))
	hashes, ttl := hashesToList(r)
	c.Args = append(c.Args, hashes, number(ttl))
	for i := range r.Keys {
		k := &r.Keys[i]
		payload := c.payloads && isNew(k) && !k.Fold && k.TTL > 0 && layout.HasPayload(k.Adds)
		c.Args = append(c.Args, number(c.partNumber(k, payload)))
		switch {
		case payload:
			c.Args = append(c.Args, layout.Payload(k.Adds))
		case len(k.Adds) == 1:
			c.Args = append(c.Args, f.Field(k.Adds[0].Stretch)) // the part has the rest
		default:
			c.Args = appendBuckets(c.Args, k, f)
		}
		if k.Content != nil {
			c.Args = appendContent(c.Args, k.Content)
		}
	}
}

// part describes the work on one key or on several: adds is the number of adds, or minus that if
// they come as a payload, delta is the amount of a single add, and exactFrom goes with flagFold.
type part struct {
	flags, adds           int
	ttl, delta, exactFrom int64
	ladder                *leaparray.Ladder
}

// partsSeen is how many of the latest parts are searched for an equal one. Most keys of a flush
// were counted once.
const partsSeen = 8

// partNumber returns the number of the part of a call that describes the work on a key. Equal parts
// are sent once.
func (c *roundCall) partNumber(k *syncer.KeyRound, payload bool) int {
	p := part{flags: keyFlags(k), ttl: k.TTL, ladder: k.Ladder, adds: len(k.Adds)}
	switch {
	case payload:
		p.adds = -p.adds
	case p.adds == 1:
		p.delta = k.Adds[0].N
	}
	if k.Fold {
		p.exactFrom = k.ExactFrom
	}
	for i := len(c.alike) - 1; i >= max(0, len(c.alike)-partsSeen); i-- {
		if c.alike[i] == p {
			return i + 1
		}
	}
	c.alike = append(c.alike, p)
	c.parts = append(c.parts, number(p.flags+laddersFrom*c.ladders.Position(k.Ladder)),
		number(p.ttl), number(p.adds))
	if p.adds == 1 {
		c.parts = append(c.parts, number(p.delta))
	}
	if k.Fold {
		c.parts = append(c.parts, number(p.exactFrom))
	}
	return len(c.alike)
}

func (s *Store) republishCall(r *syncer.Round, f *layout.Fields) *roundCall {
	c := &roundCall{rounds: []*syncer.Round{r}}
	c.Script = s.scripts.Republish
	c.Keys = []string{s.prefix.WriterKey(r.Partition, r.Writer), s.prefix.StateKey(r.Partition)}
	c.Args = append(c.Args, number(r.Seq), strconv.FormatUint(r.Nonce, 10), number(r.Acked),
		s.sequenceTTL, number(r.Epoch), number(r.Version), number(r.Quieted),
		r.LastChange, s.prefix.FormatChange(r), number(r.After), number(r.Now), allHashes(r),
		number(s.longestTTL()))
	for i := range r.Keys {
		k := &r.Keys[i]
		c.Keys = append(c.Keys, s.prefix.Key(r.Partition, k.NS, k.Key),
			s.prefix.RecordKey(r.Partition, k.NS, k.Key))
		c.Args = c.appendKey(c.Args, k, f)
	}
	return c
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

// appendKey appends the work on a key: its flags and ladder, time to live and adds.
func (c *roundCall) appendKey(args []any, k *syncer.KeyRound, f *layout.Fields) []any {
	args = append(args, number(keyFlags(k)+laddersFrom*c.ladders.Position(k.Ladder)), number(k.TTL),
		number(len(k.Adds)))
	return appendBuckets(args, k, f)
}

// appendBuckets appends the adds of a key.
func appendBuckets(args []any, k *syncer.KeyRound, f *layout.Fields) []any {
	for j := range k.Adds {
		b := &k.Adds[j]
		args = append(args, f.Field(b.Stretch), number(b.N))
	}
	return args
}

// The flags of a key's part of a round. They go with the position of its ladder, times laddersFrom.
const (
	flagReset   = 1
	flagLoad    = 2
	flagNew     = 4 // see isNew
	flagRenew   = 8
	flagFold    = 16
	flagContent = 32
	laddersFrom = 64
)

func keyFlags(k *syncer.KeyRound) (f int) {
	if k.Reset {
		f |= flagReset
	}
	if k.Load {
		f |= flagLoad
	}
	if isNew(k) {
		f |= flagNew
	}
	if k.Renew {
		f |= flagRenew
	}
	if k.Fold {
		f |= flagFold
	}
	if k.Content != nil {
		f |= flagContent
	}
	return f
}

// isNew reports whether a key is believed to be new and is not read for any other reason.
func isNew(k *syncer.KeyRound) bool { return k.New && !k.Reset && !k.Load }

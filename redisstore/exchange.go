package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
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
	calls := s.calls(rounds)
	s.run(ctx, calls)
	for _, c := range calls {
		s.takeCall(c)
	}
	s.note(rounds)
}

// calls groups rounds into script calls.
func (s *Store) calls(rounds []*syncer.Round) (calls []*scriptCall) {
	var f fields
	var open *scriptCall // the call that takes more rounds
	for _, r := range rounds {
		switch {
		case r.Republish:
			calls = append(calls, s.republishCall(r, &f))
		case r.ReadOnly:
			calls = append(calls, s.readCall(r))
		default:
			if open == nil || s.cluster || len(open.rounds) >= maxRoundsTogether ||
				len(open.keys)+len(r.Keys) > maxKeysTogether {
				open = &scriptCall{script: s.scripts.round, payloads: s.restores.Load()}
				calls = append(calls, open)
			}
			s.addRound(open, r, &f)
		}
	}
	for _, c := range calls {
		if c.script == s.scripts.round {
			c.withParts()
		}
		if c.script != nil {
			c.withLadders()
		}
	}
	return calls
}

// takeCall reads the reply to a call into its rounds.
func (s *Store) takeCall(c *scriptCall) {
	for _, r := range c.rounds {
		r.Err, r.Lost, r.Used, r.Later, r.First = nil, false, false, false, false
	}
	if c.script == nil {
		s.takeReads(c.rounds[0], c)
		return
	}
	reply, err := c.cmd.Slice()
	switch {
	case err == nil && c.script == s.scripts.republish:
		s.takeRestored(c.rounds[0], reply)
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
			r.Err = c.classify(failed)
			continue
		}
		s.take(r, reply[i])
	}
}

// readCall makes a call that reads keys without a script, which would cost more than the reads when
// there are only one or two.
func (s *Store) readCall(r *syncer.Round) *scriptCall {
	keys := s.appendKeys(nil, r)
	c := &scriptCall{keys: keys[2:], state: keys[1], args: []any{s.readVerb()},
		rounds: []*syncer.Round{r}}
	if change, ok := parseChange(r.LastChange); ok {
		c.writer, c.own = change.writer, change.writer == keys[0]
	}
	return c
}

func (s *Store) readVerb() string {
	if s.opt.Expiry == ExpiryTairhash {
		return "EXHGETALL"
	}
	return "HGETALL"
}

func (s *Store) takeReads(r *syncer.Round, c *scriptCall) {
	if err := c.err(); err != nil {
		r.Err = c.classify(err)
		return
	}
	if s.takeState(r, c); r.Lost {
		return
	}
	for i := range r.Keys {
		k := &r.Keys[i]
		flat, err := c.reads[i].Slice()
		k.Err, k.Loaded = nil, parseBuckets(flat, k.Loaded[:0])
		if err != nil {
			k.Err = fmt.Errorf("%w: %w", syncer.ErrNotApplied, err)
		}
	}
}

// takeState reads the state of a partition into a round that used no script, and compares it with
// the state that the round expects.
func (s *Store) takeState(r *syncer.Round, c *scriptCall) {
	var now [3]uint64
	values, _ := c.told.Slice()
	for i := range now {
		now[i], _ = strconv.ParseUint(textAt(values, i), 10, 64)
	}
	epoch, version, quieted, last := now[0], now[1], now[2], textAt(values, len(now))
	r.Lost = r.Epoch != 0 && (epoch != r.Epoch || version < r.Version || quieted < r.Quieted ||
		r.LastChange != last && c.lacks(r.LastChange))
	r.Epoch, r.Version, r.Quieted, r.LastChange = epoch, version, quieted, last
	if r.Lost {
		s.ready.Store(false) // see takeStatus
	}
}

// addRound adds a round to a call.
func (s *Store) addRound(c *scriptCall, r *syncer.Round, f *fields) {
	c.rounds = append(c.rounds, r)
	c.keys = s.appendKeys(c.keys, r)
	c.args = slices.Grow(c.args, 14+len(r.Keys))
	c.args = append(c.args, number(int64(len(r.Keys))), number(int64(r.Seq)),
		strconv.FormatUint(r.Nonce, 10), number(int64(r.Acked)),
		s.sequenceTTL, number(int64(r.Epoch)), number(int64(r.Version)), number(int64(r.Quieted)),
		r.LastChange, changeOf(r), flag(r.Quiet), number(r.Now))
	hashes, ttl := toList(r)
	c.args = append(c.args, hashes, number(ttl))
	for i := range r.Keys {
		k := &r.Keys[i]
		payload := c.payloads && hasPayload(k)
		c.args = append(c.args, number(int64(c.part(k, payload))))
		switch {
		case payload:
			c.args = append(c.args, payloadOf(k.Adds))
		case len(k.Adds) == 1:
			c.args = append(c.args, f.field(k.Adds[0].Stretch)) // the part has the rest
		default:
			c.args = appendBuckets(c.args, k, f)
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

// part returns the number of the part of a call that describes the work on a key. Equal parts are
// sent once.
func (c *scriptCall) part(k *syncer.KeyRound, payload bool) int {
	p := part{flags: flags(k), ttl: k.TTL, ladder: k.Ladder, adds: len(k.Adds)}
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
	c.parts = append(c.parts, number(int64(p.flags+laddersFrom*c.ladder(k))), number(p.ttl),
		number(int64(p.adds)))
	if p.adds == 1 {
		c.parts = append(c.parts, number(p.delta))
	}
	if k.Fold {
		c.parts = append(c.parts, number(p.exactFrom))
	}
	return len(c.alike)
}

// ladder returns the number of a key's ladder among the call's ladders, 0 if the key has none.
func (c *scriptCall) ladder(k *syncer.KeyRound) int {
	if k.Ladder == nil {
		return 0
	}
	i := slices.Index(c.ladders, k.Ladder)
	if i < 0 {
		i = len(c.ladders)
		c.ladders = append(c.ladders, k.Ladder)
	}
	return i + 1
}

// withParts inserts the parts before the arguments that refer to them.
func (c *scriptCall) withParts() {
	c.args = slices.Concat([]any{number(int64(len(c.alike)))}, c.parts, c.args)
}

// withLadders inserts the ladders before the arguments that refer to them.
func (c *scriptCall) withLadders() {
	head := []any{number(int64(len(c.ladders)))}
	for _, l := range c.ladders {
		head = append(head, ladderText(l))
	}
	c.args = append(head, c.args...)
}

// ladderText returns a ladder in the form that ladderOf in Lua reads.
func ladderText(l *leaparray.Ladder) string {
	text := fmt.Sprint(l.Most(), l.Exact(), syncer.KeyTTL(l))
	for level := range l.Len() {
		text += fmt.Sprint(" ", l.Width(level), " ", l.Kept(level))
	}
	return text
}

func (s *Store) republishCall(r *syncer.Round, f *fields) *scriptCall {
	keys := []string{writerKey(r.Partition, r.Writer), stateKey(r.Partition)}
	c := &scriptCall{script: s.scripts.republish, keys: keys, rounds: []*syncer.Round{r}}
	c.args = append(c.args, number(int64(r.Seq)), strconv.FormatUint(r.Nonce, 10),
		number(int64(r.Acked)),
		s.sequenceTTL, number(int64(r.Epoch)), number(int64(r.Version)), number(int64(r.Quieted)),
		r.LastChange, changeOf(r), number(int64(r.After)), number(r.Now), allHashes(r),
		number(s.longestTTL()))
	for i := range r.Keys {
		k := &r.Keys[i]
		c.keys = append(c.keys, Key(r.Partition, k.NS, k.Key), recordKey(r.Partition, k.NS, k.Key))
		c.args = c.appendKey(c.args, k, f)
	}
	return c
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func (s *Store) appendKeys(keys []string, r *syncer.Round) []string {
	keys = slices.Grow(keys, 2+len(r.Keys))
	keys = append(keys, writerKey(r.Partition, r.Writer), stateKey(r.Partition))
	for i := range r.Keys {
		keys = append(keys, Key(r.Partition, r.Keys[i].NS, r.Keys[i].Key))
	}
	return keys
}

// appendKey appends the work on a key: its flags and ladder, time to live and adds.
func (c *scriptCall) appendKey(args []any, k *syncer.KeyRound, f *fields) []any {
	args = append(args, number(int64(flags(k)+laddersFrom*c.ladder(k))), number(k.TTL),
		number(int64(len(k.Adds))))
	return appendBuckets(args, k, f)
}

// appendBuckets appends the adds of a key.
func appendBuckets(args []any, k *syncer.KeyRound, f *fields) []any {
	for j := range k.Adds {
		b := &k.Adds[j]
		args = append(args, f.field(b.Stretch), number(b.N))
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
	laddersFrom = 32
)

func flags(k *syncer.KeyRound) (f int) {
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
	return f
}

// isNew reports whether a key is believed to be new and is not read for any other reason.
func isNew(k *syncer.KeyRound) bool { return k.New && !k.Reset && !k.Load }

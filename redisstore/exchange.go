package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier/syncer"
)

// sequenceTTL is how long the sequence of a writer is kept after its last round, at the least. If a writer comes back
// later than that, it takes it for a loss of data, and restores what it knows.
const sequenceTTL = 48 * time.Hour

// A script carries out this many rounds, of up to so many keys, at the most: it holds up Redis for a millisecond or so. In a cluster,
// where partitions live in different slots, it is one.
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
	s.roundTrips.Add(1)
	run(ctx, s.client, calls)
	for _, c := range calls {
		s.takeCall(c)
	}
	s.note(rounds)
}

// calls puts rounds together to calls.
func (s *Store) calls(rounds []*syncer.Round) (calls []*scriptCall) {
	var f fields
	var open *scriptCall // that takes more rounds
	for _, r := range rounds {
		switch {
		case r.Republish:
			calls = append(calls, s.republishCall(r, &f))
		case r.ReadOnly:
			calls = append(calls, s.readCall(r))
		default:
			if open == nil || s.cluster || len(open.rounds) >= maxRoundsTogether || len(open.keys)+len(r.Keys) > maxKeysTogether {
				open = &scriptCall{script: s.scripts.round}
				calls = append(calls, open)
			}
			s.addRound(open, r, &f)
		}
	}
	return calls
}

// takeCall reads the reply to a call into its rounds.
func (s *Store) takeCall(c *scriptCall) {
	for _, r := range c.rounds {
		r.Err, r.Lost = nil, false
	}
	if c.script == nil {
		s.takeReads(c.rounds[0], c)
		return
	}
	reply, err := c.cmd.Slice()
	switch {
	case err == nil && c.script == s.scripts.republish:
		s.take(c.rounds[0], reply)
		return
	case err == nil && len(reply) != len(c.rounds):
		err = fmt.Errorf("%w: %d rounds, %d replies", syncer.ErrUnknownOutcome, len(c.rounds), len(reply))
	}
	for i, r := range c.rounds {
		if err != nil {
			r.Err = s.classify(err)
			continue
		}
		s.take(r, reply[i])
	}
}

// readCall reads keys without a script, which for one or two of them would cost more than the reading.
func (s *Store) readCall(r *syncer.Round) *scriptCall {
	return &scriptCall{keys: s.appendKeys(nil, r)[2:], args: []any{s.readVerb()}, rounds: []*syncer.Round{r}}
}

func (s *Store) readVerb() string {
	if s.opt.Expiry == ExpiryTairhash {
		return "EXHGETALL"
	}
	return "HGETALL"
}

func (s *Store) takeReads(r *syncer.Round, c *scriptCall) {
	if err := c.err(); err != nil {
		r.Err = s.classify(err)
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

// addRound adds a round to a call.
func (s *Store) addRound(c *scriptCall, r *syncer.Round, f *fields) {
	c.rounds = append(c.rounds, r)
	c.keys = s.appendKeys(c.keys, r)
	c.args = slices.Grow(c.args, 6+8*len(r.Keys))
	c.args = append(c.args, number(int64(len(r.Keys))), number(int64(r.Seq)), number(int64(r.Acked)), s.sequenceTTL,
		number(int64(r.Epoch)), flag(r.Quiet))
	for i := range r.Keys {
		k := &r.Keys[i]
		c.args = append(c.args, flags(k), number(k.TTL), number(int64(len(k.Adds))), number(int64(len(k.Expired))))
		c.args = s.appendBuckets(c.args, k, f)
		for j := range k.Expired {
			c.args = append(c.args, f.of(&k.Expired[j]))
		}
	}
}

func (s *Store) republishCall(r *syncer.Round, f *fields) *scriptCall {
	c := &scriptCall{script: s.scripts.republish, keys: s.appendKeys(nil, r), rounds: []*syncer.Round{r}}
	c.args = append(c.args, number(int64(r.Acked)), flag(r.Final), s.sequenceTTL, number(int64(r.Epoch)))
	for i := range r.Keys {
		k := &r.Keys[i]
		c.args = append(c.args, number(k.TTL), number(int64(len(k.Adds))))
		c.args = s.appendBuckets(c.args, k, f)
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

func (s *Store) appendBuckets(args []any, k *syncer.KeyRound, f *fields) []any {
	var ttls []string
	if s.opt.Expiry != ExpiryKey {
		ttls = s.fieldTTLs(k.NS)
	}
	for j := range k.Adds {
		b := &k.Adds[j]
		args = append(args, f.of(b), number(b.N))
		if ttls != nil {
			args = append(args, ttls[b.Level])
		}
	}
	return args
}

// flagNew is a key that is believed to be new, and is not asked for otherwise.
const flagNew = "4"

func flags(k *syncer.KeyRound) string {
	switch {
	case k.Reset && k.Load:
		return "3"
	case k.Load:
		return "2"
	case k.Reset:
		return "1"
	case k.New:
		return flagNew
	}
	return "0"
}

// take reads a script's reply into a round.
func (s *Store) take(r *syncer.Round, v any) {
	if err, ok := v.(error); ok {
		r.Err = s.classify(err)
		return
	}
	reply, _ := v.([]any)
	epoch, least := 4, 5
	if r.Republish {
		epoch, least = 2, 3
	}
	if len(reply) < least {
		r.Err = fmt.Errorf("%w: round: unexpected reply %v", syncer.ErrUnknownOutcome, v)
		return
	}
	r.Version, r.Epoch = whole(reply[1]), whole(reply[epoch])
	if whole(reply[0]) == 1 {
		r.Lost = true
		s.ready.Store(false) // what all must agree on may be gone too: the next exchange writes it again
		return
	}
	if r.Republish {
		return
	}
	if len(reply) < 6 {
		r.Err = fmt.Errorf("%w: round: unexpected reply %v", syncer.ErrUnknownOutcome, v)
		return
	}
	takeValues(r, reply[5], reply[6:])
	takeErrors(r, reply[2])
	takeLoaded(r, reply[3])
}

// whole reads an integer of a reply, 0 if it is none.
func whole(v any) uint64 {
	n, _ := v.(int64)
	return uint64(n)
}

// takeValues reads what the adds came to. Of keys that were new, as they were believed to be, it is what was added.
func takeValues(r *syncer.Round, known any, values []any) {
	existed, _ := known.([]any)
	at := 0
	for i := range r.Keys {
		k := &r.Keys[i]
		k.Err, k.Loaded = nil, k.Loaded[:0]
		isNew := flags(k) == flagNew
		if isNew && len(existed) > 0 && whole(existed[0]) == uint64(i) {
			isNew, existed = false, existed[1:]
		}
		for j := range k.Adds {
			if isNew {
				k.Adds[j].Stored = k.Adds[j].N
				continue
			}
			if at < len(values) {
				k.Adds[j].Stored, _ = values[at].(int64)
			}
			at++
		}
		if k.Load {
			// What the script doesn't send holds nothing but what was just added.
			for j := range k.Adds {
				b := k.Adds[j]
				k.Loaded = append(k.Loaded, syncer.Bucket{Level: b.Level, Index: b.Index, N: b.Stored})
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

// classify says what is known of a call that failed. What the server answered with an error it has not carried out, and
// neither what never had a connection; of everything else the outcome is unknown. In a cluster the library sends what had
// no answer to where it is redirected: that the last try had no connection says nothing of those before.
func (s *Store) classify(err error) error {
	var reply redis.Error
	var op *net.OpError
	switch {
	case errors.As(err, &reply),
		errors.As(err, &op) && op.Op == "dial" && !s.cluster,
		errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return fmt.Errorf("%w: %w", syncer.ErrNotApplied, err)
	}
	return fmt.Errorf("%w: %w", syncer.ErrUnknownOutcome, err)
}

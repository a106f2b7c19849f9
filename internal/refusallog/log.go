package refusallog

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
)

const (
	// Kept is how long a refusal can be looked up, in milliseconds.
	Kept = 3_600_000
	// together is how long equal refusals share a record, in milliseconds.
	together = 60_000

	shardCount = 8
	perShard   = 2048
	chains     = 1024 // in each shard
	// maxLimits bounds the limits of a record.
	maxLimits = 8
	// maxSteps bounds the search for an equal refusal. The newest come first.
	maxSteps = 16
)

// Log keeps the newest refusals of a node. Make one with [New].
type Log struct {
	node   string
	prefix string // of the ids
	now    func() int64
	seed   maphash.Seed
	mark   uint64 // makes ids of other processes wrong ones
	// defaultNS is the name of the default namespace.
	defaultNS []byte
	shards    [shardCount]shard
}

// shard keeps the refusals of some of the keys.
type shard struct {
	mu sync.Mutex
	// entries holds the entry with number n at n % perShard; number 0 is none.
	entries []entry
	next    uint64 // the number of the next entry
	// heads has the numbers of the newest entries of each chain of keys. An entry that was
	// overwritten ends its chain, because all behind it are older.
	heads [chains]uint64
}

// entry is one record. Its memory is used again.
type entry struct {
	number, before uint64 // before is the next older entry of the chain
	key, identity  uint64 // hashes of the key, and of everything that equal refusals share

	first, last, times            int64
	n, retryAfter, until, version int64
	open, most                    int64
	door, rule                    string
	reason                        Reason
	nsLen                         int
	text                          []byte // the namespace and the key
	limits                        []twotier.LimitResult
}

// New returns an empty log of a node. now returns unix milliseconds.
func New(node string, now func() int64) *Log {
	return &Log{node: node, prefix: url.PathEscape(node) + ".", now: now,
		seed: maphash.MakeSeed(), mark: rand.Uint64(),
		defaultNS: []byte(twotier.DefaultNamespace)}
}

// Receives implements [decisions.Sink]: the log receives refusals.
func (*Log) Receives(v twotier.Verdict) bool { return v == twotier.Refused }

// Record records a decision that refused, or counts it in the record of an equal one, and sets its
// id.
func (l *Log) Record(d *decisions.Decision) {
	ns := d.NS
	if len(ns) == 0 {
		ns = l.defaultNS
	}
	reason, key := reasonOf(d), l.hashKey(ns, d.Key)
	most := int64(0)
	if reason == Concurrent {
		most = d.Lease.Max
	}
	identity := l.hashIdentity(key, d, reason, most)
	now := l.now()
	at := key % shardCount
	s := &l.shards[at]
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.findEqual(key, identity, now)
	if one == nil {
		one = s.add(key)
		one.identity, one.first, one.times = identity, now, 0
		one.door, one.rule, one.reason, one.version = d.Door, d.RuleName(), reason, d.Version
		one.most, one.nsLen = most, len(ns)
		one.text = append(append(one.text[:0], ns...), d.Key...)
	}
	one.update(d, now)
	d.Refusal = l.id(one.number*shardCount + at)
}

// update makes the entry describe its latest refusal.
func (e *entry) update(d *decisions.Decision, now int64) {
	e.last = now
	e.times++
	e.n, e.retryAfter, e.until, e.open = d.N, d.RetryAfter, 0, 0
	if d.Ban != nil {
		e.until = d.Ban.Until
	}
	if e.reason == Concurrent {
		e.open = d.Lease.Open
	}
	e.limits = e.limits[:0]
	for i := range d.Limits {
		left := maxLimits - len(e.limits)
		if left > 0 && (d.Limits[i].Refused || len(d.Limits) <= maxLimits) {
			e.limits = append(e.limits, d.Limits[i])
		}
	}
}

// findEqual returns the entry of an equal refusal that is not too old, or nil.
func (s *shard) findEqual(key, identity uint64, now int64) *entry {
	steps := 0
	for one := s.newest(key); one != nil && steps < maxSteps; one = s.entryOf(one.before) {
		if one.identity == identity && one.key == key {
			if now-one.first < together && now >= one.first {
				return one
			}
			return nil
		}
		steps++
	}
	return nil
}

// newest returns the newest entry of the chain of a key, or nil.
func (s *shard) newest(key uint64) *entry { return s.entryOf(s.heads[key/shardCount%chains]) }

// entryOf returns the entry with that number, or nil if there is none any more.
func (s *shard) entryOf(number uint64) *entry {
	at := int(number % perShard)
	if number == 0 || at >= len(s.entries) || s.entries[at].number != number {
		return nil
	}
	return &s.entries[at]
}

// add returns a new entry, which overwrites the oldest one if the shard is full.
func (s *shard) add(key uint64) *entry {
	if s.next == 0 {
		s.next = perShard // so that the first one is at 0, and none has the number 0
	}
	at := int(s.next % perShard)
	if at == len(s.entries) && at < perShard {
		s.entries = append(s.entries, entry{})
	}
	one := &s.entries[at]
	head := &s.heads[key/shardCount%chains]
	one.number, one.before, one.key = s.next, *head, key
	*head = s.next
	s.next++
	return one
}

// List returns the refusals of a key in the last hour, newest first, at most limit.
func (l *Log) List(ns, key []byte, limit int) (list []Refusal) {
	if len(ns) == 0 {
		ns = l.defaultNS
	}
	hash := l.hashKey(ns, key)
	at := hash % shardCount
	s := &l.shards[at]
	now := l.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	// Records are in the order of their first refusals; some more of them find the latest ones.
	for one := s.newest(hash); one != nil && len(list) < 4*limit; one = s.entryOf(one.before) {
		if one.key == hash && now-one.last < Kept {
			r := one.describe(l.node)
			r.ID = l.id(one.number*shardCount + at).String()
			list = append(list, r)
		}
	}
	slices.SortStableFunc(list, Newer)
	return list[:min(limit, len(list))]
}

// hashKey returns the hash of a key.
func (l *Log) hashKey(ns, key []byte) uint64 {
	return maphash.Bytes(l.seed, key) ^ maphash.Bytes(l.seed, ns)<<1
}

// hashIdentity returns the hash of everything that equal refusals of a key share: who answered
// where, the rule, the reason, the magnitude of the request, and the limits with their verdicts,
// but not the counts. So random sizes of requests make few records.
func (l *Log) hashIdentity(key uint64, d *decisions.Decision, reason Reason, most int64) uint64 {
	var h maphash.Hash
	h.SetSeed(l.seed)
	writeNumbers(&h, key, uint64(d.Version), uint64(reason), uint64(most),
		uint64(bits.Len64(uint64(max(0, d.N)))))
	for i := range d.Limits {
		of, refused := &d.Limits[i], uint64(0)
		if of.Refused {
			refused = 1
		}
		writeNumbers(&h, uint64(of.Window), uint64(of.Max), refused)
		if of.Period != nil {
			_, _ = h.WriteString(of.Period.String())
		}
	}
	_, _ = h.WriteString(d.Door)
	_, _ = h.WriteString(d.RuleName())
	return h.Sum64()
}

// writeNumbers adds numbers to a hash.
func writeNumbers(h *maphash.Hash, numbers ...uint64) {
	var b [8]byte
	for _, n := range numbers {
		binary.LittleEndian.PutUint64(b[:], n)
		_, _ = h.Write(b[:])
	}
}

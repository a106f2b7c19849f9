package redisstore

import (
	"bytes"
	"slices"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// ttls are how long a namespace's counts live in Redis.
type ttls struct {
	// key is the least time to live of a key, in milliseconds, if others keep a longer level than
	// this process does; otherwise 0.
	key int64
	// fields are how long the buckets of each level live, by the level's number.
	fields [leaparray.MaxIDs]string
	// more says of which levels others keep more buckets, and any whether there are such levels.
	more [leaparray.MaxIDs]bool
	any  bool
}

// fieldTTL returns how long a bucket lives, in milliseconds, after it was first counted in, if
// every field has a time to live. That is until it is further behind than its level keeps, even if
// it was counted MaxAhead early, plus another MaxAhead for clocks that differ.
func fieldTTL(l leaparray.Level) int64 {
	return (l.Keep()+1)*l.Width.Milliseconds() + 2*leaparray.MaxAhead.Milliseconds()
}

// othersTTL returns how long a key lives by the ladder of somebody who keeps a longer level than
// this one has, 0 if there is none.
func othersTTL(l *leaparray.Ladder) (ttl int64) {
	for _, lv := range l.Stored() {
		if lv.Span().Milliseconds() > l.Span() {
			ttl = max(ttl, syncer.LevelTTL(lv))
		}
	}
	return ttl
}

// setTTLs sets the times to live of keys, and of buckets of all levels that may be stored.
func (s *Store) setTTLs() {
	all, longest := map[string]*ttls{syncer.BanNamespace: new(ttls)}, s.longestTTL()
	for id, lv := range syncer.BanLadder().Levels() {
		all[syncer.BanNamespace].fields[id] = number(fieldTTL(lv))
	}
	for name, l := range s.opt.Ladders {
		t := &ttls{key: othersTTL(l)}
		for id, lv := range l.Stored() {
			if t.fields[id] = number(fieldTTL(lv)); lv.Count == 0 { // nobody has said what it is
				t.fields[id] = number(longest)
			}
			own := l.LevelOf(uint8(id))
			t.more[id] = own >= 0 && lv.Count > l.Levels()[own].Count
			t.any = t.any || t.more[id]
		}
		all[name] = t
	}
	s.ttls.Store(&all)
}

// longestTTL returns the longest time to live of a key, in milliseconds.
func (s *Store) longestTTL() (ttl int64) {
	for _, l := range s.opt.Ladders {
		ttl = max(ttl, syncer.KeyTTL(l), othersTTL(l))
	}
	return ttl
}

// ttlsOf returns the times to live of a namespace.
func (s *Store) ttlsOf(ns []byte) *ttls {
	all := *s.ttls.Load()
	if t, ok := all[string(ns)]; ok {
		return t
	}
	if bytes.HasPrefix(ns, []byte(syncer.BanNamespace)) {
		return all[syncer.BanNamespace]
	}
	return all[syncer.DefaultNamespace]
}

// ttl returns the time to live to set of a key, in milliseconds, 0 to leave it as it is. It is not
// less than others need, whose ladders may have a longer level: what they have set would be
// shortened.
func (s *Store) ttl(k *syncer.KeyRound) int64 {
	if k.TTL == 0 {
		return 0
	}
	return max(k.TTL, s.ttlsOf(k.NS).key)
}

// expired returns the buckets that a round deletes from a key: those that nobody keeps.
func (s *Store) expired(k *syncer.KeyRound) []syncer.Bucket {
	if len(k.Expired) == 0 {
		return nil
	}
	t := s.ttlsOf(k.NS)
	if !t.any {
		return k.Expired
	}
	return slices.DeleteFunc(slices.Clone(k.Expired), func(b syncer.Bucket) bool {
		return t.more[b.Level]
	})
}

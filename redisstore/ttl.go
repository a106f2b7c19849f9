package redisstore

import "twotier.dev/twotier/syncer"

// longestTTL returns the longest time to live of a key, in milliseconds.
func (s *Store) longestTTL() (ttl int64) {
	for _, l := range s.opt.Ladders {
		ttl = max(ttl, syncer.KeyTTL(l))
	}
	return ttl
}

package syncer

import (
	"math/rand/v2"
	"time"
)

// quotaTries is how many other partitions are asked for a key of a namespace that may be evicted.
const quotaTries = 16

// admitsKey returns why a new key of a namespace can't be kept in memory, nil if it can. The partition is locked.
func (c *Counter) admitsKey(p *partition, space, words int, sec uint32) error {
	if !c.quota(p, space, sec) {
		c.warnFull("a namespace has its most keys in memory: new ones are refused", "namespace", c.spaces[space].name, "max_keys", c.spaces[space].maxKeys)
		return ErrMaxKeys
	}
	if !c.room(p, words, sec) {
		c.warnFull("the memory for counts is full of what the store does not have, or was used just now: new keys are refused, or served by the store",
			"max_bytes", c.opt.MaxMemory)
		return ErrFull
	}
	return nil
}

// quota reports whether a namespace may have one more key, be it that another of its keys gives way
// to it. Other partitions are only looked at if nobody has them locked: who waited for one while
// holding another could wait for ever.
func (c *Counter) quota(p *partition, space int, sec uint32) bool {
	sp := c.spaces[space]
	if sp.maxKeys == 0 || sp.keys.Load() < sp.maxKeys || p.evictOne(sec, space) {
		return true
	}
	for range quotaTries {
		o := &c.parts[rand.IntN(len(c.parts))]
		if !o.mu.TryLock() {
			continue
		}
		given := o.evictOne(sec, space)
		o.mu.Unlock()
		if given {
			return true
		}
	}
	return false
}

// fullPause is how long it is news that keys are refused.
const fullPause = time.Minute

func (c *Counter) warnFull(text string, args ...any) {
	now, last := time.Now().UnixNano(), c.fullLogged.Load()
	if now-last > int64(fullPause) && c.fullLogged.CompareAndSwap(last, now) {
		c.opt.Logger.Warn(text, args...)
	}
}

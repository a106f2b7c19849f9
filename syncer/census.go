package syncer

import (
	"context"
	"errors"
	"time"
)

// Census is implemented by stores that can tell which keys they have. With it, keys that are new need not be looked for.
type Census interface {
	// Keys calls fn for every key that is in the store from the beginning of the call to its end, in any order, some perhaps more
	// than once, and perhaps for others too. It takes its time: it must not get in the way of exchanges. After an error, keys may
	// have been missed; if that wraps errors.ErrUnsupported it is not called again.
	Keys(ctx context.Context, fn func(partition int, ns, key []byte)) error
}

const (
	// censusPause is how often it is looked whether a census is due, the first time at once. The pause after one is at least
	// censusRest times as long as that took.
	censusPause = time.Second
	firstCensus = 20 * time.Millisecond
	censusRest  = 10
	// censusAge is when a census is taken again because much of what it saw has gone in the meantime.
	censusAge = 24 * time.Hour
	// censusShare is the part of a partition's memory that may be taken by what is known of keys that are not in it.
	censusShare = 16
)

// census is what a partition knows of the keys that the store may hold. It is taken by going through all keys of the store, and
// kept by noting which keys leave memory. News of other writers void it, as they do what was loaded.
type census struct {
	// whole says that the store has no keys but those in memory and those in absent, as long as the partition's gen is this.
	whole  bool
	gen    uint32
	absent bloom // keys that are not in memory
	at     time.Time
	// relied is set when something was answered for want of a key since the store was last asked what others did.
	relied bool
	// taking is set while a new census is taken, into next. It comes to nothing if the partition's gen is not takenAt any more.
	taking  bool
	takenAt uint32
	next    bloom
}

func (s *census) words() int { return s.absent.words + s.next.words }

// missing reports whether the store certainly has nothing under a key that is not in memory.
func (p *partition) missing(hash uint32) bool {
	s := &p.census
	if !s.whole || s.gen != p.gen || p.mode != modeOwn || p.doubt || p.republish != nil || s.absent.has(hash) {
		return false
	}
	s.relied = true
	return true
}

// noteGone keeps in mind that the store may have a key that memory forgets.
func (p *partition) noteGone(hash uint32) {
	s := &p.census
	if s.whole {
		s.absent.add(hash, p.censusWords)
	}
	if s.taking {
		s.next.add(hash, p.censusWords)
	}
}

// needsCensus reports whether it is not known what the store has.
func (p *partition) needsCensus(now time.Time) bool {
	s := &p.census
	if p.mode != modeOwn || p.blind() || p.republish != nil || p.closed {
		return false
	}
	return !s.whole || s.gen != p.gen || s.absent.words > 0 && now.Sub(s.at) > censusAge
}

// voidCensus is for when memory and store have come apart.
func (p *partition) voidCensus() { p.census.whole, p.census.taking = false, false }

// runCensus takes a census whenever partitions need one.
func (c *Counter) runCensus(ctx context.Context, store Census) {
	timer := time.NewTimer(firstCensus)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		start := time.Now()
		err := c.takeCensus(ctx, store)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			c.opt.Logger.Info("the store can't tell which keys it has: every new key is looked for", "reason", err)
			return
		case err != nil && ctx.Err() == nil:
			c.opt.Logger.Debug("a census of the store came to nothing; it is tried again", "reason", err)
		}
		timer.Reset(max(censusPause, censusRest*time.Since(start)))
	}
}

// takeCensus goes through the keys of the store for all partitions that need it.
func (c *Counter) takeCensus(ctx context.Context, store Census) error {
	parts := c.beginCensus(ctx)
	if len(parts) == 0 {
		return nil
	}
	err := store.Keys(ctx, c.noteStored)
	now := time.Now()
	for _, p := range parts {
		p.mu.Lock()
		if s := &p.census; s.taking {
			if err == nil && s.takenAt == p.gen {
				s.whole, s.gen, s.absent, s.at = true, p.gen, s.next, now
			}
			s.taking, s.next = false, bloom{}
		}
		p.mu.Unlock()
	}
	return err
}

// beginCensus returns the partitions of which a census is taken from now on: those that need it, once they have heard from the store
// what version they have, so that they notice what others do meanwhile.
func (c *Counter) beginCensus(ctx context.Context) (parts []*partition) {
	patience, cancel := context.WithTimeout(ctx, c.opt.RoundTimeout)
	defer cancel()
	now := time.Now()
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		if p.needsCensus(now) {
			parts = append(parts, p)
			if p.census.relied = true; !p.met { // so that the store is asked
				p.verified = time.Time{}
				p.lane.kick(p)
			}
		}
		p.mu.Unlock()
	}
	begun := parts[:0]
	for _, p := range parts {
		if p.beginCensus(patience) {
			begun = append(begun, p)
		}
	}
	return begun
}

// beginCensus waits until the partition's version is known. It reports false if that takes too long.
func (p *partition) beginCensus(ctx context.Context) bool {
	for {
		p.mu.Lock()
		if p.met || ctx.Err() != nil {
			break
		}
		settled := p.wait()
		p.mu.Unlock()
		select {
		case <-settled:
		case <-ctx.Done():
		}
	}
	defer p.mu.Unlock()
	if !p.met || !p.needsCensus(time.Now()) {
		return false
	}
	p.census.taking, p.census.takenAt, p.census.next = true, p.gen, bloom{}
	return true
}

// noteStored takes note of a key that the store has.
func (c *Counter) noteStored(partition int, ns, key []byte) {
	if partition < 0 || partition >= len(c.parts) {
		return
	}
	if isDefault(ns) {
		ns = nil
	}
	p := &c.parts[partition]
	hash := c.hash(ns, key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.census.taking && p.find(hash, ns, key) == 0 {
		p.census.next.add(hash, p.censusWords)
	}
}

package syncer_test

import (
	"context"
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// check compares an owner's report with the true counts, if the key is warm. In any case, no more
// can be pending than was counted.
func (r *relay) check(p int) {
	c := r.list[r.owner[p]]
	for key, want := range r.truth {
		if r.partition(key) != p {
			continue
		}
		h := c.Held(spaceOf(key), []byte(key))
		synced, pending := total(h.Synced), total(h.Pending)
		switch {
		case h.Warm && synced+pending != want, pending > want:
			r.t.Errorf("%s: the owner (%d of %d) shows %d, want %d (synced %v, pending %v)", key,
				r.owner[p], p, synced+pending, want, h.Synced, h.Pending)
		}
	}
}

// total returns the sum of buckets.
func total(buckets map[leaparray.Stretch]int64) (sum int64) {
	for _, n := range buckets {
		sum += n
	}
	return sum
}

func (r *relay) end() {
	for _, s := range r.stores {
		s.SetDown(false)
	}
	for _, c := range r.list {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		if err := c.Flush(ctx); err != nil {
			r.t.Fatal(err)
		}
		cancel()
	}
	for _, s := range r.stores {
		s.Deliver()
	}
	// News from a flush, such as a missing time to live, is flushed in turn.
	time.Sleep(time.Minute)
	for i, c := range r.list {
		if n := c.Stats().PendingBuckets; n > 0 {
			r.t.Errorf("%d buckets are pending at counter %d after Flush", n, i)
		}
		if owed, granted, waiting := c.Room(); owed != 0 || granted != 0 || waiting != 0 {
			r.t.Errorf("counter %d at rest: %d keys wait for the store, %d operations have room "+
				"and %d wait for it", i, owed, granted, waiting)
		}
	}
	for key, want := range r.truth {
		if got := r.stored(key); got != want {
			r.t.Errorf("%s: the store holds %d, want %d", key, got, want)
		}
		r.kept(key)
	}
	for key, k := range r.away {
		if !k.gone { // else nobody notices arrivals after a reset, without a time to live
			r.kept(key)
		}
		got := r.stored(key)
		if got != k.n && !k.open && !k.gone {
			r.t.Errorf("%s: the store holds %d, %d were counted since it was reset", key, got, k.n)
		}
		r.believed(key, got)
	}
}

// believed checks that at rest no counter believes in other counts of a key than the store's, even
// if the outcome of a reset is unknown.
func (r *relay) believed(key string, stored int64) {
	for i, c := range r.list {
		h := c.Held(spaceOf(key), []byte(key))
		if sum := total(h.Synced); h.Warm && sum != stored {
			r.t.Errorf("%s: counter %d believes in %d, the store holds %d", key, i, sum, stored)
		}
	}
}

// kept checks that the store has a key for as long as a window can see it, and no longer than a
// write of this moment lets it live.
func (r *relay) kept(key string) {
	span := 24 * time.Hour.Milliseconds()
	until := r.inner.Expires(r.partition(key), spaceOf(key), []byte(key))
	for _, b := range r.inner.Get(r.partition(key), spaceOf(key), []byte(key)) {
		end := b.End()
		if b.IsValue() {
			end = b.N
		}
		if least := end + span; until < least {
			r.t.Errorf("%s: the store keeps it %d ms too short", key, least-until)
		}
	}
	if most := r.clk.Now() + syncer.KeyTTL(leaparray.Default()); until > most {
		r.t.Errorf("%s: the store keeps it %d ms too long", key, until-most)
	}
}

// stored returns the store's sum of a key.
func (r *relay) stored(key string) int64 {
	return sumOf(key, r.inner.Get(r.partition(key), spaceOf(key), []byte(key)))
}

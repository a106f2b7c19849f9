package redisstore_test

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// TestTheFirstSeedStays: many nodes start at the same time, each with a different seed, and others
// later.
func TestTheFirstSeedStays(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	stores := make([]*redisstore.Store, 12)
	var wg sync.WaitGroup
	for i := range stores {
		stores[i] = open(t, redisstore.Options{
			URL: srv.URL(), Placement: twotier.Placement{Partitions: 17, Seed: 1<<63 + uint64(i)},
			AnySeed: true,
		})
		wg.Go(func() {
			if err := probe(t, stores[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	want := stores[0].Placement()
	for i, s := range stores {
		if got := s.Placement(); got.Seed != want.Seed || got.Seed < 1<<63 {
			t.Errorf("node %d: %+v, another has %+v", i, got, want)
		}
	}
	if text, err := srv.Do("HGET", prefix.MetaKey(), "hash-seed").Text(); err != nil ||
		text != strconv.FormatUint(want.Seed, 10) {
		t.Errorf("stored: %s, %v", text, err)
	}
	works(t, open(t, redisstore.Options{URL: srv.URL(), Placement: want}))
	other := twotier.Placement{Partitions: 17, Seed: want.Seed + 100}
	if err := probe(t,
		open(t, redisstore.Options{URL: srv.URL(), Placement: other})); !errors.Is(err,
		redisstore.ErrMismatch) {
		t.Errorf("a node with a seed of its own: %v", err)
	}
	few := twotier.Placement{Partitions: 16}
	if err := probe(t, open(t, redisstore.Options{URL: srv.URL(), Placement: few,
		AnySeed: true})); !errors.Is(err, redisstore.ErrMismatch) {
		t.Errorf("a node with fewer partitions: %v", err)
	}
}

// TestTheYoungerOfTwoSeedsGivesWay: Redis loses everything, and before the processes that use it
// notice, a new one starts and draws another seed. Whichever looks first, and however often, the
// old seed comes back and stays, and the new process fails with ErrOlderSeed until it is started
// again. In some runs the data is of a version that did not record the age of the seed, or the seed
// is configured.
func TestTheYoungerOfTwoSeedsGivesWay(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for run := range 12 {
		srv.Do("FLUSHALL")
		opt := redisstore.Options{URL: srv.URL(), AnySeed: run%2 == 0,
			Placement: twotier.Placement{Seed: 5}}
		works(t, open(t, opt))
		if run%4 > 1 {
			srv.Do("HDEL", prefix.MetaKey(), "hash-seed-since")
		}
		old := []*redisstore.Store{open(t, opt), open(t, opt), open(t, opt)}
		for _, s := range old {
			must.Succeed(t, probe(t, s))
		}
		srv.Do("FLUSHALL")
		late := open(t, redisstore.Options{URL: srv.URL(), Placement: twotier.Placement{Seed: 6},
			AnySeed: true})
		if err := probe(t, late); err != nil || late.Placement().Seed != 6 {
			t.Fatalf("%v, %+v", err, late.Placement())
		}
		var wg sync.WaitGroup
		for _, s := range append(old, late) {
			wg.Go(func() {
				for range 5 {
					if err := s.EnsureAgreement(t.Context()); err != nil && s != late {
						t.Errorf("an old one: %v", err)
					}
				}
			})
		}
		wg.Wait()
		if err := late.EnsureAgreement(t.Context()); err != nil &&
			!errors.Is(err, redisstore.ErrOlderSeed) {
			t.Error(err)
		}
		if err := late.Health().Err; !errors.Is(err, redisstore.ErrMismatch) ||
			!errors.Is(err, redisstore.ErrOlderSeed) {
			t.Errorf("run %d: the new one: %v", run, err)
		}
		r := oneRound(late, "a", 1)
		if send(t, late, r); !errors.Is(r.Err, syncer.ErrNotApplied) {
			t.Errorf("run %d: a round of the new one: %v", run, r.Err)
		}
		if now, err := srv.Do("HGET", prefix.MetaKey(), "hash-seed").Text(); now != "5" {
			t.Errorf("run %d: the seed is %s, %v", run, now, err)
		}
		r = oneRound(old[0], "b", 1)
		if send(t, old[0], r); r.Err != nil {
			t.Errorf("run %d: a round of an old one: %v", run, r.Err)
		}
	}
}

// TestOfTwoSeedsOfOneMomentTheSmallerStays: around a loss two seeds were drawn within the same
// millisecond. They must not overwrite each other for ever: one process gives way, and it is the
// same one in whatever order they look. It fails with ErrOlderSeed if it has AnySeed: another start
// does not help a process with a configured seed.
func TestOfTwoSeedsOfOneMomentTheSmallerStays(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for run, seeds := range [][2]uint64{{5, 6}, {6, 5}, {9, 10}, {10, 9}} {
		srv.Do("FLUSHALL")
		var stores [2]*redisstore.Store
		for i, seed := range seeds {
			if i == 1 {
				since, err := srv.Do("HGET", prefix.MetaKey(), "hash-seed-since").Text()
				must.Succeed(t, err)
				srv.Do("FLUSHALL")
				srv.Do("HSET", prefix.MetaKey(), "hash-seed", strconv.FormatUint(seed, 10),
					"hash-seed-since", since)
			}
			stores[i] = open(t, redisstore.Options{URL: srv.URL(), AnySeed: i == 1,
				Placement: twotier.Placement{Seed: seed}})
			if err := probe(t, stores[i]); err != nil || stores[i].Placement().Seed != seed {
				t.Fatalf("run %d: %v, %+v", run, err, stores[i].Placement())
			}
		}
		for i := range 6 {
			_ = stores[(run+i)%2].EnsureAgreement(t.Context())
		}
		for i, seed := range seeds {
			err := stores[i].Health().Err
			larger := seed > seeds[1-i]
			if errors.Is(err, redisstore.ErrMismatch) != larger ||
				errors.Is(err, redisstore.ErrOlderSeed) != (larger && i == 1) {
				t.Errorf("run %d: seed %d beside %d: %v", run, seed, seeds[1-i], err)
			}
		}
		want := strconv.FormatUint(min(seeds[0], seeds[1]), 10)
		if now, err := srv.Do("HGET", prefix.MetaKey(), "hash-seed").Text(); now != want {
			t.Errorf("run %d: the seed is %s rather than %s, %v", run, now, want, err)
		}
	}
}

// TestHashTagsAreAgreedOn: nodes start whose namespaces have other hash tags than the data was made
// with. Settings that place every key in the same partition count as equal.
func TestHashTagsAreAgreedOn(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	probeWith := func(tags twotier.HashTags) error {
		t.Helper()
		return probe(t, open(t, redisstore.Options{URL: srv.URL(),
			Placement: twotier.Placement{HashTags: tags}}))
	}
	must.Succeed(t, probeWith(twotier.HashTags{"sms": true}))
	for _, same := range []twotier.HashTags{{"sms": true},
		{"default": false, "sms": true, "login": false}} {
		if err := probeWith(same); err != nil {
			t.Errorf("%s: %v", same, err)
		}
	}
	for _, other := range []twotier.HashTags{nil, {"sms": true, "login": true}, {"default": true}} {
		if err := probeWith(other); !errors.Is(err, redisstore.ErrMismatch) ||
			!strings.Contains(err.Error(), "hash-tags = sms, this node has "+other.String()) {
			t.Errorf("%s: %v", other, err)
		}
	}
	// Follow the refusal's advice.
	srv.Do("HSET", prefix.MetaKey(), "hash-tags", "every namespace")
	must.Succeed(t, probeWith(twotier.HashTags{"default": true}))
}

// TestOneOfSeveralConfigurations: nodes that disagree about everything start on an empty Redis at
// the same time. All that agree with the first one may stay, and no field comes from any other.
func TestOneOfSeveralConfigurations(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	fine := ladderOf(t, leaparray.Level{Width: time.Second, Count: 60})
	with := func(name string) map[string]*leaparray.Ladder {
		return map[string]*leaparray.Ladder{"default": defaultLadder(t), name: fine}
	}
	configurations := []redisstore.Options{
		{Placement: twotier.Placement{Partitions: 31, Seed: 1}},
		{Placement: twotier.Placement{Partitions: 41, Seed: 2,
			HashTags: twotier.HashTags{"sms": true}}},
		{Placement: twotier.Placement{Partitions: 31, Seed: 3}, Ladders: with("login")},
		{Placement: twotier.Placement{Partitions: 51, Seed: 4,
			HashTags: twotier.HashTags{"default": true}}, Ladders: with("sms")},
	}
	for range 10 {
		srv.Do("FLUSHALL")
		var agreed [12]bool
		var wg sync.WaitGroup
		for i := range agreed {
			opt := configurations[i%len(configurations)]
			opt.URL = srv.URL()
			s := open(t, opt)
			wg.Go(func() { agreed[i] = probe(t, s) == nil })
		}
		wg.Wait()
		seed, err := srv.Do("HGET", prefix.MetaKey(), "hash-seed").Int()
		must.Succeed(t, err)
		for i, ok := range agreed {
			if mine := i%len(configurations) + 1; ok != (mine == seed) {
				t.Errorf("agreed: %v, a node with configuration %d where Redis has that of %d", ok,
					mine, seed)
			}
		}
	}
}

// TestAnOldLayoutIsRefused: Redis has counts of a release that named buckets by their level. It is
// refused whatever else the options are, nothing is written there, and following the refusal's
// advice helps.
func TestAnOldLayoutIsRefused(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	old := []any{"HSET", prefix.MetaKey(), "layout", "3", "partitions", "1021", "hash-seed", "7",
		"hash-tags", "", "hash-type", "hash", "redis-expiry", "key", "ladder:default",
		"1s x 60, 1m x 60, 15m x 96"}
	srv.Do(old...)
	srv.Do("HSET", "tt:{p3}:default:k", "17630000000000", "5")
	for _, opt := range []redisstore.Options{{AnySeed: true},
		{Placement: twotier.Placement{Partitions: 5, Seed: 8}}} {
		opt.URL = srv.URL()
		s := open(t, opt)
		err := probe(t, s)
		if !errors.Is(err, redisstore.ErrMismatch) ||
			!strings.Contains(err.Error(), "layout 3") ||
			!strings.Contains(err.Error(), "delete all keys that begin with tt:") {
			t.Errorf("%v, want it to be refused", err)
		}
		if _, err := s.Examine(t.Context()); !errors.Is(err, redisstore.ErrMismatch) {
			t.Errorf("examined: %v", err)
		}
		r := oneRound(s, "k", 1)
		if send(t, s, r); !errors.Is(r.Err, syncer.ErrNotApplied) {
			t.Errorf("a round: %v", r.Err)
		}
	}
	if n, err := srv.Do("DBSIZE").Int(); n != 2 || err != nil {
		t.Errorf("there are %d keys now, %v", n, err)
	}
	srv.Do("DEL", prefix.MetaKey(), "tt:{p3}:default:k")
	works(t, open(t, redisstore.Options{URL: srv.URL(), AnySeed: true}))
}

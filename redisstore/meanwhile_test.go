package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// meanwhile is a hook that calls do once, before or after the first command with one of some names
// is sent, or the first one that writes a key.
type meanwhile struct {
	names []string
	key   string
	do    func()
	after bool // do is called after the command
	loses bool // the answer of the command is lost
	once  atomic.Bool
}

func (m *meanwhile) has(cmds ...redis.Cmder) bool {
	return slices.ContainsFunc(cmds, func(c redis.Cmder) bool {
		return slices.Contains(m.names, c.Name()) || m.key != "" && c.Name() != "hgetall" &&
			slices.Contains(c.Args(), any(m.key))
	}) && !m.once.Swap(true)
}

func (m *meanwhile) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *meanwhile) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if m.has(cmd) {
			m.do()
		}
		return next(ctx, cmd)
	}
}

func (m *meanwhile) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		hit := m.has(cmds...)
		if hit && !m.after {
			m.do()
		}
		err := next(ctx, cmds)
		if hit && m.after {
			m.do()
		}
		if hit && m.loses {
			for _, c := range cmds {
				c.SetErr(io.ErrUnexpectedEOF)
			}
			return io.ErrUnexpectedEOF
		}
		return err
	}
}

// TestEntryRenewedMeanwhileStays renews an entry that has run out just before another process
// deletes it.
func TestEntryRenewedMeanwhileStays(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	opt := redisstore.Options{URL: srv.URL()}
	s, late := open(t, opt), open(t, opt)
	renew := func(s *redisstore.Store, name string, lease time.Duration) {
		t.Helper()
		_, err := s.Nodes().Renew(t.Context(), name, "text", lease)
		must.Succeed(t, err)
	}
	renew(s, "other", time.Minute)
	must.Succeed(t, srv.Do("HSET", "tt:nodes", "late", "1000 text", "gone", "1000 text").Err())
	deleted := &meanwhile{names: []string{"eval", "evalsha"},
		do: func() { renew(late, "late", time.Minute) }}
	s.Client().AddHook(deleted)
	renew(s, "self", time.Minute)
	if !deleted.once.Load() {
		t.Error("nothing was deleted")
	}
	for name, want := range map[string]bool{"late": true, "self": true, "other": true} {
		if found, err := srv.Do("HEXISTS", "tt:nodes", name).Bool(); found != want || err != nil {
			t.Errorf("%s is listed: %v, %v", name, found, err)
		}
	}
	renew(s, "self", time.Minute)
	if found, err := srv.Do("HEXISTS", "tt:nodes", "gone").Bool(); found || err != nil {
		t.Errorf("an entry that has run out is listed: %v, %v", found, err)
	}
}

// TestVersionOfRulesStoredMeanwhile stores another version between the read and the write of one,
// and loses the answer to a write.
func TestVersionOfRulesStoredMeanwhile(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	opt := redisstore.Options{URL: srv.URL()}
	s, other := open(t, opt), open(t, opt)
	r, ctx := s.Rules(), t.Context()
	must.Succeed(t, r.Append(ctx, version(1)))
	theirs := version(2)
	theirs.ID = "theirs"
	s.Client().AddHook(&meanwhile{names: []string{"evalsha"},
		do: func() { must.Succeed(t, other.Rules().Append(ctx, theirs)) }})
	if err := r.Append(ctx, version(2)); !errors.Is(err, twotier.ErrRulesMoved) {
		t.Errorf("after another version: %v", err)
	}
	if v, err := r.Version(ctx, 2); err != nil || v.ID != "theirs" {
		t.Errorf("%+v, %v", v, err)
	}
	s.Client().AddHook(&meanwhile{names: []string{"evalsha"}, after: true, loses: true,
		do: func() { must.Succeed(t, other.Rules().Append(ctx, version(4))) }})
	if err := r.Append(ctx, version(3)); !errors.Is(err, twotier.ErrUnknownOutcome) {
		t.Errorf("without an answer: %v", err)
	}
	must.Succeed(t, r.Append(ctx, version(3))) // it is stored, though another one follows
	s.Client().AddHook(&meanwhile{names: []string{"evalsha"},
		do: func() { must.Succeed(t, other.Rules().Append(ctx, version(5))) }})
	must.Succeed(t, r.Restore(ctx, version(7)))
	if n, id, err := r.Newest(ctx); n != 7 || id != "id7" || err != nil {
		t.Errorf("newest: %d %q %v", n, id, err)
	}
}

// TestListReadMeanwhile loses the data, counts a key, or begins another part of the list, between
// the state of a partition and its list.
func TestListReadMeanwhile(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	opt := redisstore.Options{URL: srv.URL()}
	s, other := open(t, opt), open(t, opt)
	must.Succeed(t, s.Probe(t.Context())) // which tries the same command
	countNew(t, other, 1, time.Hour, "a")
	read := func(do func()) *syncer.KeyList {
		t.Helper()
		hook := &meanwhile{names: []string{"getrange"}, do: do}
		s.Client().AddHook(hook)
		l := &syncer.KeyList{Partition: 3}
		if s.ListKeys(t.Context(), []*syncer.KeyList{l}); !hook.once.Load() {
			t.Fatal("no list was read")
		}
		return l
	}
	l := read(func() { countNew(t, other, 2, time.Hour, "b") })
	if l.Err != nil || l.Version != 1 || len(l.Hashes) != 2 {
		t.Errorf("with another key: %+v", l)
	}
	l = read(func() {
		must.Succeed(t, srv.Do("PEXPIRE", "tt:{p3}!k:1", 60_000).Err())
		countNew(t, other, 3, time.Hour, "c")
	})
	if l.Err != nil || l.Version != 2 || len(l.Hashes) != 2 {
		t.Errorf("with another part: %+v", l)
	}
	if found := readKeys(t, s, l); !found[syncer.KeyHash(nil, []byte("c"))] {
		t.Error("the other part was not read")
	}
	l = read(func() {
		flushAll(t, srv)
		countNew(t, other, 4, time.Hour, "d")
	})
	if l.Err == nil || l.Lost || l.Epoch != 0 {
		t.Errorf("after a loss: %+v", l)
	}
}

// TestSlotsMoveMeanwhile moves the slots of the nodes, of the rules and of a list of keys to and
// fro while all three are written and read. Each entry finds itself, each version is stored once,
// and the list has every key that was counted before.
func TestSlotsMoveMeanwhile(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	s := open(t, redisstore.Options{URL: c.URL(), Timeout: 5 * time.Second})
	must.Succeed(t, probe(t, s))
	ctx, stop := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	done := func() bool { return ctx.Err() != nil }
	tasks.Go(func() {
		for !done() {
			all, err := s.Nodes().Renew(t.Context(), "self", "text", time.Minute)
			if err == nil && (len(all) != 1 || all[0].Name != "self") {
				t.Errorf("listed: %+v", all)
			}
		}
	})
	stored := int64(0)
	tasks.Go(func() {
		for !done() {
			if err := s.Rules().Append(t.Context(), version(stored+1)); err == nil {
				stored++
			} else if errors.Is(err, twotier.ErrRulesMoved) {
				t.Errorf("version %d: %v", stored+1, err)
			}
		}
	})
	tasks.Go(func() {
		for seq := uint64(1); !done(); {
			name := fmt.Sprint("k-", seq)
			r := &syncer.Round{Partition: 3, Writer: "w", Seq: seq, Keys: []syncer.KeyRound{{
				Key: []byte(name), TTL: 3_600_000, Renew: true, New: true,
				Adds: []syncer.Bucket{counts(second, 1)}}}}
			if s.Exchange(t.Context(), []*syncer.Round{r}); r.Err != nil {
				continue // the same again
			}
			seq++
			l := &syncer.KeyList{Partition: 3}
			s.ListKeys(t.Context(), []*syncer.KeyList{l})
			if !l.More && l.Err == nil &&
				!slices.Contains(l.Hashes, syncer.KeyHash(nil, []byte(name))) {
				t.Errorf("%s is not among %d listed keys", name, len(l.Hashes))
			}
		}
	})
	for range 3 {
		for _, key := range []string{"tt:nodes", "tt:rules", "tt:{p3}!s"} {
			slot := c.Slot(t, key)
			from := c.Owner(t, slot)
			to := otherPrimary(t, c, from)
			c.SetMigrating(t, slot, from, to)
			for c.MigrateKeys(t, slot, from, to, 1) > 0 {
				time.Sleep(5 * time.Millisecond)
			}
			c.FinishMigration(t, slot, from, to)
		}
	}
	stop()
	tasks.Wait()
	n, _, err := s.Rules().Newest(t.Context())
	if err != nil || stored == 0 || n < stored || n > stored+1 {
		t.Errorf("version %d is the newest, of %d, %v", n, stored, err)
	}
}

// TestNewKeysSurviveAReplay counts the same events in many new keys, and has Redis read its
// append-only file again. Before and after, all keys have the same counts and expire at about the
// same time, and so do their fields if these expire.
func TestNewKeysSurviveAReplay(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.AOF(), redistest.Config("appendfsync always"))
	for _, expiry := range redistest.Expiries(t, srv) {
		if expiry == "tairhash" {
			continue // the stand-in for TairHash has no append-only file
		}
		flushAll(t, srv)
		s := open(t, redisstore.Options{URL: srv.URL(), Expiry: redisstore.Expiry(expiry)})
		r := &syncer.Round{Writer: "w", Seq: 1}
		for i := range 20 {
			r.Keys = append(r.Keys, syncer.KeyRound{Key: fmt.Append(nil, "new-", i), New: true,
				TTL: 3_600_000, Adds: []syncer.Bucket{counts(leaparray.Moment(t0), 2),
					counts(leaparray.Moment(t0-5000), 2)}})
		}
		if send(t, s, r); r.Err != nil || r.Lost {
			t.Fatal(r.Err, r.Lost)
		}
		want := everything(t, srv, expiry, &r.Keys[0])
		for replayed := range 2 {
			for i := range r.Keys {
				if got := everything(t, srv, expiry, &r.Keys[i]); got != want {
					t.Errorf("%s: %s has %s, want %s; replayed %d times", expiry, r.Keys[i].Key,
						got, want, replayed)
				}
			}
			srv.Restart(t)
		}
	}
}

// everything returns a key's fields, and the times at which the key and the fields expire.
func everything(t *testing.T, srv *redistest.Server, expiry string, k *syncer.KeyRound) string {
	t.Helper()
	key := redisstore.Key(0, k.NS, k.Key)
	fields, err := srv.Do("HGETALL", key).Result()
	must.Succeed(t, err)
	ends, err := srv.Do("PEXPIRETIME", key).Int64()
	if err != nil || ends <= 0 {
		t.Fatalf("%s expires at %d: %v", key, ends, err)
	}
	all := fmt.Sprint(fields, ends)
	if expiry != "field" {
		return all
	}
	for i := 0; i < len(redisstore.Fields(k.Adds...)); i += 2 {
		ends, err := srv.Do("HPEXPIRETIME", key, "FIELDS", 1,
			redisstore.Fields(k.Adds...)[i]).Int64Slice()
		if err != nil || len(ends) != 1 || ends[0] <= 0 {
			t.Fatalf("%s: a field expires at %v: %v", key, ends, err)
		}
		all += fmt.Sprint(" ", ends)
	}
	return all
}

// TestNewKeysThatExist counts in keys that another program has made although they are believed to
// be new, beside new ones, and sends the round again: each event is counted once, and the store has
// read the first ones.
func TestNewKeysThatExist(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL()})
	k := syncer.KeyRound{Key: []byte("there"), TTL: 1000,
		Adds: []syncer.Bucket{counts(second, 1)}}
	send(t, s, &syncer.Round{Writer: "v", Seq: 1, Keys: []syncer.KeyRound{k}})
	k.New, k.Adds = true, []syncer.Bucket{counts(second, 2), counts(leaparray.Moment(t0), 3)}
	fresh := k
	fresh.Key, fresh.Adds = []byte("new"), slices.Clone(k.Adds)
	r := &syncer.Round{Writer: "w", Seq: 1, Keys: []syncer.KeyRound{k, fresh}}
	for sent := range 2 {
		if send(t, s, r); r.Err != nil {
			t.Fatal(r.Err)
		}
		there, isNew := &r.Keys[0], &r.Keys[1]
		if !there.Read || isNew.Read != (sent == 1) {
			t.Errorf("sent %d times: read %v and %v", sent+1, there.Read, isNew.Read)
		}
		if got := contentOf(there.Loaded); got.sum() != 6 || got[second] != 3 {
			t.Errorf("sent %d times: %v", sent+1, got)
		}
		if got := cellsOf(t, s, "key", "new"); got.sum() != 5 {
			t.Errorf("sent %d times: %v", sent+1, got)
		}
	}
}

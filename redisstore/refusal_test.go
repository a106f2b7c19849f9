package redisstore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
)

// theCommands are the commands that rounds use.
var theCommands = []string{
	"exists", "hset", "hget", "hdel", "hlen", "hgetall", "hmget", "pexpireat", "del", "set", "get",
	"time",
}

// refusing is a server that refuses one command, and a store that worked with it before.
type refusing struct {
	t   *testing.T
	srv *redistest.Server
	s   *redisstore.Store
	seq uint64
}

// TestEachCommandThatRedisRefuses revokes one command after another. Whatever becomes of a round,
// each of its keys is either counted, once, or refused and unchanged.
func TestEachCommandThatRedisRefuses(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for _, command := range theCommands {
		t.Run(command, func(t *testing.T) {
			flushAll(t, srv)
			f := &refusing{t: t, srv: srv}
			f.allow("+", command)
			f.s = open(t, redisstore.Options{URL: "redis://limited:secret@" + srv.Addr(),
				Placement: twotier.Placement{Partitions: 1}})
			works(t, f.s)
			f.round()
			f.allow("-", command)
			f.round()
			f.round()
			f.restoration()
		})
	}
}

func (f *refusing) allow(sign, command string) {
	f.t.Helper()
	must.Succeed(f.t, f.srv.Do("ACL", "SETUSER", "limited", "on", ">secret", "~*", "&*", "+@all",
		sign+command).Err())
}

// keys returns parts of all kinds: for new and existing keys, for loaded and renewed ones, and for
// keys whose content is known.
func (f *refusing) keys() (keys []syncer.KeyRound) {
	for i, name := range []string{"known", "loaded", "renewed", "rewritten", "new",
		"new and loaded", "new too", "loaded too", "new no more"} {
		if strings.HasPrefix(name, "new") && name != "new no more" || i == 7 {
			name += fmt.Sprint(f.seq)
		}
		k := syncer.KeyRound{Key: []byte(name), TTL: 3_600_000, New: name[:3] == "new",
			Load: i == 1 || i == 5 || i == 7}
		k.Adds = []syncer.Bucket{counts(second, 2), counts(leaparray.Moment(t0+500), 2)}
		k.Renew = name == "renewed"
		if name == "rewritten" {
			k.Rewrite, k.ContentLog = true, syncer.WholeLog
			all := bucketsIn(f.t, f.srv, redisstore.Key(0, nil, k.Key))
			for _, b := range k.Adds {
				all[b.Stretch] += b.N
			}
			k.Content = all.buckets()
			slices.SortFunc(k.Content, syncer.Bucket.Compare)
		}
		keys = append(keys, k)
	}
	for _, name := range []string{"values", fmt.Sprint("new values", f.seq)} {
		keys = append(keys, syncer.KeyRound{Key: []byte(name), TTL: 3_600_000,
			New: name[:3] == "new", Adds: []syncer.Bucket{counts(leaparray.ValueAt(5), t0),
				counts(leaparray.ValueAt(1<<63), t0+int64(f.seq))}})
	}
	return keys
}

// round sends a round twice, as if the first reply had been lost, and compares Redis's content of
// each key with the replies.
func (f *refusing) round() {
	f.t.Helper()
	f.seq++
	r := &syncer.Round{Writer: "counting", Acked: f.seq - 1, Nonce: f.seq}
	send(f.t, f.s, r) // now it knows the state of the partition
	r.Seq, r.Keys = f.seq, f.keys()
	before, counted := f.all(r.Keys), false
	for range 2 {
		if send(f.t, f.s, r); r.Lost || r.Used {
			f.t.Fatalf("lost %v, used %v", r.Lost, r.Used)
		}
		counted = counted || r.Err == nil
		for i := range r.Keys {
			k := &r.Keys[i]
			want := slices.Clone(before[i])
			if counted && k.Err == nil {
				for j := range k.Adds {
					want[j] += k.Adds[j].N
					want[len(want)-1] += k.Adds[j].N
				}
			}
			got := f.values(k)
			if k.Adds[0].IsValue() {
				f.checkSeen(k, before[i], got, counted && k.Err == nil)
				continue
			}
			if !slices.Equal(got, want) {
				f.t.Errorf("%s: Redis has %v, want %v after %v (%v, %v)", k.Key, got, want,
					before[i], r.Err, k.Err)
			}
		}
	}
	if !counted {
		f.seq-- // the round was not applied
	}
}

// checkSeen checks the values of a key: a round has seen them, or none, and any if it was refused.
func (f *refusing) checkSeen(k *syncer.KeyRound, before, got []int64, seen bool) {
	f.t.Helper()
	for j, b := range k.Adds {
		if got[j] != max(before[j], b.N) && (seen || got[j] != before[j]) {
			f.t.Errorf("%s: Redis has %v, want %v and before that %v (%v)", k.Key, got, k.Adds,
				before, k.Err)
		}
	}
}

// restoration restores something twice: the counts are either there or not.
func (f *refusing) restoration() {
	f.t.Helper()
	k := syncer.KeyRound{Key: []byte("restored"), TTL: 3_600_000,
		Adds: []syncer.Bucket{counts(second, 7)}}
	read := &syncer.Round{Writer: "reader"}
	send(f.t, f.s, read)
	r := &syncer.Round{Writer: "restorer", Seq: 1, Keys: []syncer.KeyRound{k},
		Epoch: read.Epoch, Version: read.Version, Republish: true}
	for range 2 {
		send(f.t, f.s, r)
		got, restored := f.values(&k)[0], r.Err == nil && !r.Lost && r.Keys[0].Err == nil
		if got != 0 && got != 7 || restored && (got == 0 || len(r.Keys[0].Loaded) != 1) {
			f.t.Errorf("restored %d: %v, %v", got, r.Err, r.Keys[0].Err)
		}
	}
}

func (f *refusing) all(keys []syncer.KeyRound) (list [][]int64) {
	for i := range keys {
		list = append(list, f.values(&keys[i]))
	}
	return list
}

// values returns the stored counts of the buckets that a part adds to, and the sum of the whole
// key.
func (f *refusing) values(k *syncer.KeyRound) (list []int64) {
	f.t.Helper()
	all := bucketsIn(f.t, f.srv, redisstore.Key(0, k.NS, k.Key))
	for _, b := range k.Adds {
		list = append(list, all[b.Stretch])
	}
	return append(list, all.sum())
}

func bucketsIn(t testing.TB, srv *redistest.Server, key string) content {
	t.Helper()
	fields, err := srv.Do("HKEYS", key).StringSlice()
	must.Succeed(t, err)
	values, err := srv.Do("HVALS", key).StringSlice()
	must.Succeed(t, err)
	var flat []any
	for i := range fields {
		flat = append(flat, fields[i], values[i])
	}
	all := content{}
	for _, b := range layout.ParseContent(flat, nil).Buckets {
		all[b.Stretch] = b.N
	}
	return all
}

func sumIn(t testing.TB, srv *redistest.Server, key string) int64 {
	t.Helper()
	return bucketsIn(t, srv, key).sum()
}

// elsewhere returns a key of another partition.
func elsewhere(s *redisstore.Store, from, name string) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint(name, i); s.Partition(key) != s.Partition(from) {
			return key
		}
	}
}

// TestDirectForeignStateFailsItsPartitionAlone: the key of a partition's state has a value of
// another type. Operations refused because of it count nothing at all, and operations next to them
// are not reported as refused.
func TestDirectForeignStateFailsItsPartitionAlone(t *testing.T) {
	t.Parallel()
	srv, s := started(t)
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load, Workers: 1})
	good := "good"
	bad := elsewhere(s, good, "bad")
	must.Succeed(t, srv.Do("SET", prefix.StateKey(s.Partition(bad)), "foreign").Err())
	ops := []twotier.Op{
		{Kind: twotier.Acquire, Checks: []twotier.Check{check(good, 1, 60_000, 10)}},
		{Kind: twotier.Acquire, Checks: []twotier.Check{check(bad, 1, 60_000, 10)}},
		{Kind: twotier.Acquire, Checks: []twotier.Check{check(good, 1, 60_000, 10),
			check(bad, 1, 60_000, 10)}},
		{Kind: twotier.Add, Checks: []twotier.Check{check(good, 1)}},
	}
	res := make([]twotier.Result, len(ops))
	d.DoAll(t.Context(), ops, res)
	for i, refused := range []bool{false, true, true, false} {
		if errors.Is(res[i].Err, twotier.ErrUnavailable) != refused ||
			!refused && res[i].Err != nil {
			t.Errorf("operation %d: %v, want it refused: %v", i, res[i].Err, refused)
		}
	}
	hi(t, d, good, 2)
	hi(t, d, bad, 0)
}

// TestDirectWithoutACommand revokes the permission for a command while operations run. Their
// answers must be true: refused operations are not counted, and all others are.
func TestDirectWithoutACommand(t *testing.T) {
	t.Parallel()
	srv, s := started(t)
	must.Succeed(t, probe(t, s))
	for i, command := range commandsOf(t, srv, redisstore.ExpiryKey) {
		if command == "hgetall" { // the test reads the counts with this
			continue
		}
		d := openDirect(t, redisstore.DirectOptions{
			Store: s, Now: newClock(t0).now.Load, Writer: command, Timeout: time.Minute,
		})
		key, other := fmt.Sprint("k", i), fmt.Sprint("o", i)
		ops := []twotier.Op{
			{Kind: twotier.Acquire, Checks: []twotier.Check{check(key, 1, 60_000, 10)}},
			{Kind: twotier.Acquire, Checks: []twotier.Check{check(key, 1, 60_000, 10),
				check(other, 1, 60_000, 10)}},
			{Kind: twotier.Add, Checks: []twotier.Check{check(key, 3)}},
			{Kind: twotier.Add, Checks: []twotier.Check{check(key, -1)}},
			{Kind: twotier.Add, TS: t0 - 20_000,
				Checks: []twotier.Check{check(other, 5, 60_000, 100)}},
		}
		wants := []map[string]int64{{key: 1}, {key: 1, other: 1}, {key: 3}, {key: -1}, {other: 5}}
		allow(t, srv, "-"+command)
		counted := map[string]int64{}
		res := make([]twotier.Result, len(ops))
		d.DoAll(t.Context(), ops, res)
		for j := range ops {
			if errors.Is(res[j].Err, twotier.ErrUnknownOutcome) {
				t.Errorf("without %s the outcome of operation %d is unknown: %v", command, j,
					res[j].Err)
			}
			for name, n := range wants[j] {
				if res[j].Err == nil {
					counted[name] += n
				}
			}
		}
		allow(t, srv, "+"+command)
		for _, name := range []string{key, other} {
			hi(t, d, name, max(0, counted[name]))
		}
	}
}

func allow(t *testing.T, srv *redistest.Server, rule string) {
	t.Helper()
	must.Succeed(t, srv.Do("ACL", "SETUSER", "default", rule).Err())
}

// TestDirectBanThatRedisRefuses: the key of a ban has a value of another type. An acquire that
// counts although it is refused is reported as not carried out, so nothing stays counted.
func TestDirectBanThatRedisRefuses(t *testing.T) {
	t.Parallel()
	srv, s := started(t)
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
	key := check("k", 1, 60_000, 2)
	acquire(t, d, key)
	acquire(t, d, key)
	ban := twotier.Check{Kind: twotier.BanCheck, Ban: twotier.Ban{To: 1}, Limits: limits(2000, 0)}
	ban.NS, ban.Key = twotier.BanKey(nil, "rule", key.Key)
	place := twotier.Placement{Partitions: twotier.DefaultPartitions}
	name := redisstore.Key(place.Of(ban.NS, ban.Key), ban.NS, ban.Key)
	must.Succeed(t, srv.Do("SET", name, "foreign").Err())
	op := twotier.Op{Kind: twotier.Acquire, CountDenied: true, Checks: []twotier.Check{key, ban}}
	var res twotier.Result
	if err := d.Do(t.Context(), &op, &res); !errors.Is(err, twotier.ErrUnavailable) {
		t.Errorf("%+v, %v", res, err)
	}
	hi(t, d, "k", 2)
}

package redisstore_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
)

// exchange makes one exchange of key k, whose partition is 1.
func exchange(t *testing.T, d *redisstore.Distinct, x distinct.Exchange) distinct.Exchange {
	t.Helper()
	x.Partition, x.Key, x.TTL = 1, []byte("k"), 60_000
	d.Compare(t.Context(), []*distinct.Exchange{&x})
	if x.Err != nil {
		t.Fatal(x.Err)
	}
	return x
}

// bucketOf returns a bucket of a second or wider, by its index.
func bucketOf(width, index int64, data string) distinct.Bucket {
	return distinct.Bucket{Stretch: leaparray.Stretch{Start: index * width, Width: width},
		Data: []byte(data)}
}

// contentOf returns the buckets that an exchange has found, in order.
func contentOf(x distinct.Exchange) (list []string) {
	for _, b := range x.Buckets {
		list = append(list, redisstore.Field(b.Stretch)+"="+string(b.Data))
	}
	slices.Sort(list)
	return list
}

// TestDistinctWritesOnlyWhatItExpects writes from several versions, and a reset.
func TestDistinctWritesOnlyWhatItExpects(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	d := open(t, redisstore.Options{URL: server.URL()}).Distinct()
	if x := exchange(t, d, distinct.Exchange{}); !x.Matched() || x.Found != "" {
		t.Errorf("nothing: %+v", x)
	}
	first := distinct.Exchange{Version: "one", Sets: []distinct.Bucket{
		bucketOf(1000, 7, "e\x00\xff\r\n"), bucketOf(60_000, 3, "d")}}
	if x := exchange(t, d, first); !x.Matched() {
		t.Errorf("the first write: %+v", x)
	}
	if x := exchange(t, d, first); x.Matched() || x.Found != "one" ||
		!slices.Equal(contentOf(x), []string{"-3600005=d", "-710004=e\x00\xff\r\n"}) {
		t.Errorf("the first write again: %+v", x)
	}
	second := distinct.Exchange{Expect: "one", Version: "two", Mark: "m",
		Sets:    []distinct.Bucket{bucketOf(1000, 8, "x")},
		Deletes: []distinct.Bucket{bucketOf(1000, 7, "")}}
	if x := exchange(t, d, second); !x.Matched() {
		t.Errorf("the second write: %+v", x)
	}
	if x := exchange(t, d, distinct.Exchange{Expect: "two"}); !x.Matched() || x.Buckets != nil {
		t.Errorf("only a look: %+v", x)
	}
	if x := exchange(t, d, distinct.Exchange{}); x.FoundMark != "m" ||
		!slices.Equal(contentOf(x), []string{"-3600005=d", "-810004=x"}) {
		t.Errorf("everything: %+v", x)
	}
	reset := distinct.Exchange{Expect: "two", Version: "three", Mark: "n", Reset: true}
	for _, made := range []bool{true, false} { // the second one is late
		if x := exchange(t, d, reset); x.Matched() != made {
			t.Errorf("a reset: %+v, want %v", x, made)
		}
		x := exchange(t, d, distinct.Exchange{Expect: "two"})
		if x.Matched() || x.FoundMark != "n" || x.Found != "three" || len(x.Buckets) != 0 {
			t.Errorf("after a reset: %+v", x)
		}
	}
	again := distinct.Exchange{Expect: "three", Version: "four", Mark: "n",
		Sets:    []distinct.Bucket{bucketOf(1000, 9, "y")},
		Deletes: []distinct.Bucket{bucketOf(1000, 9, "")}}
	exchange(t, d, again)
	if x := exchange(t, d, distinct.Exchange{}); !slices.Equal(contentOf(x),
		[]string{"-910004=y"}) {
		t.Errorf("written and deleted: %+v", x)
	}
	if x := exchange(t, d, reset); x.Matched() || len(x.Buckets) != 1 {
		t.Errorf("a reset that is later than a write: %+v", x)
	}
	const name = "tt:{p1}!d:default:k"
	if left, err := server.Do("PTTL", name).Int64(); err != nil || left < 1 || left > 60_000 {
		t.Errorf("it lives for %d ms, %v", left, err)
	}
	server.Do("SET", name, "of another program")
	x := distinct.Exchange{Partition: 1, Key: []byte("k")}
	if d.Compare(t.Context(), []*distinct.Exchange{&x}); !errors.Is(x.Err, distinct.ErrForeign) {
		t.Errorf("a value of another type: %v", x.Err)
	}
}

// distinctOver returns an engine that keeps distinct values in a Redis.
func distinctOver(t *testing.T, store *redisstore.Store) *distinct.Engine {
	t.Helper()
	e, err := distinct.New(distinct.Options{
		Store: store.Distinct(), Placement: store.Placement(),
		Now: func() int64 { return time.Now().UnixMilli() },
		Namespaces: map[string]distinct.Namespace{twotier.DefaultNamespace: {
			Ladder: defaultLadder(t)}},
		FlushInterval: 5 * time.Millisecond, VerifyInterval: 50 * time.Millisecond,
	})
	must.Succeed(t, err)
	e.Open(nil, nil)
	t.Cleanup(func() {
		if err := e.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return e
}

// TestForeignValueInPlaceOfDistinctOnes: another program has written under the name of a key. That
// holds up neither other keys nor a flush that waits for all of them, for example before a change
// of the mode. Once the value is gone, the added values are flushed; until then Close reports the
// key.
func TestForeignValueInPlaceOfDistinctOnes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: server.URL()})
	e := distinctOver(t, store)
	name := func(key string) string {
		hash := redisstore.Key(store.Placement().Of(nil, []byte(key)), nil, []byte(key))
		return strings.Replace(hash, "}", "}!d", 1)
	}
	server.Do("SET", name("bad"), "of another program")
	var res distinct.Result
	for _, key := range []string{"bad", "good"} {
		op := &distinct.Op{Key: []byte(key), Hashes: []uint64{e.Hash([]byte("v"))}}
		if err := e.Do(t.Context(), op, &res, false); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
	has := func(key string, want int) {
		t.Helper()
		if n, err := server.Do("HLEN", name(key)).Int(); err != nil || n < want {
			t.Errorf("%s: %d fields, %v", key, n, err)
		}
	}
	if err := e.Flush(t.Context()); err != nil {
		t.Errorf("flush: %v", err)
	}
	has("good", 1)
	other := distinctOver(t, store)
	op := &distinct.Op{Key: []byte("bad"), Hashes: []uint64{e.Hash([]byte("v"))}}
	must.Succeed(t, other.Do(t.Context(), op, &res, false))
	if err := other.Close(t.Context()); !errors.Is(err, distinct.ErrForeign) {
		t.Errorf("closed with a key that could not be flushed: %v", err)
	}
	server.Do("DEL", name("bad"))
	if err := e.Flush(t.Context()); err != nil {
		t.Errorf("flush without the foreign value: %v", err)
	}
	has("bad", 1)
}

// TestDistinctInRedis has engines that share a Redis, which loses its data in between. In the end
// it has every value that any of them had.
func TestDistinctInRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: server.URL()})
	fresh := func() *distinct.Engine { return distinctOver(t, store) }
	engines, reader := []*distinct.Engine{fresh(), fresh()}, fresh()
	var res distinct.Result
	for i := range 100 {
		op := &distinct.Op{Key: []byte("k"), Ack: twotier.AckStore}
		for j := range 20 { // 2000 in all: more than two buckets hold exactly
			op.Hashes = append(op.Hashes, reader.Hash([]byte{byte(i), byte(j)}))
		}
		run := func() error { return engines[i%2].Do(t.Context(), op, &res, false) }
		if i%5 == 0 {
			run = func() error { return engines[i%2].DoInStore(t.Context(), op, &res) }
		}
		must.Succeed(t, run())
		if i == 50 {
			flushAll(t, server)
		}
	}
	day := 24 * time.Hour.Milliseconds()
	for by := time.Now().Add(time.Minute); ; {
		err := reader.Do(t.Context(), &distinct.Op{Key: []byte("k"), Windows: []int64{day}}, &res,
			false)
		must.Succeed(t, err)
		c := res.Counts[0]
		if c.Values > 1800 && c.Values < 2200 && c.Error > 0 {
			break
		}
		if time.Now().After(by) {
			t.Fatalf("%+v, want about 2000", c)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestDistinctByOtherLadders has processes with different ladders that count the same key. Each
// knows the values of both, in every window that both read by buckets of one width.
func TestDistinctByOtherLadders(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	now := time.Now().UnixMilli()
	var engines []*distinct.Engine
	for _, text := range []string{"1s x 60, 1m x 60, 15m x 96",
		"250ms x 300, 1s x 400, 10s x 100, 1m x 60, 15m x 96"} {
		levels, err := config.ParseLadder(text)
		must.Succeed(t, err)
		l := ladderOf(t, levels...)
		s := open(t, redisstore.Options{URL: server.URL(), Ladders: ladders(l)})
		must.Succeed(t, s.Probe(t.Context()))
		e, err := distinct.New(distinct.Options{
			Store: s.Distinct(), Placement: s.Placement(), Ack: twotier.AckStore,
			Now: func() int64 { return now },
			Namespaces: map[string]distinct.Namespace{twotier.DefaultNamespace: {
				Ladder: l}},
			Timeout: time.Minute,
		})
		must.Succeed(t, err)
		engines = append(engines, e)
	}
	var res distinct.Result
	for i, e := range []*distinct.Engine{engines[0], engines[1], engines[0]} {
		for j, age := range []int64{0, 20_000, 70_000, 1_200_000} {
			op := &distinct.Op{Key: []byte("k"), TS: now - age,
				Hashes: []uint64{e.Hash([]byte{byte(i), byte(j)})}}
			must.Succeed(t, e.Do(t.Context(), op, &res, false))
		}
	}
	windows := []int64{3_000_000, 24 * time.Hour.Milliseconds()}
	want := []int64{12, 12}
	for i, e := range engines {
		op := &distinct.Op{Key: []byte("k"), Windows: windows}
		must.Succeed(t, e.DoInStore(t.Context(), op, &res))
		for j, c := range res.Counts {
			if c.Values != want[j] {
				t.Errorf("engine %d: %+v, want %d values", i, c, want[j])
			}
		}
	}
}

// TestResetOfNoValues resets a key without values in Redis. Values that others add later stay.
func TestResetOfNoValues(t *testing.T) {
	store := open(t, redisstore.Options{URL: redistest.Start(t).URL()})
	a, b := distinctOver(t, store), distinctOver(t, store)
	if _, err := a.Forget(t.Context(), nil, []byte("k")); err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		e     *distinct.Engine
		value string
		want  int64
	}{{b, "one", 1}, {a, "", 1}, {a, "two", 2}, {b, "", 2}, {distinctOver(t, store), "", 2}} {
		op, res := &distinct.Op{Key: []byte("k"), Windows: []int64{60_000}}, distinct.Result{}
		if step.value != "" {
			op.Hashes = []uint64{step.e.Hash([]byte(step.value))}
		}
		must.Succeed(t, step.e.DoInStore(t.Context(), op, &res))
		if n := res.Counts[0].Values; n != step.want {
			t.Errorf("step %d: %d values, want %d", i, n, step.want)
		}
	}
}

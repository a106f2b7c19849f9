package redisstore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
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

// contentOf returns the head and the chunks that an exchange has found, in order.
func contentOf(x distinct.Exchange) (list []string) {
	for _, c := range x.Chunks {
		list = append(list, fmt.Sprint(c.Index, "=", string(c.Data)))
	}
	slices.Sort(list)
	return append(list, string(x.Head))
}

// TestDistinctWritesOnlyWhatItExpects writes from several versions.
func TestDistinctWritesOnlyWhatItExpects(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	d := open(t, redisstore.Options{URL: server.URL()}).Distinct()
	if x := exchange(t, d, distinct.Exchange{}); !x.Matched() || x.Found != "" {
		t.Errorf("nothing: %+v", x)
	}
	first := distinct.Exchange{Version: "one", Head: []byte("\x00\r\n"), Chunks: []distinct.Chunk{
		{Index: 7, Data: []byte("e\x00\xff\r\n")}, {Index: 15, Data: []byte("d")}}}
	if x := exchange(t, d, first); !x.Matched() {
		t.Errorf("the first write: %+v", x)
	}
	if x := exchange(t, d, first); x.Matched() || x.Found != "one" ||
		!slices.Equal(contentOf(x), []string{"15=d", "7=e\x00\xff\r\n", "\x00\r\n"}) {
		t.Errorf("the first write again: %+v", x)
	}
	second := distinct.Exchange{Expect: "one", Version: "two", Chunks: []distinct.Chunk{
		{Index: 0, Data: []byte("x")}, {Index: 7}}}
	if x := exchange(t, d, second); !x.Matched() {
		t.Errorf("the second write: %+v", x)
	}
	look := exchange(t, d, distinct.Exchange{Expect: "two"})
	if !look.Matched() || look.Chunks != nil {
		t.Errorf("only a look: %+v", look)
	}
	for range 2 { // a write that is late changes nothing
		if x := exchange(t, d, distinct.Exchange{}); !slices.Equal(contentOf(x),
			[]string{"0=x", "15=d", ""}) {
			t.Errorf("everything: %+v", x)
		}
		exchange(t, d, second)
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
func distinctOver(t testing.TB, store *redisstore.Store, most int) *distinct.Engine {
	t.Helper()
	e, err := distinct.New(distinct.Options{
		Store: store.Distinct(), Placement: store.Placement(),
		Now: func() int64 { return time.Now().UnixMilli() },
		Namespaces: map[string]distinct.Namespace{twotier.DefaultNamespace: {
			Ladder: defaultLadder(t), MostValues: most}},
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
	e := distinctOver(t, store, 0)
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
	other := distinctOver(t, store, 0)
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
// it has every value that any of them had: exactly, or as an estimate if they are more than the
// engines keep.
func TestDistinctInRedis(t *testing.T) {
	t.Parallel()
	for most, tolerance := range map[int]int64{4096: 0, 512: 400} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			store := open(t, redisstore.Options{URL: server.URL()})
			fresh := func() *distinct.Engine { return distinctOver(t, store, most) }
			engines, reader := []*distinct.Engine{fresh(), fresh()}, fresh()
			var res distinct.Result
			for i := range 100 {
				op := &distinct.Op{Key: []byte("k"), Ack: twotier.AckStore}
				for j := range 20 {
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
				err := reader.Do(t.Context(), &distinct.Op{Key: []byte("k"), Windows: []int64{day}},
					&res, false)
				must.Succeed(t, err)
				c := res.Counts[0]
				if c.Count >= 2000-tolerance && c.Count <= 2000+tolerance &&
					(c.Error == 0) == (tolerance == 0) {
					break
				}
				if time.Now().After(by) {
					t.Fatalf("%+v, want 2000", c)
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
}

// TestResetOfNoValues resets a key without values in Redis. Values that others add later stay.
func TestResetOfNoValues(t *testing.T) {
	store := open(t, redisstore.Options{URL: redistest.Start(t).URL()})
	a, b := distinctOver(t, store, 0), distinctOver(t, store, 0)
	if _, err := a.Forget(t.Context(), nil, []byte("k")); err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		e     *distinct.Engine
		value string
		want  int64
	}{{b, "one", 1}, {a, "", 1}, {a, "two", 2}, {b, "", 2}, {distinctOver(t, store, 0), "", 2}} {
		op, res := &distinct.Op{Key: []byte("k"), Windows: []int64{60_000}}, distinct.Result{}
		if step.value != "" {
			op.Hashes = []uint64{step.e.Hash([]byte(step.value))}
		}
		must.Succeed(t, step.e.DoInStore(t.Context(), op, &res))
		if n := res.Counts[0].Count; n != step.want {
			t.Errorf("step %d: %d values, want %d", i, n, step.want)
		}
	}
}

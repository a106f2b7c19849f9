package distinct_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/syncer"
)

// ownsAll is the owner of all partitions.
type ownsAll struct{}

func (ownsAll) Term(int) (term int64, decides bool) { return 1, true }

// partitions lists the partitions of the tests.
var partitions = []int{0, 1, 2, 3, 4, 5, 6}

// TestTakeover makes an engine the owner of keys with unflushed values on another engine. The first
// request has no time left; later ones use the values it gathered.
func TestTakeover(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newMemory()
	never := func(o *distinct.Options) { o.FlushInterval = time.Hour }
	before := engine(t, c, store, nil, nil, never)
	add(t, before, "k", 1, 2, 3)
	asked := 0
	gather := func(ctx context.Context, list []int) []distinct.Pending {
		if asked++; ctx.Err() != nil {
			return nil
		}
		return before.ListUnflushed(list)
	}
	after := engine(t, c, store, ownsAll{}, gather, never)
	late, cancel := context.WithCancel(t.Context())
	cancel()
	limited := &distinct.Op{Key: []byte("k"), Hashes: values(after, 4),
		Limits: []twotier.Limit{{Window: 60_000, Max: 3}}}
	var res distinct.Result
	if err := after.Do(late, limited, &res, false); err != nil &&
		!errors.Is(err, twotier.ErrUnavailable) {
		t.Fatal(err)
	}
	if res := do(t, after, limited); res.Allowed || res.Counts[0].Count != 3 {
		t.Errorf("%+v, want 3 values and no room for a fourth", res)
	}
	if asked != 1 {
		t.Errorf("the others were asked %d times", asked)
	}
}

// TestATakeoverHoldsUpNobody asks for a key while the other nodes are asked, with no time to wait
// for them.
func TestATakeoverHoldsUpNobody(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan bool), make(chan bool)
	e := engine(t, newClock(), newMemory(), ownsAll{},
		func(context.Context, []int) []distinct.Pending {
			close(asked)
			<-answer
			return nil
		}, nil)
	first := make(chan error, 1)
	ask := func(ctx context.Context) error {
		op := &distinct.Op{Key: []byte("k"), Windows: []int64{60_000}}
		return e.Do(ctx, op, new(distinct.Result), false)
	}
	brief, end := context.WithCancel(t.Context())
	go func() { first <- ask(brief) }()
	<-asked
	end()
	if err := <-first; !errors.Is(err, twotier.ErrUnavailable) {
		t.Errorf("%v, want that there was no time", err)
	}
	if err := ask(brief); !errors.Is(err, twotier.ErrUnavailable) {
		t.Errorf("%v, want that there was no time", err)
	}
	go func() { first <- ask(t.Context()) }()
	close(answer)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// TestTheOthersFlushWhileTheyAreAsked makes an engine the owner of a key that it has in memory.
// While it asks the others, it compares the key with the store, and then another engine flushes:
// the other engine has nothing left to report, and the earlier comparison is incomplete.
func TestTheOthersFlushWhileTheyAreAsked(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newMemory()
	never := func(o *distinct.Options) { o.FlushInterval = time.Hour }
	before := engine(t, c, store, nil, nil, never)
	add(t, before, "k", 1, 2, 3)
	var after *distinct.Engine
	after = engine(t, c, store, ownsAll{}, func(_ context.Context, list []int) []distinct.Pending {
		for _, e := range []*distinct.Engine{after, before} {
			if err := e.Flush(t.Context()); err != nil {
				t.Error(err)
			}
		}
		return before.ListUnflushed(list)
	}, never)
	var res distinct.Result
	inPlace := &distinct.Op{Key: []byte("k"), Hashes: values(after, 4)}
	must.Succeed(t, after.Do(t.Context(), inPlace, &res, true))
	if n := query(t, after, "k", time.Minute).Count; n != 4 {
		t.Errorf("%d values, want 4", n)
	}
}

// TestQueriesEndWithTheEngine asks a closed engine for a key that is not in memory, even if no time
// passes meanwhile.
func TestQueriesEndWithTheEngine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, newClock(), newMemory(), nil, nil, nil)
		must.Succeed(t, e.Close(t.Context()))
		op := &distinct.Op{Key: []byte("k"), Windows: []int64{60_000}}
		if res := do(t, e, op); !res.Degraded {
			t.Errorf("%+v", res)
		}
	})
}

// half is a store of which one part is gone: the part with keys that begin with x.
type half struct{ *memory }

func (h half) Compare(ctx context.Context, list []*distinct.Exchange) {
	var there []*distinct.Exchange
	for _, x := range list {
		if x.Err = nil; x.Key[0] == 'x' {
			x.Err = errStore
		} else {
			there = append(there, x)
		}
	}
	h.memory.Compare(ctx, there)
}

// TestFlushesWhatAnswers flushes keys of one part of the store while another part does not answer.
func TestFlushesWhatAnswers(t *testing.T) {
	t.Parallel()
	e := engine(t, newClock(), half{newMemory()}, nil, nil, nil)
	for i := range 100 {
		add(t, e, fmt.Sprint("x", i), 1)
		add(t, e, fmt.Sprint("k", i), 1)
	}
	eventually(t, "only what is gone is pending", func() bool { return e.Stats().Pending == 100 })
}

// readonly is a store that refuses to write.
type readonly struct{ *memory }

func (r readonly) Compare(ctx context.Context, list []*distinct.Exchange) {
	for _, x := range list {
		if x.Version == "" {
			r.memory.Compare(ctx, []*distinct.Exchange{x})
		} else {
			x.Err = syncer.ErrRefused
		}
	}
}

// TestRefusedWritesAreSaid reports an answer as degraded if the store refuses the values, although
// it can be read.
func TestRefusedWritesAreSaid(t *testing.T) {
	t.Parallel()
	e := engine(t, newClock(), readonly{newMemory()}, nil, nil, nil)
	ask := &distinct.Op{Key: []byte("k"), Windows: []int64{60_000}}
	do(t, e, ask)
	add(t, e, "k", 1)
	eventually(t, "an answer that is degraded", func() bool { return do(t, e, ask).Degraded })
	if res := do(t, e, &distinct.Op{Key: []byte("l"), Windows: []int64{60_000}}); res.Degraded {
		t.Errorf("a key that can be read: %+v", res)
	}
}

// TestTheStoreIsAskedAgain counts a key while the store fails and, after a pause without exchanges,
// another key: the answer includes the store's current values.
func TestTheStoreIsAskedAgain(t *testing.T) {
	synctest.Test(t, testTheStoreIsAskedAgain)
}

func testTheStoreIsAskedAgain(t *testing.T) {
	store := newMemory()
	calls := func() int {
		store.mu.Lock()
		defer store.mu.Unlock()
		return store.calls
	}
	other := engine(t, newClock(), store, nil, nil, nil)
	add(t, other, "l", 1, 2)
	must.Succeed(t, other.Close(t.Context()))
	e := engine(t, newClock(), store, nil, nil,
		func(o *distinct.Options) { o.Timeout = o.VerifyInterval })
	store.set(func() fault { return lost })
	before := calls()
	if res := do(t, e, &distinct.Op{Key: []byte("k"), Windows: []int64{60_000}}); !res.Degraded {
		t.Errorf("%+v, although the store is gone", res)
	}
	synctest.Wait()
	if n := calls() - before; n != 2 { // one for the answer, one for later operations
		t.Errorf("the store was asked %d times", n)
	}
	store.set(nil)
	time.Sleep(100 * time.Millisecond)
	res := do(t, e, &distinct.Op{Key: []byte("l"), Windows: []int64{60_000}})
	if res.Degraded || res.Counts[0].Count != 2 {
		t.Errorf("%+v, although the store is back", res)
	}
}

// TestClocksDiffer counts the values of another node whose clock is ahead.
func TestClocksDiffer(t *testing.T) {
	t.Parallel()
	c, ahead, store := newClock(), newClock(), newMemory()
	ahead.ms.Add(3000)
	other, e := engine(t, ahead, store, nil, nil, nil), engine(t, c, store, nil, nil, nil)
	add(t, other, "k", 1, 2)
	must.Succeed(t, other.Flush(t.Context()))
	for _, window := range []time.Duration{2 * time.Second, time.Hour} {
		if n := query(t, e, "k", window).Count; n != 2 {
			t.Errorf("the last %v: %d, want 2", window, n)
		}
	}
}

// TestHandOver stops an engine without a working store. Others accept its unflushed values, in
// lists of a bounded size, and the engine no longer waits for these. It does wait for values that
// no engine accepted or that were added later.
func TestHandOver(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newMemory()
	store.set(func() fault { return lost })
	before := engine(t, c, store, nil, nil, nil)
	const keys, each = 200, 3_000
	hashes := make([]uint64, 0, each)
	for v := range each {
		hashes = append(hashes, values(before, v)...)
	}
	for k := range keys {
		for from := 0; from < each; from += distinct.MaxValues {
			do(t, before, &distinct.Op{Key: fmt.Append(nil, k),
				Hashes: hashes[from:min(from+distinct.MaxValues, each)]})
		}
	}
	after := map[int]*distinct.Engine{}
	for node := range 2 {
		after[node] = engine(t, c, store, nil, nil, nil)
	}
	to := func(partition int) int { return partition % 3 }
	lists, taken := 0, 0
	left := before.HandOver(to, func(node int, list []distinct.Pending) error {
		if node == 2 {
			return errStore
		}
		lists, taken = lists+1, taken+len(list)
		if left := after[node].Import(list); left != 0 {
			t.Errorf("%d keys had no room", left)
		}
		return nil
	})
	if left == 0 || taken == 0 || left+taken != keys {
		t.Fatalf("%d keys taken, %d left", taken, left)
	}
	if lists <= len(after) {
		t.Errorf("%d keys in %d lists", taken, lists)
	}
	found := 0
	for k := range keys {
		key := strconv.Itoa(k)
		for node, e := range after {
			if e.Partition(&distinct.Op{Key: []byte(key)})%3 == node {
				if n := query(t, e, key, time.Minute).Count; n != each {
					t.Errorf("key %s has %d values, want %d", key, n, each)
				}
				found++
			}
		}
	}
	if found != taken {
		t.Errorf("%d keys found, %d taken", found, taken)
	}
	wantLeft(t, before, left)
	if left := before.HandOver(to, func(int, []distinct.Pending) error { return nil }); left != 0 {
		t.Errorf("%d left", left)
	}
	wantLeft(t, before, 0)
	add(t, before, "later", 1)
	wantLeft(t, before, 1)
}

// wantLeft flushes with no time to wait, and checks the number of keys left.
func wantLeft(t *testing.T, e *distinct.Engine, want int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := e.Flush(ctx)
	if want == 0 && err == nil {
		return
	}
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("(keys: %d)", want)) {
		t.Errorf("the last flush: %v, want %d keys left", err, want)
	}
}

// TestHandOverOfWhatWasReset hands over a key that was reset meanwhile. The sender's earlier values
// are void; values that it added afterwards, without reading the key, are not.
func TestHandOverOfWhatWasReset(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newMemory()
	never := func(o *distinct.Options) { o.FlushInterval = time.Hour }
	owner := engine(t, c, store, nil, nil, never)
	early, late := engine(t, c, store, nil, nil, never), engine(t, c, store, nil, nil, never)
	add(t, owner, "k", 0)
	finish(t, owner)
	add(t, early, "k", 1, 2)
	c.ms.Add(1)
	if _, err := owner.Forget(t.Context(), nil, []byte("k")); err != nil {
		t.Fatal(err)
	}
	c.ms.Add(1)
	add(t, owner, "k", 3)
	add(t, late, "k", 4)
	for _, from := range []*distinct.Engine{early, late} {
		left := from.HandOver(func(int) int { return 0 },
			func(_ int, list []distinct.Pending) error {
				owner.Import(list)
				return nil
			})
		if left != 0 {
			t.Errorf("%d left", left)
		}
	}
	for _, when := range []string{"before", "after"} {
		if n := query(t, owner, "k", time.Minute).Count; n != 2 {
			t.Errorf("%d values %s a flush, want those added after the reset", n, when)
		}
		finish(t, owner)
	}
}

// TestTwoThatLeaveTogether makes two engines hand over to each other, as if each took the other for
// the one that stays, while the store does not answer. One of them keeps the value, and reports it.
func TestTwoThatLeaveTogether(t *testing.T) {
	c, store := newClock(), newMemory()
	store.set(func() fault { return lost })
	a, b := engine(t, c, store, nil, nil, nil), engine(t, c, store, nil, nil, nil)
	add(t, a, "k", 1)
	pass := func(from, to *distinct.Engine) (left int) {
		return from.HandOver(func(int) int { return 0 },
			func(_ int, list []distinct.Pending) error {
				if to.Import(list) > 0 {
					return errStore
				}
				return nil
			})
	}
	if first, second := pass(a, b), pass(b, a); first != 0 || second != 1 {
		t.Errorf("%d and %d keys are left", first, second)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if errA, errB := a.Close(ctx), b.Close(ctx); errA != nil || errB == nil {
		t.Errorf("they say %v and %v", errA, errB)
	}
}

// TestImportMakesRoom hands keys over to an engine whose memory is full of flushed keys.
func TestImportMakesRoom(t *testing.T) {
	c, store := newClock(), newMemory()
	never := func(o *distinct.Options) { o.FlushInterval, o.VerifyInterval = time.Hour, time.Hour }
	full := engine(t, c, store, nil, nil, func(o *distinct.Options) {
		never(o)
		o.MaxMemory = 100 << 10
	})
	for i := range 400 {
		add(t, full, fmt.Sprint("clean", i), 1)
		finish(t, full)
	}
	from := engine(t, c, store, nil, nil, never)
	for i := range 40 {
		add(t, from, fmt.Sprint("new", i), 1)
	}
	if left := full.Import(from.ListUnflushed(partitions)); left > 0 {
		t.Errorf("%d of 40 keys are refused", left)
	}
}

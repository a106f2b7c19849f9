package simtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/simnet"
	"twotier.dev/twotier/ring"
)

// keysOf returns keys that a process owns by its own table.
func (w *world) keysOf(p *proc, prefix string, n int) (keys []string) {
	t := p.ring.Table()
	for i := 0; len(keys) < n; i++ {
		if key := fmt.Sprint(prefix, i); t.OwnedBySelf(w.partition(key)) {
			keys = append(keys, key)
		}
	}
	return keys
}

func adding(key string) *twotier.Op {
	return &twotier.Op{Kind: twotier.Add, Ack: twotier.AckMemory,
		Checks: []twotier.Check{{Key: []byte(key), N: 1}}}
}

func acquiring(limit int64, keys ...string) *twotier.Op {
	op := &twotier.Op{Kind: twotier.Acquire, Ack: twotier.AckMemory}
	for _, key := range keys {
		op.Checks = append(op.Checks,
			twotier.Check{Key: []byte(key), N: 1,
				Limits: []twotier.Limit{{Window: dayMS, Max: limit}}})
	}
	return op
}

// do executes an operation on a process.
func (p *proc) do(op *twotier.Op, within time.Duration) (twotier.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	var res twotier.Result
	err := p.node.Do(ctx, op, &res)
	return res, err
}

// TestForwardedWithLittleTime forwards adds with deadlines about as long as a message takes. None
// is counted twice.
func TestForwardedWithLittleTime(t *testing.T) {
	inCalm(t, func(t *testing.T, w *world) {
		w.net.SetWeather(simnet.Weather{Delay: 100 * time.Microsecond})
		a, b := w.alive()[0], w.alive()[1]
		most := map[string]int64{}
		for i, key := range w.keysOf(b, "short", 200) {
			_, err := a.do(adding(key), time.Duration(i)*50*time.Microsecond)
			if err == nil || errors.Is(err, twotier.ErrUnknownOutcome) {
				most[key]++
			}
		}
		time.Sleep(5 * time.Second)
		for key, n := range most {
			if r := w.stored(key); r > n {
				t.Errorf("%s: Redis has %d, at most %d was acknowledged or in doubt", key, r, n)
			}
		}
	})
}

// reserve reserves in a process's memory.
func (p *proc) reserve(id string, op *twotier.Op) error {
	op.Reserve = id
	return p.counter.Do(context.Background(), op, new(twotier.Result))
}

// TestNobodyStandsInDuringALeave delays a handover with a reservation, for longer than a node may
// be silent about a message. Callers wait meanwhile; no node considers the owner dead, and no limit
// is exceeded.
func TestNobodyStandsInDuringALeave(t *testing.T) {
	inCalm(t, func(t *testing.T, w *world) {
		a, b, c := w.alive()[0], w.alive()[1], w.alive()[2]
		const limit = 400
		keys := w.keysOf(b, "y", 4)
		slow := acquiring(limit, keys[0])
		must.Succeed(t, b.reserve("slow", slow))
		time.AfterFunc(800*time.Millisecond, func() { b.counter.Undo(slow) })
		left := make(chan error, 1)
		go func() { left <- b.leave() }()
		var admitted [4]atomic.Int64
		var busy sync.WaitGroup
		end := time.Now().Add(3 * time.Second)
		for i := range 16 {
			busy.Go(func() {
				for k := i; time.Now().Before(end); k++ {
					res, err := []*proc{a, c}[i%2].do(acquiring(limit, keys[k%4]), 2*time.Second)
					switch {
					case err == nil && res.Source == twotier.SourceFallback:
						t.Errorf("%s: fallback", keys[k%4])
					case err == nil && res.Allowed:
						admitted[k%4].Add(1)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		busy.Wait()
		if err := <-left; err != nil {
			t.Error(err)
		}
		for i := range admitted {
			if n := admitted[i].Load(); n != limit {
				t.Errorf("%s: %d admitted, the limit is %d", keys[i], n, limit)
			}
		}
	})
}

// TestNobodyStandsInForOneThatAnswers slows messages to an owner that leaves. It has closed by the
// time it is asked, after the new owner has named it. The new owner answers all the time.
func TestNobodyStandsInForOneThatAnswers(t *testing.T) {
	inCalm(t, func(t *testing.T, w *world) {
		b, c := w.alive()[1], w.alive()[2]
		key := w.keysOf(b, "q", 1)[0]
		if _, err := c.do(adding(key), 2*time.Second); err != nil {
			t.Fatal(err)
		}
		slow := acquiring(100, key)
		must.Succeed(t, b.reserve("slow", slow))
		w.net.Slow(c.ip, b.ip, 200*time.Millisecond)
		time.AfterFunc(1250*time.Millisecond, func() { b.counter.Undo(slow) })
		left := make(chan error, 1)
		go func() { left <- b.leave() }()
		time.Sleep(1050 * time.Millisecond)
		for end := time.Now().Add(2 * time.Second); time.Now().
			Before(end); time.Sleep(20 * time.Millisecond) {
			go func() {
				if res, err := c.do(adding(key), 2*time.Second); err == nil &&
					res.Source == twotier.SourceFallback {
					t.Error("fallback")
				}
			}()
		}
		time.Sleep(3 * time.Second)
		if err := <-left; err != nil {
			t.Error(err)
		}
		w.net.Heal()
	})
}

// TestWhoLeavesWithoutRedisHandsOverItsValues makes nodes leave at the same time while nobody has
// Redis: the owner of a key, and maybe the next one. The others count the values that the owner had
// acknowledged, and write them once they can.
func TestWhoLeavesWithoutRedisHandsOverItsValues(t *testing.T) {
	for leavers := range 2 {
		synctest.Test(t, func(t *testing.T) {
			w := calmWith(t, func(p *plan) { p.values = true })
			defer w.shutDown()
			all := w.alive()
			key := w.keysOf(all[0], "k", 1)[0]
			for _, p := range all {
				p.store.SetDown(true)
			}
			names := [][]byte{[]byte("a"), []byte("b")}
			must.Succeed(t, all[0].distinct(newValueOp(key, names, nil)))
			var leaving sync.WaitGroup
			for _, p := range all[:1+leavers] {
				leaving.Go(func() {
					if err := p.leave(); err != nil {
						t.Errorf("%s leaves: %v", p.id, err)
					}
					w.bury(p)
				})
			}
			leaving.Wait()
			for _, p := range w.alive() {
				query := newValueOp(key, nil, nil, dayMS)
				if p.distinct(query) != nil || query.counts()[0].Count != 2 {
					t.Errorf("%s counts %+v %v, want 2", p.id, query.res, query.err)
				}
				p.store.SetDown(false)
			}
			w.settle(t)
			w.atomic.Lock()
			defer w.atomic.Unlock()
			if n := w.valuesOf(key).Len(); n != 2 {
				t.Errorf("Redis has %d values, want 2", n)
			}
		})
	}
}

// inherited returns a key of one process that another owns once the first has left.
func (w *world) inherited(from, to *proc) string {
	t := from.ring.Table()
	var rest []ring.Member
	for i := range t.Len() {
		if i != t.Self() {
			rest = append(rest, *t.Member(i))
		}
	}
	after, err := ring.NewTable(rest, to.ring.Name(), w.plan.partitions, 5)
	must.Succeed(w.t, err)
	for _, key := range w.keysOf(from, "a", 100) {
		if after.OwnedBySelf(w.partition(key)) {
			return key
		}
	}
	w.t.Fatal("it inherits nothing")
	return ""
}

// TestAGroupIsWholeWhenItsDeciderLeaves acquires keys of two nodes and waits for the store, which
// the coordinator can't reach. Meanwhile the coordinator leaves: it hands its part over, and no
// node can ask it for the outcome any more.
func TestAGroupIsWholeWhenItsDeciderLeaves(t *testing.T) {
	for name, asked := range map[string]int{"asked itself": 0, "asked by another": 2} {
		t.Run(name, func(t *testing.T) {
			inCalm(t, func(t *testing.T, w *world) {
				a, b := w.alive()[0], w.alive()[1]
				ask := w.alive()[asked]
				keys := []string{w.inherited(a, w.alive()[2]), w.keysOf(b, "b", 1)[0]}
				for _, key := range keys {
					// Without the store an acquire of a cold key would be refused.
					if _, err := ask.do(adding(key), 2*time.Second); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Second)
				op := acquiring(2, keys...)
				op.Ack = twotier.AckStore
				a.store.SetDown(true)
				told := make(chan error, 1)
				go func() {
					_, err := ask.do(op, 2*time.Second)
					told <- err
				}()
				time.Sleep(50 * time.Millisecond)
				w.net.Slow(b.ip, a.ip, 700*time.Millisecond) // its question arrives too late
				if err := a.leave(); err != nil {
					t.Error(err)
				}
				err := <-told
				w.net.Heal()
				time.Sleep(20 * time.Second)
				counts := fmt.Sprint(w.stored(keys[0]), w.stored(keys[1]))
				if counts != "1 1" && counts != "2 2" || err == nil && counts == "1 1" {
					t.Errorf("Redis has %s of what is all or nothing, the client was told %v",
						counts, err)
				}
			})
		})
	}
}

// TestAGroupIsWholeWhenItsHolderLeaves acquires keys of two nodes. The decider waits for the store,
// which it can't reach, for longer than the preparation of a handoff may take. Meanwhile the other
// node leaves, which can't hand over its reservation.
func TestAGroupIsWholeWhenItsHolderLeaves(t *testing.T) {
	inCalm(t, func(t *testing.T, w *world) {
		holder, decider, ask := w.alive()[0], w.alive()[1], w.alive()[2]
		keys := []string{w.inherited(holder, ask), w.keysOf(decider, "b", 1)[0]}
		for _, key := range keys {
			// Without the store an acquire of a cold key would be refused.
			if _, err := ask.do(adding(key), 2*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		op := acquiring(2, keys...)
		op.Ack = twotier.AckStore
		decider.store.SetDown(true)
		told := make(chan error, 1)
		go func() {
			_, err := ask.do(op, 5*time.Second)
			told <- err
		}()
		time.Sleep(50 * time.Millisecond)
		if err := holder.leave(); err != nil {
			t.Error(err)
		}
		err := <-told
		decider.store.SetDown(false)
		time.Sleep(20 * time.Second)
		counts := fmt.Sprint(w.stored(keys[0]), w.stored(keys[1]))
		if counts != "2 2" {
			t.Errorf("Redis has %s of what is all or nothing, the client was told %v", counts, err)
		}
	})
}

// TestLoansEndWithTheOwnersRedis takes Redis away only from the owner of a hot key, which then
// can't read remote counts. Once the others have used up their loans they ask it about everything,
// and it grants no more loans before it has Redis back.
func TestLoansEndWithTheOwnersRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calmWith(t, func(p *plan) { p.hotRate = 20 })
		defer w.shutDown()
		a, b := w.alive()[0], w.alive()[1]
		key := w.keysOf(b, "hot", 1)[0]
		sources := func(length time.Duration) map[twotier.Source]int {
			seen := map[twotier.Source]int{}
			for end := time.Now().Add(length); time.Now().
				Before(end); time.Sleep(5 * time.Millisecond) {
				res, err := a.do(acquiring(1<<40, key), 2*time.Second)
				must.Succeed(t, err)
				seen[res.Source]++
			}
			return seen
		}
		if seen := sources(5 * time.Second); seen[twotier.SourceNear] == 0 {
			t.Fatalf("the key has not become hot: %v", seen)
		}
		b.store.SetDown(true)
		sources(6 * time.Second) // the loans run out
		if seen := sources(10 * time.Second); seen[twotier.SourceNear] > 0 {
			t.Errorf("lent by an owner that can't read what is counted: %v", seen)
		}
		b.store.SetDown(false)
		if seen := sources(10 * time.Second); seen[twotier.SourceNear] == 0 {
			t.Errorf("never hot again: %v", seen)
		}
	})
}

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

// TestALeaveIsMissed makes a node leave while another one stands still, for longer than it takes to
// be declared dead. The latter stands in for the departed node until it notices, but no longer than
// the judge allows.
func TestALeaveIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calmWith(t, func(p *plan) { p.nodes = 4 })
		defer w.shutDown()
		a, c := w.alive()[0], w.alive()[2]
		key := w.keysOf(c, "left", 1)[0]
		left := make(chan error, 1)
		go func() { left <- c.leave() }()
		a.sleep(12 * time.Second)
		must.Succeed(t, <-left)
		began, last := time.Now(), time.Duration(0)
		for time.Since(began) < 2*noticing {
			asked := time.Now()
			res, err := a.do(adding(key), time.Second)
			if err == nil && res.Source == twotier.SourceFallback {
				w.sight.standIn(a, adding(key), asked, true)
				last = time.Since(began)
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Logf("the last stand-in comes %v after the standstill", last)
		w.checkStandIns()
	})
}

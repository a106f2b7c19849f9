package simtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
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

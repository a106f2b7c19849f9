package peer_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/testing/simnet"
)

var (
	modelSeed  = flag.Uint64("seed", 0, "run the model with this seed only")
	modelSeeds = flag.Int("seeds", 60, "number of seeds that the model runs with")
)

// ledgerNode is a node that records the time of each count. It is slow, but counts nothing after
// its context has ended.
type ledgerNode struct {
	yes
	mu      sync.Mutex
	rnd     *rand.Rand
	slow    int // one task in so many takes up to 3 s
	counted map[string][]time.Time
}

func (f *ledgerNode) Serve(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		if f.dawdle(ctx); ctx.Err() != nil {
			res[i].Err = twotier.ErrUnavailable
			continue
		}
		key := string(ops[i].Checks[0].Key)
		f.mu.Lock()
		f.counted[key] = append(f.counted[key], time.Now())
		f.mu.Unlock()
		res[i].Allowed, res[i].Source = true, twotier.SourceMemory
	}
}

func (f *ledgerNode) dawdle(ctx context.Context) {
	f.mu.Lock()
	d := time.Duration(0)
	if f.rnd.IntN(f.slow) == 0 {
		d = upTo(f.rnd, 3*time.Second)
	}
	f.mu.Unlock()
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
}

// TestModel forwards operations with deadlines of every length over a network that loses, delays
// and repeats messages, to a slow node. Acknowledged operations are counted once, refused ones
// never, ones with an unknown outcome at most once, and none after its caller's deadline. No caller
// gets the error that the node can't be reached while the node is only slow.
func TestModel(t *testing.T) {
	for i := range *modelSeeds {
		seed := uint64(i + 1)
		if *modelSeed != 0 {
			seed = *modelSeed
		}
		synctest.Test(t, func(t *testing.T) { newModel(t, seed).run() })
		if t.Failed() || *modelSeed != 0 {
			t.Logf("seed %d", seed)
			return
		}
	}
}

type model struct {
	*testing.T
	rnd   *rand.Rand
	pair  *pair
	node  *ledgerNode
	calm  bool // the only disturbance is slowness
	began time.Time

	mu    sync.Mutex
	rows  map[string]modelRow
	kinds map[string]int
}

// modelRow is one operation: its deadline and its outcome.
type modelRow struct {
	by  time.Time
	err error
}

func newModel(t *testing.T, seed uint64) *model {
	rnd := rand.New(rand.NewPCG(seed, 7))
	m := &model{T: t, rnd: rnd, calm: rnd.IntN(3) == 0, began: time.Now(),
		rows: map[string]modelRow{}, kinds: map[string]int{}}
	w := simnet.Weather{Delay: upTo(rnd, 3*time.Millisecond),
		Jitter: 100 + upTo(rnd, 10*time.Millisecond)}
	if rnd.IntN(2) == 0 {
		w.Delay, w.Jitter = w.Delay/20, w.Jitter/100 // as on one machine
	}
	if !m.calm {
		w.CallLoss = rnd.IntN(200)
	}
	m.pair = newPair(t, w, "s", "s")
	m.node = &ledgerNode{rnd: rand.New(rand.NewPCG(seed, 8)), slow: 1 + rnd.IntN(30),
		counted: map[string][]time.Time{}}
	m.pair.serveNode("b-1", "s", m.node)
	return m
}

func (m *model) run() {
	var callers sync.WaitGroup
	for g := range 8 {
		rnd := rand.New(rand.NewPCG(m.rnd.Uint64(), uint64(g)))
		callers.Go(func() {
			for i := range 60 {
				m.ask(fmt.Sprint(g, "-", i), deadline(rnd))
				time.Sleep(upTo(rnd, 100*time.Millisecond))
			}
		})
	}
	done := make(chan struct{})
	go func() { callers.Wait(); close(done) }()
	for finished := false; !finished; {
		select {
		case <-done:
			finished = true
		case <-time.After(upTo(m.rnd, 2*time.Second)):
			m.disturb()
		}
	}
	m.pair.net.Heal()
	time.Sleep(time.Minute) // abandoned messages may still arrive
	m.check()
}

// deadline returns a duration of any order of magnitude from 100 µs to 3 s.
func deadline(rnd *rand.Rand) time.Duration {
	most := 100 * time.Microsecond
	for range rnd.IntN(16) {
		most *= 2
	}
	return most/2 + upTo(rnd, most)
}

// disturb disturbs the network at random.
func (m *model) disturb() {
	from, to := "a", "b"
	if m.rnd.IntN(2) == 0 {
		from, to = to, from
	}
	switch what := m.rnd.IntN(6); {
	case m.calm:
		m.pair.net.Slow(from, to, upTo(m.rnd, 60*time.Millisecond))
	case what == 0:
		m.pair.net.Cut(from, to, simnet.Calls)
	case what == 1:
		m.pair.net.Slow(from, to, upTo(m.rnd, 4*time.Second))
	default:
		m.pair.net.Heal()
	}
}

func (m *model) ask(key string, within time.Duration) {
	by := time.Now().Add(within)
	err := m.pair.add(key, within)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows[key] = modelRow{by, err}
}

func (m *model) check() {
	for key, row := range m.rows {
		times := m.node.counted[key]
		least, most, kind := expected(row.err)
		m.kinds[kind]++
		switch {
		case len(times) < least || len(times) > most:
			m.Errorf("%s: counted %d times, but its caller was told: %v", key, len(times), row.err)
		case len(times) > 0 && times[0].After(row.by):
			m.Errorf("%s: counted %v after its deadline", key, times[0].Sub(row.by))
		case m.calm && errors.Is(row.err, rpc.ErrUnreachable):
			m.Errorf("%s: the node answers all the while: %v", key, row.err)
		}
	}
	m.Logf("calm %v: %v", m.calm, m.kinds)
}

// expected returns the allowed number of counts of an operation with this outcome.
func expected(err error) (least, most int, kind string) {
	switch {
	case err == nil:
		return 1, 1, "done"
	case errors.Is(err, twotier.ErrUnknownOutcome):
		return 0, 1, "unknown"
	case errors.Is(err, rpc.ErrUnreachable):
		return 0, 0, "unreachable"
	case errors.Is(err, rpc.ErrLate):
		return 0, 0, "late"
	case errors.Is(err, twotier.ErrUnavailable):
		return 0, 0, "given up there"
	}
	return 0, 0, err.Error()
}

// upTo returns a random duration shorter than most.
func upTo(rnd *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(rnd.Int64N(int64(most)))
}

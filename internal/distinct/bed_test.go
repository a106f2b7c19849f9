package distinct_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

var errStore = errors.New("the store is gone")

// memory is a distinct.Store that fails on demand.
type memory struct {
	mu    sync.Mutex
	keys  map[string]*stored
	fault func() fault        // nil: none
	later func(arrive func()) // makes late requests arrive
	calls int
}

type stored struct {
	version string
	head    []byte
	chunks  map[int][]byte
}

// fault is the fate of an exchange.
type fault int

const (
	none    fault = iota
	lost          // the request
	unheard       // the reply
	late          // both: the request arrives after the engine has given up
)

func newMemory() *memory { return &memory{keys: map[string]*stored{}} }

func (m *memory) Compare(_ context.Context, list []*distinct.Exchange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range list {
		m.calls++
		f := none
		if m.fault != nil {
			f = m.fault()
		}
		switch f {
		case late:
			c := *x
			m.later(func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.compare(&c)
			})
		case none, unheard:
			m.compare(x)
		}
		if f != none {
			x.Err = errStore
		}
	}
}

func (m *memory) compare(x *distinct.Exchange) {
	name := fmt.Sprintf("%d:%s:%s", x.Partition, x.NS, x.Key)
	k := m.keys[name]
	if k == nil {
		k = &stored{chunks: map[int][]byte{}}
	}
	expected, version, head, chunks := k.version == x.Expect, x.Version, x.Head, x.Chunks
	x.Err, x.Found = nil, k.version
	if !expected {
		x.Head, x.Chunks = k.head, nil
		for i, data := range k.chunks {
			x.Chunks = append(x.Chunks, distinct.Chunk{Index: i, Data: data})
		}
		return
	}
	if version == "" {
		return
	}
	m.keys[name], k.version, k.head = k, version, head
	for _, c := range chunks {
		if k.chunks[c.Index] = c.Data; len(c.Data) == 0 {
			delete(k.chunks, c.Index)
		}
	}
}

// asked returns the number of exchanges so far.
func (m *memory) asked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// set changes the faults.
func (m *memory) set(f func() fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = f
}

// snapshot returns a copy of all keys, restore goes back to one.
func (m *memory) snapshot() map[string]*stored {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]*stored{}
	for name, k := range m.keys {
		all[name] = &stored{k.version, k.head, maps.Clone(k.chunks)}
	}
	return all
}

func (m *memory) restore(to map[string]*stored) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys = to
}

// valueCount returns the number of values of all keys.
func (m *memory) valueCount(t *testing.T) (n int) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.keys {
		var v leaparray.Values
		for _, data := range k.chunks {
			must.Succeed(t, v.MergeChunk(data, math.MaxInt))
		}
		n += v.Len()
	}
	return n
}

const start = 1_700_000_000_000

// clock is the clock of a test.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.ms.Store(start)
	return c
}

func ladder(t testing.TB) *leaparray.Ladder {
	t.Helper()
	l, err := leaparray.NewLadder(leaparray.DefaultExact, leaparray.DefaultLevels()...)
	must.Succeed(t, err)
	return l
}

// engine returns an open engine.
func engine(t testing.TB, c *clock, store distinct.Store, owner distinct.Owner,
	gather distinct.Gather, change func(o *distinct.Options)) *distinct.Engine {
	t.Helper()
	opt := distinct.Options{
		Store: store, Now: c.ms.Load, Placement: twotier.Placement{Partitions: 7, Seed: 5},
		Namespaces: map[string]distinct.Namespace{
			twotier.DefaultNamespace: {Ladder: ladder(t)},
			"strict":                 {Ladder: ladder(t), OnCold: syncer.OnColdDeny},
		},
		FlushInterval: 2 * time.Millisecond, VerifyInterval: 20 * time.Millisecond,
	}
	if change != nil {
		change(&opt)
	}
	e, err := distinct.New(opt)
	must.Succeed(t, err)
	e.Open(owner, gather)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = e.Close(ctx)
	})
	return e
}

// values returns the hashes of the named values.
func values(e *distinct.Engine, names ...int) (hashes []uint64) {
	for _, n := range names {
		hashes = append(hashes, e.Hash([]byte(strconv.Itoa(n))))
	}
	return hashes
}

// do runs an operation, which must succeed.
func do(t *testing.T, e *distinct.Engine, op *distinct.Op) distinct.Result {
	t.Helper()
	var res distinct.Result
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must.Succeed(t, e.Do(ctx, op, &res, false))
	return res
}

// query counts the values of a key in a window.
func query(t *testing.T, e *distinct.Engine, key string, window time.Duration) distinct.Count {
	t.Helper()
	res := do(t, e, &distinct.Op{Key: []byte(key), Windows: []int64{window.Milliseconds()}})
	return res.Counts[0]
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for by := time.Now().Add(time.Minute); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(by) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// sometimes returns faults with a given probability.
func sometimes(random *rand.Rand, share float64) func() fault {
	return func() fault {
		if random.Float64() < share {
			return fault(1 + random.IntN(2))
		}
		return none
	}
}

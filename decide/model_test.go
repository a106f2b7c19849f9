package decide_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/decide"
	"twotier.dev/twotier/internal/testing/seed"
	"twotier.dev/twotier/leaparray"
)

// bed decides operations about its own keys, and carries out the changes.
type bed struct {
	t    testing.TB
	now  int64
	keys map[string]*leaparray.View
	call decide.Call
	res  twotier.Result
}

func newBed(t testing.TB) *bed {
	return &bed{t: t, now: 1_700_000_000_000, keys: map[string]*leaparray.View{}}
}

// view returns the counts of a key.
func (b *bed) view(c *twotier.Check) *leaparray.View {
	name := string(c.NS) + "/" + string(c.Key)
	v := b.keys[name]
	if v == nil {
		v = &leaparray.View{Ladder: leaparray.Default()}
		b.keys[name] = v
	}
	v.Now = b.now
	return v
}

// acquire decides an Acquire, whose keys may be known to have more, and carries it out.
func (b *bed) acquire(op twotier.Op, more ...decide.Key) *twotier.Result {
	b.t.Helper()
	op.Kind = twotier.Acquire
	c := &b.call
	c.Op, c.Now, c.TS, c.Keys = &op, b.now, b.now, c.Keys[:0]
	if op.TS != 0 {
		c.TS = op.TS
	}
	for i := range op.Checks {
		var k decide.Key
		if i < len(more) {
			k = more[i]
		}
		k.View = *b.view(&op.Checks[i])
		c.Keys = append(c.Keys, k)
	}
	b.res.Reset()
	if err := c.Acquire(&b.res, op.Reserves()); err != nil {
		b.t.Fatal(err)
	}
	for _, change := range c.Changes {
		b.change(&op.Checks[change.Check], change)
	}
	return &b.res
}

// change carries out a change.
func (b *bed) change(check *twotier.Check, c decide.Change) {
	v := b.view(check)
	at := leaparray.Moment(c.At)
	if c.Kind == decide.Count && v.Cell(c.At).Width != 1 {
		var ok bool
		if at, ok = v.Ladder.Bucket(c.At, b.now); !ok {
			b.t.Fatalf("no bucket for %d at %d", c.At, b.now)
		}
	}
	v.Put(&v.B, leaparray.Heap{}, at, c.N)
}

// TestAcquireAgainstALog compares a million decisions about limits that keys remember exactly with
// the decisions of a log of all events.
func TestAcquireAgainstALog(t *testing.T) {
	ops := 1_000_000
	if testing.Short() {
		ops /= 10
	}
	first := seed.First()
	t.Logf("seed %d", first)
	rnd := rand.New(rand.NewPCG(first, 0))
	limits := []twotier.Limit{{Window: 1000, Max: 5}, {Window: 60_000, Max: 15},
		{Window: (24 * time.Hour).Milliseconds(), Max: 50}}
	b := newBed(t)
	log := map[string][]int64{}
	for range ops {
		b.now += rnd.Int64N(1 << rnd.IntN(24))
		key := []string{"a", "b", "c"}[rnd.IntN(3)]
		n := 1 + rnd.Int64N(3)
		want := true
		for _, limit := range limits {
			count := n
			for _, at := range log[key] {
				if at > b.now-limit.Window {
					count++
				}
			}
			want = want && count <= limit.Max
		}
		res := b.acquire(twotier.Op{Checks: []twotier.Check{{Key: []byte(key), N: n,
			Limits: limits}}})
		if res.Allowed != want {
			t.Fatalf("%d of %s at %d: %+v, want %v", n, key, b.now, res, want)
		}
		if want {
			for range n {
				log[key] = append(log[key], b.now)
			}
			if most := 50; len(log[key]) > most {
				log[key] = log[key][len(log[key])-most:]
			}
		} else if res.RetryAfter > 0 && rnd.IntN(20) == 0 {
			b.now += res.RetryAfter
			res := b.acquire(twotier.Op{DryRun: true, Checks: []twotier.Check{{Key: []byte(key),
				N: n, Limits: limits}}})
			if !res.Allowed {
				t.Fatalf("%d of %s is still refused after retry_after: %+v", n, key, res)
			}
		}
	}
}

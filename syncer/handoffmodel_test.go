package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/syncer"
)

// TestHandoverModel has three counters hand two partitions back and forth at random, over a store
// with random faults. Pages and confirmations get lost, while hours pass. The owner of a partition
// knows every count exactly, and in the end so does the store, which keeps each for long enough.
func TestHandoverModel(t *testing.T) { eachSeed(t, *seedsFlag/3, runHandovers) }

// relay is one run of TestHandoverModel.
type relay struct {
	t      *testing.T
	rnd    *rand.Rand
	clk    *clock
	inner  *embedded.Store
	stores []*faultstore.Store
	list   []*syncer.Counter
	owner  []int            // by partition
	truth  map[string]int64 // counted for certain
	away   map[string]*away // keys counted by all
	limit  int64
}

// away is a key that every counter counts, even in place of its owner, and that is reset now and
// then.
type away struct {
	n    int64
	open bool // it is unknown whether, or when, it is reset
	gone bool // counts or resets of a counter that is gone may yet arrive
}

func runHandovers(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 9))
	r := &relay{t: t, rnd: rnd, clk: &clock{now: t0}, owner: make([]int, 2),
		truth: map[string]int64{}, away: map[string]*away{"away0": {}, "away1": {}, "/away2": {}},
		limit: 40}
	r.inner = embedded.New(embedded.Options{Now: func() time.Time {
		return time.UnixMilli(r.clk.Now())
	}})
	mix := faultstore.Mix{ReplyLost: rnd.IntN(200), RequestLost: rnd.IntN(100),
		Refused: rnd.IntN(100), Late: rnd.IntN(100)}
	for i := range 3 {
		s := faultstore.New(faultstore.Options{Store: r.inner,
			Decide: faultstore.Random(seed+uint64(i), mix), Report: t.Errorf, Adopts: true})
		r.stores = append(r.stores, s)
		r.list = append(r.list, open(t, syncer.Options{
			Store: s, Now: r.clk.Now, Placement: twotier.Placement{Partitions: 2}, NotOwner: i > 0,
			Exchanges:      1,
			Writer:         fmt.Sprint("w", i),
			FlushInterval:  time.Duration(10+rnd.IntN(200)) * time.Millisecond,
			VerifyInterval: time.Second,
			Namespaces: map[string]syncer.Namespace{
				twotier.DefaultNamespace: {OnCold: syncer.OnColdDeny},
			},
			MaxLag: shortLag(rnd),
		}))
	}
	for range 150 {
		r.step()
		if t.Failed() {
			t.FailNow()
		}
	}
	r.end()
}

func (r *relay) step() {
	switch n := r.rnd.IntN(100); {
	case n < 15:
		r.giveOrTake()
	case n < 35:
		r.add(fmt.Sprint(r.kind("free"), r.rnd.IntN(5)))
	case n < 60:
		key := fmt.Sprint(r.kind("limited"), r.rnd.IntN(3))
		var res twotier.Result
		op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{checkOf(key, 1)}}
		op.Checks[0].Limits = limits(86_400_000, r.limit)
		if r.do(key, op, &res) && res.Allowed {
			if r.truth[key]++; r.truth[key] > r.limit {
				r.t.Errorf("%s: %d admitted, limit %d", key, r.truth[key], r.limit)
			}
		}
	case n < 72:
		time.Sleep(time.Duration(r.rnd.IntN(500)) * time.Millisecond)
	case n < 74:
		r.pass()
	case n < 77:
		r.resetAtOwner(fmt.Sprint(r.kind("own"), r.rnd.IntN(2)))
	case n < 80:
		r.stores[r.rnd.IntN(3)].SetDown(r.rnd.IntN(2) == 0)
	case n < 86:
		r.standIn(r.awayKey())
	case n < 89:
		r.reset(r.awayKey())
	case n < 91:
		r.split(r.awayKey())
	default:
		r.move(r.rnd.IntN(2), r.rnd.IntN(3))
	}
	for p := range r.owner {
		r.check(p)
	}
	for _, c := range r.list {
		if err := c.CheckStates(); err != nil {
			r.t.Error(err)
		}
	}
}

// kind returns the kind of a key, of events or of values.
func (r *relay) kind(name string) string { return [...]string{"", "", "/"}[r.rnd.IntN(3)] + name }

// add counts a key at its owner.
func (r *relay) add(key string) {
	n := 1 + r.rnd.Int64N(4)
	op := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{checkOf(key, n)}}
	if r.do(key, op, nil) {
		r.truth[key] += n
	}
}

// pass lets time pass, but so little in all that no count leaves the coarsest level.
func (r *relay) pass() {
	if now := r.clk.Now(); now < t0+20*time.Hour.Milliseconds() {
		r.clk.set(now + r.rnd.Int64N(2*time.Hour.Milliseconds()))
	}
}

// resetAtOwner resets a key that only its owner counts, with random patience, and counts it. From
// then on the owner shows none of the earlier counts, and in the end neither does the store, no
// matter which counter sends it the reset.
func (r *relay) resetAtOwner(key string) {
	r.add(key)
	ctx, cancel := context.WithTimeout(context.Background(),
		time.Duration(r.rnd.IntN(500))*time.Millisecond)
	defer cancel()
	err := r.list[r.owner[r.partition(key)]].ResetKey(ctx, spaceOf(key), []byte(key))
	if err == nil || errors.Is(err, twotier.ErrUnknownOutcome) {
		r.truth[key] = 0
	}
	r.add(key)
}

// giveOrTake counts one in one bucket, or takes it back if there is any. So several rounds' counts
// of it often add up to zero.
func (r *relay) giveOrTake() {
	key := fmt.Sprint("taken", r.rnd.IntN(2))
	n := max(1-2*r.rnd.Int64N(2), -r.truth[key])
	if r.do(key, twotier.Op{Kind: twotier.Add, TS: t0,
		Checks: []twotier.Check{{Key: []byte(key), N: n}}}, nil) {
		r.truth[key] += n
	}
}

func (r *relay) partition(key string) int {
	return twotier.Placement{Partitions: 2}.Of(spaceOf(key), []byte(key))
}

// do carries out an operation at the owner of a key.
func (r *relay) do(key string, op twotier.Op, res *twotier.Result) bool {
	return r.doAt(r.owner[r.partition(key)], key, op, res)
}

func (r *relay) doAt(at int, key string, op twotier.Op, res *twotier.Result) bool {
	if res == nil {
		res = new(twotier.Result)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := r.list[at].Do(ctx, &op, res)
	if err != nil && !errors.Is(err, twotier.ErrUnavailable) && !errors.Is(err, twotier.ErrBehind) {
		r.t.Errorf("%s: %v", key, err)
	}
	return err == nil
}

// awayKey returns a key that all count.
func (r *relay) awayKey() string { return [...]string{"away0", "away1", "/away2"}[r.rnd.IntN(3)] }

// standIn counts a key at any counter, owner or not.
func (r *relay) standIn(key string) {
	op := twotier.Op{Kind: twotier.Add, AllowNonOwner: true,
		Checks: []twotier.Check{checkOf(key, 1+r.rnd.Int64N(4))}}
	if r.doAt(r.rnd.IntN(3), key, op, nil) {
		r.away[key].n += op.Checks[0].N
	}
}

// reset drops a key at all counters, its owner last, with random patience. If all of them succeed,
// nothing of it is left or comes back.
func (r *relay) reset(key string) {
	ctx, cancel := context.WithTimeout(context.Background(),
		time.Duration(1+r.rnd.IntN(3000))*time.Millisecond)
	defer cancel()
	owner := r.owner[r.partition(key)]
	var err error
	for i, c := range r.list {
		if i != owner {
			err = errors.Join(err, c.DropKey(ctx, spaceOf(key), []byte(key), r.rnd.IntN(2) == 0))
		}
	}
	err = errors.Join(err, r.list[owner].ResetKey(ctx, spaceOf(key), []byte(key)))
	*r.away[key] = away{open: err != nil, gone: r.away[key].gone}
}

// split has a second counter decide about a key, as in a split cluster: it counts the key, and
// resets it without notice to the others. Then it takes the partition over, or gives it up, while
// the reset may still be awaited.
func (r *relay) split(key string) {
	p, at := r.partition(key), r.rnd.IntN(3)
	if at == r.owner[p] {
		return
	}
	c, pause := r.list[at], func() { time.Sleep(time.Duration(r.rnd.IntN(300)) * time.Millisecond) }
	c.StartOwning(p)
	r.stores[at].SetDown(r.rnd.IntN(2) == 0)
	op := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{checkOf(key, 1)}}
	r.doAt(at, key, op, nil)
	pause()
	r.away[key].open = true
	patience := time.Duration(r.rnd.IntN(2000)) * time.Millisecond
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = c.ResetKey(ctx, spaceOf(key), []byte(key)) // it may reach the store at any time
	}()
	time.Sleep(100 * time.Millisecond)
	r.standIn(key)
	if r.rnd.IntN(2) == 0 {
		r.move(p, at)
	}
	if r.owner[p] != at {
		c.StopOwning(p)
	}
}

// takeAndGo has a counter take a partition over, and be gone before it has done more than flush.
func (r *relay) takeAndGo(p int, c *syncer.Counter, h *syncer.Handoff) {
	for key, k := range r.away {
		h := c.Held(spaceOf(key), []byte(key))
		k.gone = k.gone || len(h.Pending) > 0 || h.Resetting
	}
	c.ImportHandoff(h)
	time.Sleep(time.Duration(r.rnd.IntN(300)) * time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := c.BeginHandoff(ctx, p); err != nil {
		c.StopOwning(p)
	} else if err := c.FinishHandoff(p); err != nil {
		r.t.Error(err)
	}
}

// move hands a partition over. Something may go wrong: nothing arrives, or everything arrives but
// the old owner doesn't notice.
func (r *relay) move(p, to int) {
	from := r.owner[p]
	if from == to {
		return
	}
	a, b := r.list[from], r.list[to]
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := a.BeginHandoff(ctx, p); err != nil {
		a.StartOwning(p)
		return
	}
	h := pages(r.t, a, p, 1+r.rnd.IntN(2000))
	switch r.rnd.IntN(6) {
	case 0:
		a.StartOwning(p)
		return
	case 1: // the new owner is gone, and the old one notices
		r.takeAndGo(p, b, h)
		a.StartOwning(p)
		return
	case 2: // or it doesn't, and gives a third counter the same pages
		r.takeAndGo(p, r.list[3-from-to], h)
		h = pages(r.t, a, p, 1+r.rnd.IntN(2000))
	}
	b.ImportHandoff(h)
	if r.rnd.IntN(3) == 0 {
		b.ImportHandoff(pages(r.t, a, p, 1<<20))
	}
	if err := a.FinishHandoff(p); err != nil {
		r.t.Error(err)
	}
	r.owner[p] = to
	r.giveOrTake() // next to rounds that were taken over
}

package syncer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/syncer"
)

// TestLossModel has counters count, share, restore and hand over in random order, and the store
// lose everything or go back in time. Nobody forgets anything: all that was acknowledged must be
// there in the end, once, and be seen by everyone.
func TestLossModel(t *testing.T) { eachSeed(t, *seedsFlag, runLosses) }

// losing is one run of the model.
type losing struct {
	*company
	rnd    *rand.Rand
	stores []*faultstore.Store
	keys   []string
	truth  map[string]int64
	image  atomic.Pointer[embedded.Image] // taken last, nil if none was
	// shot counts down the parts of a restoration; at zero an image is taken.
	shot atomic.Int64
	lost bool // since all were seen to have restored what they know
	born int
}

// runLosses runs the model with one counter, which may lose data while it restores, or with
// several, two of which may have one name.
func runLosses(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	l := &losing{rnd: rnd, keys: []string{"a", "b", "c", "d", "e"}, truth: map[string]int64{}}
	n, twins := 1+rnd.IntN(3), rnd.IntN(4) == 0
	l.company = newCompany(t, 0, nil)
	for i := range n {
		name := fmt.Sprint("w", i)
		if twins {
			name = "twin"
		}
		l.counters = append(l.counters, l.open(l.wrapped(n == 1), name, i > 0))
	}
	for range 60 {
		l.step(n > 1 && !twins)
	}
	l.settle()
	l.check()
}

// wrapped is the store as one counter sees it.
func (l *losing) wrapped(alone bool) syncer.Store {
	var inner syncer.Store = shooting{l}
	if alone {
		back := l.rnd.IntN(2) == 0
		inner = &again{Store: l.store, parts: 2 + l.rnd.IntN(3), rewind: func() {
			if image := l.image.Load(); back && image != nil {
				l.store.Rewind(image)
			} else {
				l.store.Flush()
			}
		}}
	}
	s := faultstore.New(faultstore.Options{Store: inner, Report: l.t.Errorf, Adopts: true})
	l.stores = append(l.stores, s)
	return s
}

func (l *losing) step(moves bool) {
	at, key, n := l.rnd.IntN(len(l.counters)), l.keys[l.rnd.IntN(len(l.keys))], 1+l.rnd.Int64N(9)
	switch l.rnd.IntN(19) {
	default:
		l.addAt(at, key, n)
	case 6, 7:
		l.flush(at)
	case 8:
		time.Sleep(time.Duration(l.rnd.IntN(150)) * time.Millisecond)
	case 5:
		l.settle()
		l.check()
	case 9:
		l.restored()
		l.store.Flush()
		l.lost = true
	case 10:
		l.restored()
		l.image.Store(l.store.Image())
	case 11:
		l.goBack()
	case 12:
		if moves {
			l.move()
		}
	case 13:
		if err := l.counters[at].Share(nil, []byte("a"), l.rnd.IntN(2) == 0); err != nil {
			l.t.Fatal(err)
		}
	case 14, 15:
		if len(l.counters) > 1 { // else it may be lost before it is read
			l.stranger(key, n)
		}
	case 16:
		if len(l.counters) > 1 {
			l.relapse()
		}
	case 17:
		if len(l.counters) > 1 {
			l.replace(moves)
		}
	case 18:
		if len(l.counters) > 1 {
			l.resend()
		}
	}
}

// moment is one of a few seconds, and so of buckets.
func (l *losing) moment() int64 { return t0 - 1000*l.rnd.Int64N(4) }

// restored waits until everybody has restored what the last loss took: what a second one takes
// before that may be gone.
func (l *losing) restored() {
	if l.lost {
		l.settle()
		l.lost = false
	}
}

// goBack has the store go back in time. What is counted between that and its discovery may count as
// restored: nothing is.
func (l *losing) goBack() {
	l.restored()
	for i := range l.counters {
		l.flush(i)
	}
	if l.rnd.IntN(2) == 0 {
		l.read()
	}
	if image := l.image.Load(); image != nil {
		l.store.Rewind(image)
	}
	l.settle()
}

// shooting is the store, of which an image is taken in the middle of a restoration.
type shooting struct{ l *losing }

func (s shooting) Exchange(ctx context.Context, rounds []*syncer.Round) {
	for _, r := range rounds {
		if r.Republish && s.l.shot.Add(-1) == 0 {
			s.l.image.Store(s.l.store.Image())
		}
	}
	s.l.store.Exchange(ctx, rounds)
}

// relapse has the store lose everything, and go back behind a part of what was restored then.
// Before anybody notices, changes come in the place of those that are lost, of keys that nobody
// knows.
func (l *losing) relapse() {
	l.restored()
	l.settle()
	l.image.Store(nil)
	l.shot.Store(1 + l.rnd.Int64N(6))
	l.store.Flush()
	l.settle()
	l.shot.Store(0)
	if image := l.image.Load(); image != nil {
		l.store.Rewind(image)
		for n := l.rnd.IntN(10); n > 0; n-- {
			l.visit(l.unknown(), 1+l.rnd.Int64N(9))
		}
	}
	l.settle()
	l.check()
}

// replace has the store go back behind what one counter has only read, or was handed over. Before
// anybody notices, at least as many changes of others come in the place of that.
func (l *losing) replace(moves bool) {
	l.restored()
	l.settle()
	image := l.store.Image()
	l.read()
	if moves && l.rnd.IntN(2) == 0 {
		l.handOver(l.rnd.IntN(len(l.counters)))
	}
	l.store.Rewind(image)
	for n := 1 + l.rnd.IntN(4); n > 0; n-- {
		l.visit(l.unknown(), 1+l.rnd.Int64N(9))
	}
	l.settle()
	l.check()
}

// resend has the store go back behind a round of a stranger who was not answered and sends it once
// more, and behind what was counted or read before that, of which the stranger has not heard: the
// last change that the others have heard of is there again, what came before it is not.
func (l *losing) resend() {
	l.restored()
	l.settle()
	gate := &gated{Store: l.store}
	stranger, key := l.arrive(gate), l.unknown()
	addIn(l.t, stranger, key, 1, l.moment())
	flush(l.t, stranger)
	at, others := l.rnd.IntN(len(l.counters)), 0
	// A round that was cut before the last loss is acknowledged under a name that is not used any
	// more, so this counter's next is to be another.
	l.addAt(at, l.unknown(), 1)
	l.flush(at)
	flush(l.t, stranger)
	image := l.store.Image()
	if l.rnd.IntN(2) == 0 {
		l.read()
	} else {
		l.addAt(at, l.unknown(), 1+l.rnd.Int64N(9))
		l.flush(at)
		others = l.rnd.IntN(3)
	}
	gate.unheard.Store(true)
	addIn(l.t, stranger, key, 1, l.moment())
	l.truth[key] += 2
	time.Sleep(2 * verifyEvery)
	l.store.Rewind(image)
	gate.down.Store(false)
	l.leave(stranger)
	for ; others > 0; others-- {
		l.visit(l.unknown(), 1)
	}
	l.settle()
	l.check()
}

func (l *losing) addAt(at int, key string, n int64) {
	addIn(l.t, l.counters[at], key, n, l.moment())
	l.truth[key] += n
}

// unknown is a key that nobody has counted.
func (l *losing) unknown() string {
	l.keys = append(l.keys, fmt.Sprint("unknown ", len(l.keys)))
	return l.keys[len(l.keys)-1]
}

// read has a counter come, count a key that nobody knows and go, and one of the others read that:
// it alone can restore it.
func (l *losing) read() {
	key, n := l.unknown(), 1+l.rnd.Int64N(9)
	c := l.arrive(l.store)
	if l.rnd.IntN(2) == 0 { // it counts quietly
		if err := c.Share(nil, []byte(key), true); err != nil {
			l.t.Fatal(err)
		}
	}
	addIn(l.t, c, key, n, l.moment())
	l.truth[key] += n
	l.leave(c)
	if at := l.rnd.IntN(len(l.counters)); l.counts(at, key) != n {
		l.t.Errorf("%s: counter %d does not say %d", key, at, n)
	}
}

// move hands the partition over, sometimes from one who can't ask the store any more.
func (l *losing) move() {
	from, to := l.owner, l.rnd.IntN(len(l.counters))
	if to != from {
		if l.rnd.IntN(2) == 0 {
			l.stores[from].SetDown(true)
			time.Sleep(2 * verifyEvery)
		}
		l.handOver(to)
		l.stores[from].SetDown(false)
	}
	time.Sleep(2 * time.Second) // the store is tried again
	l.settle()
	for _, key := range l.keys {
		l.counts(to, key) // else nobody may know it
	}
}

// handOver makes another counter the owner.
func (l *losing) handOver(to int) {
	if to != l.owner {
		hand(l.t, l.counters[l.owner], l.counters[to], 0, 1<<20)
		l.owner = to
	}
}

// stranger is a counter that comes, counts something and goes: nobody restores that until it was
// read.
func (l *losing) stranger(key string, n int64) {
	l.visit(key, n)
	l.settle()
	l.check()
}

func (l *losing) visit(key string, n int64) {
	c := l.arrive(l.store)
	addIn(l.t, c, key, n, l.moment())
	l.truth[key] += n
	l.leave(c)
}

func (l *losing) arrive(s syncer.Store) *syncer.Counter {
	l.born++
	return l.open(s, fmt.Sprint("stranger", l.born), true)
}

func (l *losing) leave(c *syncer.Counter) {
	if err := c.Close(context.Background()); err != nil {
		l.t.Fatal(err)
	}
}

func (l *losing) check() {
	l.t.Helper()
	for _, key := range l.keys {
		l.holds(key, l.truth[key])
	}
}

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/syncer"
)

// TestLossModel lets counters count, share, restore and hand over in random order, while the store
// loses everything or goes back in time. No counter forgets anything, so everything acknowledged
// must be there in the end, once, and be seen by every counter.
func TestLossModel(t *testing.T) {
	eachSeed(t, *seedsFlag, runLosses, lostOnce, countedTwice)
}

// lostOnce is a seed with which TestLossModel found a fault: a counter took over the partition from
// one that had not noticed a loss, and ignored that its loaded counts were among the lost ones.
const lostOnce = 740909286147

// countedTwice is another one: a round that waited for a restoration was compared with a version
// from before it.
const countedTwice = 681728249119

// losing is one run of the model.
type losing struct {
	*company
	rnd    *rand.Rand
	stores []*faultstore.Store
	keys   []string
	truth  map[string]int64
	image  atomic.Pointer[embedded.Image] // the latest, nil if none
	// shot counts down the parts of a restoration; at zero an image is taken.
	shot atomic.Int64
	lost bool // since all were last seen to have restored their counts
	list bool // the store lists its keys
	born int
}

// runLosses runs the model with one counter, which may lose data while it restores, or with
// several, two of which may have one name.
func runLosses(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	l := &losing{rnd: rnd, keys: []string{"a", "b", "c", "/d", "/e"}, truth: map[string]int64{}}
	n, twins := 1+rnd.IntN(3), rnd.IntN(4) == 0
	l.list = rnd.IntN(2) == 0
	l.company = newCompany(t, 0, nil)
	if rnd.IntN(2) == 0 {
		l.store = embedded.New(embedded.Options{}) // nobody has used it
	}
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
	for range 4 {
		if n > 1 {
			l.cross()
		}
	}
}

// cross lets two counters that know a key count it at the same moment, in turns. Each sometimes
// learns first that others have changed the partition, or the key is shared for a while, so that
// they write it quietly. Then the store loses everything: the counters must know the sum of both.
func (l *losing) cross() {
	l.restored()
	key, at := l.unknown(), l.rnd.Perm(len(l.counters))[:2]
	moment := l.moment()
	l.visit(key, 1)
	for _, i := range at {
		l.knows(i, key)
	}
	shares := l.rnd.IntN(2) == 0 && !isOfValues(key)
	for range 2 + l.rnd.IntN(6) {
		i := at[l.rnd.IntN(2)]
		if shares && l.rnd.IntN(3) == 0 {
			l.shareAll(at, key, l.rnd.IntN(3) > 0)
		}
		if l.rnd.IntN(2) == 0 {
			l.counts(i, l.unknown())
		}
		addIn(l.t, l.counters[i], key, 1, moment)
		l.truth[key]++
		l.flush(i)
	}
	if shares {
		l.shareAll(at, key, false)
		l.settle()
	}
	l.store.Flush()
	l.settle()
	l.check()
}

func (l *losing) shareAll(at []int, key string, on bool) {
	for _, i := range at {
		l.share(i, key, on)
	}
}

// share starts or ends counting a key in several counters at the same time.
func (l *losing) share(at int, key string, on bool) {
	if err := l.counters[at].Share(nil, []byte(key), on); err != nil {
		l.t.Fatal(err)
	}
}

// wrapped returns the store as one counter sees it.
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
	if !l.list {
		return struct{ syncer.Store }{s}
	}
	return s
}

func (l *losing) step(moves bool) {
	at, key, n := l.rnd.IntN(len(l.counters)), l.keys[l.rnd.IntN(len(l.keys))], 1+l.rnd.Int64N(9)
	switch l.rnd.IntN(20) {
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
		l.share(at, "a", l.rnd.IntN(2) == 0)
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
			l.resend(moves)
		}
	case 19:
		l.refuse(at)
	}
}

// moment returns one of the last few seconds, so that counts fall into several buckets.
func (l *losing) moment() int64 { return t0 - 1000*l.rnd.Int64N(4) }

// restored waits until every counter has restored its counts after the last loss. A second loss
// before that may be permanent.
func (l *losing) restored() {
	if l.lost {
		l.settle()
		l.lost = false
	}
}

// goBack rewinds the store. Counts made before the loss is discovered may be taken as restored, so
// none are made.
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

// shooting is the store, which takes an image in the middle of a restoration.
type shooting struct{ l *losing }

func (s shooting) ListKeys(ctx context.Context, lists []*syncer.KeyList) {
	time.Sleep(time.Millisecond) // concurrent events may come first
	s.l.store.ListKeys(ctx, lists)
}

func (s shooting) Exchange(ctx context.Context, rounds []*syncer.Round) {
	for _, r := range rounds {
		if r.Republish && s.l.shot.Add(-1) == 0 {
			s.l.image.Store(s.l.store.Image())
		}
	}
	s.l.store.Exchange(ctx, rounds)
}

// relapse makes the store lose everything, and later go back to before a part of the restoration.
// Before that is noticed, changes of keys that no counter knows take the place of the lost ones.
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

// replace rewinds the store to before a change that one counter has only read, or received in a
// handoff. Before that is noticed, others make at least as many changes as were lost.
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

// resend rewinds the store to before a stranger's round that got no answer and is sent again, and
// to before counts or reads that the stranger does not know of. So the last change that the others
// know of is there again, but not the changes before it. A counter that knows these may have
// received the partition meanwhile.
func (l *losing) resend(moves bool) {
	l.restored()
	l.settle()
	gate := &gated{Store: l.store}
	stranger, key := l.arrive(gate), l.unknown()
	addIn(l.t, stranger, key, 1, l.moment())
	flush(l.t, stranger)
	at, others := l.rnd.IntN(len(l.counters)), 0
	// A round that was cut before the last loss is acknowledged under a writer that is no longer
	// used, so this counter's next change must be another.
	l.addAt(at, l.unknown(), 1)
	l.flush(at)
	flush(l.t, stranger)
	image := l.store.Image()
	counted := l.rnd.IntN(2) == 0
	if !counted {
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
	if moves && l.rnd.IntN(2) == 0 {
		from := l.stores[l.owner]
		from.SetDown(counted)
		if counted { // in a round that carries the earlier acknowledgement
			l.addAt(l.owner, l.unknown(), 1)
			time.Sleep(2 * verifyEvery)
		}
		l.handOver(l.rnd.IntN(len(l.counters)))
		from.SetDown(false)
	}
	l.store.Rewind(image)
	gate.down.Store(false)
	l.leave(stranger)
	for ; others > 0; others-- {
		l.visit(l.unknown(), 1)
	}
	l.settle()
	l.check()
}

// refuse has the store refuse the writes of one counter, but not its reads: a key is counted, read
// and counted elsewhere in any order while rounds with it wait. The store may lose everything
// before the counter reads the key again, so the counter restores what it made of the answers.
func (l *losing) refuse(at int) {
	l.restored()
	l.settle()
	key := l.unknown()
	for range 2 + l.rnd.IntN(8) {
		switch l.rnd.IntN(5) {
		case 0, 1:
			l.addAt(at, key, 1+l.rnd.Int64N(9))
		case 2:
			l.visit(key, 1+l.rnd.Int64N(9))
		case 3:
			l.knows(at, key)
		case 4:
			l.stores[at].SetFull(l.rnd.IntN(3) > 0)
		}
		time.Sleep(time.Duration(l.rnd.IntN(3)) * verifyEvery)
	}
	time.Sleep(2 * verifyEvery)
	knows := l.knows(at, key)
	l.stores[at].SetFull(false)
	time.Sleep(2 * time.Second) // the store is tried again
	if knows && l.rnd.IntN(2) == 0 {
		l.store.Flush()
	}
	l.settle()
	l.check()
}

// knows reports whether a counter returns the true count of a key. While a round waits, the counter
// may not notice the changes of others, or may not be able to read the key.
func (l *losing) knows(at int, key string) bool {
	op := counting(key)
	var res twotier.Result
	err := l.counters[at].Do(context.Background(), &op, &res)
	if err != nil && !errors.Is(err, twotier.ErrUnavailable) {
		l.t.Fatal(err)
	}
	return err == nil && res.Checks[0].Limits[0].Hi == l.truth[key]
}

func (l *losing) addAt(at int, key string, n int64) {
	addIn(l.t, l.counters[at], key, n, l.moment())
	l.truth[key] += n
}

// unknown returns a key that no counter has counted.
func (l *losing) unknown() string {
	kind := [...]string{"unknown ", "/unknown "}[l.rnd.IntN(2)]
	l.keys = append(l.keys, fmt.Sprint(kind, len(l.keys)))
	return l.keys[len(l.keys)-1]
}

// read lets a visiting counter count a key that no other knows, and one of the others read it. Only
// that one can restore it.
func (l *losing) read() {
	key, n := l.unknown(), 1+l.rnd.Int64N(9)
	c := l.arrive(l.store)
	if l.rnd.IntN(2) == 0 && !isOfValues(key) { // it counts quietly
		if err := c.Share(nil, []byte(key), true); err != nil {
			l.t.Fatal(err)
		}
	}
	addIn(l.t, c, key, n, l.moment())
	l.truth[key] += n
	l.leave(c)
	at := l.rnd.IntN(len(l.counters))
	if l.list && at == l.owner { // until it learns of the key, it may take it for new
		time.Sleep(2 * verifyEvery)
	}
	if l.counts(at, key) != n {
		l.t.Errorf("%s: counter %d does not say %d", key, at, n)
	}
}

// move hands the partition over, sometimes from an owner that can no longer reach the store.
func (l *losing) move() {
	from, to := l.owner, l.rnd.IntN(len(l.counters))
	if to != from {
		if l.rnd.IntN(2) == 0 {
			l.cutOff(from)
		}
		l.handOver(to)
		l.stores[from].SetDown(false)
	}
	time.Sleep(2 * time.Second) // the store is tried again
	l.settle()
	for _, key := range l.keys {
		l.counts(to, key) // otherwise no counter may know it
	}
}

// cutOff keeps a counter from reaching the store, while it goes on counting and the store may lose
// data.
func (l *losing) cutOff(at int) {
	l.restored()
	for i := range l.counters {
		l.flush(i) // see goBack
	}
	if l.rnd.IntN(2) == 0 {
		l.read()
	}
	l.stores[at].SetDown(true)
	image, loss := l.image.Load(), l.rnd.IntN(3)
	for n := l.rnd.IntN(4); n > 0; n-- {
		key := l.keys[l.rnd.IntN(len(l.keys))]
		if loss == 0 {
			key = l.unknown() // else it may be taken as restored
		}
		l.addAt(at, key, 1+l.rnd.Int64N(9))
	}
	time.Sleep(2 * verifyEvery)
	switch {
	case loss == 0 && image != nil:
		l.store.Rewind(image)
	case loss == 1:
		l.store.Flush()
	}
}

// handOver makes another counter the owner.
func (l *losing) handOver(to int) {
	if to != l.owner {
		hand(l.t, l.counters[l.owner], l.counters[to], 0, 1<<20)
		l.owner = to
	}
}

// stranger starts a counter, counts something and closes the counter. No other counter restores
// that count before reading it.
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

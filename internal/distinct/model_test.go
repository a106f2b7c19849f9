package distinct_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/seed"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run the model with this seed only")
	seedsFlag = flag.Int("seeds", 300, "number of seeds of the model to run")
)

// TestModel runs a few engines over one store through the actions of nodes in random order:
// deciding, counting in the store, resetting, moving partitions, leaving and crashing, while the
// store fails. It compares each answer with the earlier ones.
func TestModel(t *testing.T) {
	first, n := *seedFlag, 1
	if first == 0 {
		first, n = seed.First(), *seedsFlag
	}
	for i := range n {
		seed := first + uint64(i)
		ok := t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newModel(t, seed).run() })
		})
		if !ok {
			return
		}
	}
}

// model is a few engines, and the expected values of their keys.
type model struct {
	*testing.T
	rnd     *rand.Rand
	store   *memory
	engines []*distinct.Engine
	// decider decides about all keys, unless they are counted in the store.
	decider int
	term    int64
	inStore bool
	faults  *rand.Rand // the store's lock guards it
	down    atomic.Bool
	rough   atomic.Bool // many exchanges fail
	resets  bool        // keys are reset
	tells   bool        // all engines learn of each reset; then any engine may reset
	late    bool        // requests may reach the store late
	loses   bool        // the store loses everything, while the same engines go on
	keys    map[string]*known
	serial  int
	story   []string
}

// known holds the values of a key that are certainly there, and the ones that may be. reset marks a
// key with a reset that not every engine has learned of. resets lists the resets passed to all
// engines. The store has lost values up to lost: an engine that has one of these in
// memory does not write it again before it compares.
type known struct {
	certain, maybe map[int]bool
	reset          bool
	lost           int
	resets         []int64
}

// place is the owner as seen by one engine.
type place struct {
	m *model
	i int
}

func (p place) Term(int) (int64, bool) { return p.m.term, p.m.decider == p.i && !p.m.inStore }

func newModel(t *testing.T, seed uint64) *model {
	m := &model{T: t, rnd: rand.New(rand.NewPCG(seed, 1)), store: newMemory(), term: 1,
		faults: rand.New(rand.NewPCG(seed, 2)), keys: map[string]*known{}}
	m.resets, m.tells, m.loses = m.rnd.IntN(3) > 0, m.rnd.IntN(2) == 0, m.rnd.IntN(3) == 0
	m.tells = m.tells || m.loses // a loss must undo no reset
	m.late = m.tells && !m.loses && m.rnd.IntN(2) == 0
	m.store.later = func(arrive func()) { time.AfterFunc(lateness, arrive) }
	for i := range 3 {
		m.engines = append(m.engines, m.engine(i))
	}
	for _, key := range []string{"a", "b"} {
		m.keys[key] = &known{certain: map[int]bool{}, maybe: map[int]bool{}}
	}
	m.store.fault = m.fault
	return m
}

func (m *model) engine(i int) *distinct.Engine {
	e, err := distinct.New(distinct.Options{
		Store: takesTime{m.store}, Now: func() int64 { return time.Now().UnixMilli() },
		Placement:  twotier.Placement{Partitions: 7, Seed: 5},
		Namespaces: map[string]distinct.Namespace{twotier.DefaultNamespace: {Ladder: ladder(m)}},
		// Nothing happens on its own schedule.
		FlushInterval: time.Hour, VerifyInterval: time.Hour,
	})
	must.Succeed(m, err)
	e.Open(place{m, i}, func(_ context.Context, parts []int) (all []distinct.Pending) {
		for j, other := range m.engines {
			if j != i {
				all = append(all, other.ListUnflushed(parts)...)
			}
		}
		return all
	})
	return e
}

// lateness is the delay of late requests to the store.
const lateness = 50 * time.Millisecond

// takesTime is a store with a delay, so that its reply describes a later moment than the request.
type takesTime struct{ *memory }

func (s takesTime) Compare(ctx context.Context, list []*distinct.Exchange) {
	time.Sleep(time.Microsecond)
	s.memory.Compare(ctx, list)
}

// fault returns the fate of an exchange.
func (m *model) fault() fault {
	switch {
	case m.down.Load():
		return lost
	case m.faults.IntN(12) > 0 && !(m.rough.Load() && m.faults.IntN(3) == 0):
		return none
	case m.late:
		return fault(1 + m.faults.IntN(3))
	}
	return fault(1 + m.faults.IntN(2))
}

func (m *model) say(format string, args ...any) {
	m.story = append(m.story, fmt.Sprintf("%03d ms: ", time.Now().UnixMilli()%1000)+
		fmt.Sprintf(format, args...))
}

func (m *model) run() {
	for range 60 {
		time.Sleep(time.Duration(1+m.rnd.IntN(20)) * time.Millisecond)
		m.step()
		if m.Failed() {
			break
		}
	}
	m.settle()
	for _, e := range m.engines {
		if err := m.end(e); err != nil {
			m.Errorf("an engine that has flushed all says at its end: %v", err)
		}
	}
	if m.Failed() {
		for _, line := range m.story {
			m.Log(line)
		}
	}
}

// step makes one random step.
func (m *model) step() {
	switch n := m.rnd.IntN(20); {
	case n < 8:
		m.add()
	case n < 11:
		m.count(m.key())
	case n < 13 && m.resets:
		m.reset(m.key())
	case n < 15:
		_ = m.flush(m.rnd.IntN(len(m.engines)))
	case n < 16:
		m.move()
	case n < 17:
		m.tellAgain(m.key())
	case n < 18:
		down := !m.down.Load()
		m.down.Store(down)
		m.say("the store is down: %v", down)
		if !down {
			m.flushAll()
		}
	case n < 19 && m.loses:
		m.lose()
	case n < 19:
		m.replace()
	default:
		m.changeMode()
	}
}

func (m *model) key() string { return []string{"a", "b"}[m.rnd.IntN(2)] }

// at returns the engine to ask: any engine, if all count in the store.
func (m *model) at() int {
	if m.inStore {
		return m.rnd.IntN(len(m.engines))
	}
	return m.decider
}

// do runs an operation at an engine, as its node would.
func (m *model) do(i int, op *distinct.Op, inPlace bool) (res distinct.Result, err error) {
	ctx, cancel := context.WithTimeout(m.Context(), 5*time.Second)
	defer cancel()
	if m.inStore {
		return res, m.engines[i].DoInStore(ctx, op, &res)
	}
	err = m.engines[i].Do(ctx, op, &res, inPlace)
	return res, err
}

// add adds a new value to a key. A value added in place of the decider, or without the store, may
// be void if an earlier reset has not reached the engine.
func (m *model) add() {
	key, i, inPlace := m.key(), m.at(), false
	if !m.inStore && m.rnd.IntN(3) == 0 {
		i = m.rnd.IntN(len(m.engines))
		inPlace = i != m.decider
	}
	ack := twotier.AckDefault
	if m.rnd.IntN(3) == 0 {
		ack = twotier.AckStore
	}
	m.addValue(key, i, m.value(m.keys[key]), inPlace, ack)
}

// addValue adds a value to a key at an engine.
func (m *model) addValue(key string, i, value int, inPlace bool, ack twotier.Ack) {
	k := m.keys[key]
	op := &distinct.Op{Key: []byte(key), Hashes: values(m.engines[i], value), Ack: ack}
	if m.rnd.IntN(2) == 0 {
		op.Windows = []int64{hour}
	}
	res, err := m.do(i, op, inPlace)
	m.say("%d adds %d to %s, in place %v, in the store %v, ack %v: %+v, %v", i, value, key, inPlace,
		m.inStore, op.Ack, res, err)
	if err != nil || inPlace || res.Degraded && !m.tells || value <= k.lost {
		if !k.certain[value] {
			k.maybe[value] = true
		}
		return
	}
	k.certain[value] = true
	delete(k.maybe, value)
	m.compare(key, i, &res)
}

// value returns a value that is new to a key, or occasionally one that it may have.
func (m *model) value(k *known) int {
	if m.rnd.IntN(4) > 0 {
		m.serial++
		return m.serial
	}
	return m.again(k)
}

// again returns a value that a key may have, or a new one if there is none.
func (m *model) again(k *known) int {
	has := slices.Sorted(maps.Keys(k.certain))
	has = append(has, slices.Sorted(maps.Keys(k.maybe))...)
	if len(has) == 0 {
		m.serial++
		return m.serial
	}
	return has[m.rnd.IntN(len(has))]
}

// lose makes the store lose everything, unless that undoes a reset that some engine has not learned
// of.
func (m *model) lose() {
	for _, k := range m.keys {
		if k.reset {
			return
		}
	}
	m.say("the store loses all")
	m.store.restore(map[string]*stored{})
	for _, k := range m.keys {
		k.doubt()
		k.lost = m.serial
	}
	for range len(m.engines) { // most engines notice before they flush
		m.move()
		key := m.key()
		m.count(key)
		m.addValue(key, m.at(), m.again(m.keys[key]), false, twotier.AckStore)
	}
}

const hour = 3_600_000

// count counts the values of a key.
func (m *model) count(key string) {
	i := m.at()
	res, err := m.do(i, &distinct.Op{Key: []byte(key), Windows: []int64{hour}}, false)
	m.say("%d counts %s, in the store %v: %+v, %v", i, key, m.inStore, res, err)
	if err == nil {
		m.compare(key, i, &res)
	}
}

// compare checks an answer against the known values. An answer without the store may lack values,
// and may include values voided by a reset that the engine has not learned of.
func (m *model) compare(key string, i int, res *distinct.Result) {
	k := m.keys[key]
	if len(res.Counts) == 0 || res.Degraded && k.reset {
		return
	}
	n := int(res.Counts[0].Count)
	least, most := len(k.certain), len(k.certain)+len(k.maybe)
	if n < least && !res.Degraded || n > most {
		m.say("here")
		m.Errorf("%d counts %d values of %s, want %d to %d", i, n, key, least, most)
	}
}

// reset resets a key, sometimes twice within a millisecond.
func (m *model) reset(key string) {
	i, k := m.at(), m.keys[key]
	if m.tells {
		i = m.rnd.IntN(len(m.engines)) // another engine decides by now
	}
	for range 1 + m.rnd.IntN(2) {
		k.reset = true
		ctx, cancel := context.WithTimeout(m.Context(), 5*time.Second)
		m.rough.Store(m.tells)
		until, err := m.engines[i].Forget(ctx, nil, []byte(key))
		m.rough.Store(false)
		cancel()
		m.say("%d resets %s: %d, %v", i, key, until, err)
		switch {
		case err == nil:
			clear(k.certain)
			clear(k.maybe)
		case errors.Is(err, twotier.ErrUnknownOutcome):
			k.doubt()
		}
		k.resets, k.reset = append(k.resets, until), !m.tells
		m.tell(key, until)
	}
}

// tell passes a reset to all engines, in models that do so.
func (m *model) tell(key string, until int64) {
	if !m.tells {
		return
	}
	for _, e := range m.engines {
		e.Void(nil, []byte(key), until)
	}
}

// tellAgain repeats a reset of a key that all engines have already received.
func (m *model) tellAgain(key string) {
	if resets := m.keys[key].resets; len(resets) > 0 {
		until := resets[m.rnd.IntN(len(resets))]
		m.say("all are told again of the reset %d of %s", until, key)
		m.tell(key, until)
	}
}

// doubt makes all values of a key uncertain.
func (k *known) doubt() {
	maps.Copy(k.maybe, k.certain)
	clear(k.certain)
}

// flush flushes an engine once, as far as the store allows.
func (m *model) flush(i int) error {
	ctx, cancel := context.WithTimeout(m.Context(), 20*time.Millisecond)
	defer cancel()
	err := m.engines[i].Flush(ctx)
	m.say("%d flushes: %v", i, err)
	return err
}

func (m *model) flushAll() (ok bool) {
	ok = true
	for i := range m.engines {
		ok = m.flush(i) == nil && ok
	}
	return ok
}

// move has another engine decide.
func (m *model) move() {
	m.decider, m.term = m.rnd.IntN(len(m.engines)), m.term+1
	m.say("%d decides", m.decider)
}

// changeMode switches between counting in memory and in the store, once everything is flushed.
func (m *model) changeMode() {
	if m.flushAll() {
		m.inStore, m.term = !m.inStore, m.term+1
		m.say("all count in the store: %v", m.inStore)
	}
}

// replace ends an engine and starts another in its place. The old one crashes, or leaves: then it
// hands over to the decider, which may be about to leave as well.
func (m *model) replace() {
	i := m.rnd.IntN(len(m.engines))
	if m.rnd.IntN(3) == 0 {
		m.crash(i)
		return
	}
	for m.decider == i {
		m.move()
	}
	left := m.handOver(i, m.decider)
	m.say("%d leaves, %d keys are left", i, left)
	if m.rnd.IntN(3) == 0 {
		m.leaveTogether(m.decider)
		return
	}
	m.gone(i, m.end(m.engines[i]))
}

// leaveTogether makes two engines leave. The second hands over to the first, which has just handed
// over to the second.
func (m *model) leaveTogether(second int) {
	var first int
	for first = second; first == second; {
		first = m.rnd.IntN(len(m.engines))
	}
	m.handOver(first, second)
	left := m.handOver(second, first)
	m.say("%d and %d leave together, %d keys are left", first, second, left)
	one, other := m.end(m.engines[first]), m.end(m.engines[second])
	m.gone(first, errors.Join(one, other))
	m.gone(second, nil)
	m.move()
}

func (m *model) handOver(from, to int) (left int) {
	return m.engines[from].HandOver(func(int) int { return to },
		func(_ int, list []distinct.Pending) error {
			if m.engines[to].Import(list) > 0 {
				return errStore
			}
			return nil
		})
}

// end closes an engine that has no time to wait for the store.
func (m *model) end(e *distinct.Engine) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	return e.Close(ctx)
}

// gone replaces an engine. If its error reported keys left, their values may be lost.
func (m *model) gone(i int, err error) {
	m.say("%d is gone: %v", i, err)
	if err != nil {
		for _, k := range m.keys {
			k.doubt()
		}
	}
	m.begin(i)
}

// begin starts a new engine in place of another.
func (m *model) begin(i int) { m.engines[i], m.term = m.engine(i), m.term+1 }

// crash ends an engine together with all unflushed values.
func (m *model) crash(i int) {
	e := m.engines[i]
	for _, p := range e.ListUnflushed(partitions) {
		m.keys[string(p.Key)].doubt()
	}
	down := m.down.Swap(true)
	_ = m.end(e)
	m.down.Store(down)
	m.say("%d crashes", i)
	m.begin(i)
}

// settle flushes all engines, and checks the values that a new engine reads.
func (m *model) settle() {
	m.store.set(nil)
	for i := range m.engines {
		if err := m.engines[i].Flush(m.Context()); err != nil {
			m.Errorf("%d flushes: %v", i, err)
		}
	}
	e := m.engine(len(m.engines))
	for _, key := range slices.Sorted(maps.Keys(m.keys)) {
		var res distinct.Result
		op := &distinct.Op{Key: []byte(key), Windows: []int64{hour}}
		if err := e.DoInStore(m.Context(), op, &res); err != nil {
			m.Error(err)
			continue
		}
		m.say("the store has %s: %+v", key, res)
		m.compare(key, len(m.engines), &res)
	}
	if err := m.end(e); err != nil {
		m.Error(err)
	}
}

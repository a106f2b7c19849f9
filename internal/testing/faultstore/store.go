package faultstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/syncer"
)

// Fault selects the treatment of one round.
type Fault uint8

// The faults.
const (
	// None applies the round and answers.
	None Fault = iota
	// ReplyLost applies the round, but the caller doesn't learn of it.
	ReplyLost
	// RequestLost doesn't apply the round, and the caller doesn't learn of it.
	RequestLost
	// Refused doesn't apply the round and reports that.
	Refused
	// Late doesn't answer. The round is applied some rounds of the same writer and partition later.
	Late
	// Hang doesn't answer until the caller gives up. The round is applied then.
	Hang
	// KeyRefused applies the round to every other key and refuses the rest.
	KeyRefused
	// WriteRefused doesn't apply a round that writes, and reports that.
	WriteRefused
	faults
)

// Errors that the wrapper returns.
var (
	// ErrLost stands for a connection that broke with a request in flight.
	ErrLost = errors.New("faultstore: connection lost")
	// ErrKey stands for a key that holds another type.
	ErrKey = fmt.Errorf("faultstore: wrong type: %w", syncer.ErrNotApplied)
)

// Options configure a [Store]. Store and Report are required.
type Options struct {
	Store syncer.Store
	// Decide chooses the fault of a round. Nil means no faults. Calls are serialised.
	Decide func(r *syncer.Round) Fault
	// Wait, if set, is called before rounds reach the store and again before the answers reach the
	// caller, without a lock. If the first call returns an error, the rounds are not applied. If
	// the second one does, the answers are lost.
	Wait func(ctx context.Context) error
	// Report is called for every promise of syncer.Store that the caller breaks.
	Report func(format string, args ...any)
	// Adopts allows the caller to take over rounds that others numbered, and to hand over its
	// rounds to others. Then the numbers of a writer are not checked for gaps.
	Adopts bool
	// Delay returns how long an exchange takes. An exchange that isn't finished when its context is
	// done fails, but its rounds are applied. Nil means no delay. Calls are serialised.
	Delay func() time.Duration
}

// Store is a syncer.Store with faults.
type Store struct {
	opt        Options
	down, full atomic.Bool

	mu     sync.Mutex
	lanes  map[lane]*state
	counts [faults]int
}

// lane identifies one sequence of round numbers.
type lane struct {
	partition int
	writer    string
}

// state records the rounds of one writer and partition.
type state struct {
	busy     bool
	aside    bool   // an Aside round is in flight
	last     uint64 // the highest number seen
	answered uint64 // the highest number that the caller knows to be applied
	epoch    uint64 // the epoch of the last round
	acked    uint64 // the highest number that was answered in this epoch
	content  string // the content of round last
	refused  map[uint64]bool
	late     []delayed
}

// delayed is a round that is still on its way.
type delayed struct {
	round *syncer.Round
	after int // how many more rounds come first
}

// New returns a wrapper. It is up, not full, and has only the faults that Decide chooses.
func New(opt Options) *Store { return &Store{opt: opt, lanes: map[lane]*state{}} }

// SetDown makes every round fail from now on, or ends that.
func (s *Store) SetDown(down bool) { s.down.Store(down) }

// Down reports whether SetDown made every round fail.
func (s *Store) Down() bool { return s.down.Load() }

// SetFull refuses every round that writes from now on, or ends that. Rounds that only read still
// work.
func (s *Store) SetFull(full bool) { s.full.Store(full) }

// Full reports whether SetFull refuses every round that writes.
func (s *Store) Full() bool { return s.full.Load() }

// Seen returns how many rounds met the fault.
func (s *Store) Seen(f Fault) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[f]
}

// Deliver applies all rounds that are still on their way.
func (s *Store) Deliver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.lanes {
		s.arrive(st, 1<<30)
	}
}

// Exchange implements syncer.Store.
func (s *Store) Exchange(ctx context.Context, rounds []*syncer.Round) {
	hang := false
	if err := s.wait(ctx); err != nil {
		for _, r := range rounds {
			garble(r, err)
		}
		return
	}
	s.mu.Lock()
	for _, r := range rounds {
		s.enter(r)
	}
	if !s.delay(ctx) {
		defer s.mu.Unlock()
		for _, r := range rounds {
			s.opt.Store.Exchange(context.Background(), []*syncer.Round{clone(r)})
			garble(r, context.DeadlineExceeded)
			s.leave(r)
		}
		return
	}
	for _, r := range rounds {
		st := s.lane(r)
		s.arrive(st, 1)
		hang = s.carryOut(st, r) || hang
	}
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
		s.mu.Lock()
		for _, r := range rounds {
			if errors.Is(r.Err, context.DeadlineExceeded) {
				s.opt.Store.Exchange(context.Background(), []*syncer.Round{clone(r)})
			}
		}
		s.mu.Unlock()
	} else {
		time.Sleep(time.Microsecond) // lets overlapping calls overlap
	}
	unheard := s.wait(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rounds {
		if unheard != nil {
			garble(r, unheard)
		}
		s.leave(r)
	}
}

// delay waits for Options.Delay. It reports false if ctx is done first.
func (s *Store) delay(ctx context.Context) bool {
	if s.opt.Delay == nil {
		return true
	}
	d := s.opt.Delay()
	if d <= 0 {
		return ctx.Err() == nil
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *Store) wait(ctx context.Context) error {
	if s.opt.Wait == nil {
		return nil
	}
	return s.opt.Wait(ctx)
}

// carryOut applies the fault of a round. It reports whether the caller must wait until its context
// is done.
func (s *Store) carryOut(st *state, r *syncer.Round) (hang bool) {
	fault := None
	switch {
	case s.down.Load():
		fault = RequestLost
	case s.full.Load() && (r.Seq != 0 || r.Republish):
		fault = WriteRefused
	case s.opt.Decide != nil:
		fault = s.opt.Decide(r)
	}
	s.counts[fault]++
	switch fault {
	case ReplyLost:
		s.opt.Store.Exchange(context.Background(), []*syncer.Round{clone(r)})
		garble(r, ErrLost)
	case RequestLost:
		garble(r, ErrLost)
	case Refused:
		garble(r, fmt.Errorf("faultstore: %w", syncer.ErrNotApplied))
	case Late:
		st.late = append(st.late, delayed{clone(r), 1 + s.counts[Late]%3})
		garble(r, ErrLost)
	case WriteRefused:
		garble(r, fmt.Errorf("faultstore: full: %w", syncer.ErrRefused))
	case Hang:
		garble(r, context.DeadlineExceeded)
		return true
	default:
		s.answer(st, r, fault == KeyRefused)
	}
	return false
}

// answer applies a round and answers it. Keys that were refused are refused again each time their
// round is sent.
func (s *Store) answer(st *state, r *syncer.Round, refuse bool) {
	if r.Seq == 0 || r.Republish || st.sentBefore(r) {
		refuse = st.refused[r.Seq]
	}
	if !refuse {
		s.opt.Store.Exchange(context.Background(), []*syncer.Round{r})
		return
	}
	c := clone(r)
	all := c.Keys
	c.Keys = nil
	for i := 1; i < len(all); i += 2 {
		c.Keys = append(c.Keys, all[i])
	}
	s.opt.Store.Exchange(context.Background(), []*syncer.Round{c})
	r.Err, r.Lost, r.Used, r.Later = c.Err, c.Lost, c.Used, c.Later
	r.Version, r.Quieted, r.Epoch, r.LastChange = c.Version, c.Quieted, c.Epoch, c.LastChange
	if r.Err != nil || r.Lost || r.Used {
		return
	}
	st.refused[r.Seq] = true
	for i := range r.Keys {
		k := &r.Keys[i]
		if i%2 == 0 {
			k.Err = ErrKey
			continue
		}
		// Copy only the fields that a store sets. The others belong to the counter, which may read
		// them meanwhile.
		told := &c.Keys[i/2]
		k.Err, k.Loaded = told.Err, told.Loaded
		copy(k.Adds, told.Adds)
	}
}

// arrive applies late rounds whose time has come. Their answers are lost.
func (s *Store) arrive(st *state, passed int) {
	kept := st.late[:0]
	for _, d := range st.late {
		if d.after -= passed; d.after > 0 {
			kept = append(kept, d)
			continue
		}
		s.opt.Store.Exchange(context.Background(), []*syncer.Round{d.round})
	}
	st.late = kept
}

func (s *Store) lane(r *syncer.Round) *state {
	key := lane{r.Partition, r.Writer}
	st := s.lanes[key]
	if st == nil {
		st = &state{refused: map[uint64]bool{}}
		s.lanes[key] = st
	}
	return st
}

// Mix is the probability of each fault, in thousandths. The rest is None.
type Mix struct {
	ReplyLost, RequestLost, Refused, Late, Hang, KeyRefused int
}

// Random returns a function for Options.Decide that draws from the mix. The same seed and number of
// rounds give the same faults.
func Random(seed uint64, mix Mix) func(*syncer.Round) Fault {
	rnd := rand.New(rand.NewPCG(seed, 0xfa17))
	return func(*syncer.Round) Fault {
		n := rnd.IntN(1000)
		for fault, share := range [...]int{
			ReplyLost: mix.ReplyLost, RequestLost: mix.RequestLost, Refused: mix.Refused,
			Late: mix.Late,
			Hang: mix.Hang, KeyRefused: mix.KeyRefused,
		} {
			if n -= share; n < 0 {
				return Fault(fault)
			}
		}
		return None
	}
}

// ListKeys implements syncer.Lister with the wrapped store, if that implements it. The faults are
// the same as for a read-only round.
func (s *Store) ListKeys(ctx context.Context, lists []*syncer.KeyList) {
	err := s.wait(ctx)
	for _, l := range lists {
		if err == nil {
			s.listKeys(ctx, l)
		} else {
			l.Err = err
		}
	}
	time.Sleep(time.Microsecond) // lets overlapping calls overlap
	if err := s.wait(ctx); err != nil {
		for _, l := range lists {
			l.Err = err
		}
	}
}

func (s *Store) listKeys(ctx context.Context, l *syncer.KeyList) {
	inner, ok := s.opt.Store.(syncer.Lister)
	switch fault := s.listFault(l); {
	case !ok:
		l.Err = fmt.Errorf("faultstore: %w", errors.ErrUnsupported)
	case fault == Hang:
		<-ctx.Done()
		l.Err = ctx.Err()
	case fault != None && fault != KeyRefused && fault != WriteRefused:
		l.Err = ErrLost
	default:
		inner.ListKeys(ctx, []*syncer.KeyList{l})
	}
}

func (s *Store) listFault(l *syncer.KeyList) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.down.Load():
		return RequestLost
	case s.opt.Decide != nil:
		return s.opt.Decide(&syncer.Round{Partition: l.Partition})
	}
	return None
}

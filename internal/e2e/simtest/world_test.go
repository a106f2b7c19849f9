package simtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/roster"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/simnet"
	"twotier.dev/twotier/leaparray"
)

// patience is how long a healed cluster may take to settle.
const patience = 3 * time.Minute

// world is one running schedule.
type world struct {
	t        *testing.T
	seed     uint64
	began    time.Time
	rnd      *rand.Rand
	plan     plan
	ladders  []*leaparray.Ladder
	net      *simnet.Net
	redis    *embedded.Store
	atomic   sync.Mutex              // held while Redis does something atomically
	listed   map[string]roster.Entry // the list of processes in Redis; guarded by atomic
	lossy    []time.Time             // when Redis lost data
	sources  sources                 // guarded by atomic
	outages  []span                  // when some nodes could not write to Redis; guarded by atomic
	ledger   ledger
	rules    editions
	bans     bans
	values   values
	holds    holds
	due      due
	journal  journal
	refused  atomic.Int64
	borrowed atomic.Int64 // answers about hot keys
	near     atomic.Int64 // remembered refusals
	once     atomic.Int64
	strange  atomic.Int64 // reports of strangers
	divided  atomic.Bool  // a node does not learn who owns what
	groups   groups
	sight    sight
	spent    int          // generations of keys that were used up
	under    atomic.Int64 // counts in requests in flight
	watching sync.WaitGroup
	healed   atomic.Bool
	verbose  bool
	born     atomic.Int64
	meter    *meter // nil unless traffic is measured

	mu    sync.Mutex
	procs map[int]*proc // by host number
	all   []*proc       // all that were ever started
	inUse map[*proc]int
}

func ip(i int) string { return fmt.Sprintf("10.0.0.%d", i) }

func (w *world) placement() twotier.Placement {
	return twotier.Placement{Partitions: w.plan.partitions, Seed: 5,
		HashTags: twotier.HashTags{twotier.DefaultNamespace: true}}
}

func (w *world) partition(key string) int { return w.placement().Of(nil, []byte(key)) }

// limitsOf returns the limits of a key, if it has any.
func limitsOf(key string) []twotier.Limit {
	switch {
	case strings.HasPrefix(key, "spent"):
		return []twotier.Limit{{Window: dayMS, Max: 1}}
	case strings.HasPrefix(key, "limited"):
		return []twotier.Limit{{Window: dayMS, Max: 20 + 15*int64(key[len(key)-1]-'0')}}
	case key == "crowded":
		return []twotier.Limit{{Window: 5_000, Max: 1_500}, {Window: dayMS, Max: 6_000}}
	case strings.HasPrefix(key, "paced"):
		return []twotier.Limit{{Window: 2500, Max: 3}, {Window: 40_000, Max: 15},
			{Window: hourMS, Max: 40}}
	}
	return nil
}

func (w *world) logger(id string) *slog.Logger {
	if !w.verbose {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr,
		&slog.HandlerOptions{Level: slog.LevelInfo})).With("on", id)
}

func (w *world) say(format string, args ...any) {
	w.journal.note("--- "+format, args...)
	if w.verbose {
		fmt.Fprintf(os.Stderr, "%s --- %s\n", time.Now().Format("05.000"),
			fmt.Sprintf(format, args...))
	}
}

// alive returns the processes that clients can ask.
func (w *world) alive() (list []*proc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range slices.Sorted(maps.Keys(w.procs)) {
		list = append(list, w.procs[i])
	}
	return list
}

// at returns the process on a host, or nil if there is none.
func (w *world) at(i int) *proc {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.procs[i]
}

// pick returns a process that answers, or nil if there is none.
func (w *world) pick(rnd *rand.Rand) *proc {
	list := slices.DeleteFunc(w.alive(), func(p *proc) bool { return p.asleep.Load() })
	if len(list) == 0 {
		return nil
	}
	return list[rnd.IntN(len(list))]
}

// enter records that a client is asking a process, until the returned function is called.
func (w *world) enter(p *proc) func() {
	w.mu.Lock()
	w.inUse[p]++
	w.mu.Unlock()
	w.under.Add(50)
	return func() {
		w.mu.Lock()
		w.inUse[p]--
		w.mu.Unlock()
		w.under.Add(-50)
	}
}

// inFlight returns an upper bound of the counts that clients are making at present.
func (w *world) inFlight() int64 { return w.under.Load() }

func (w *world) busy(p *proc) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inUse[p] > 0
}

func (w *world) owned() (n int) {
	for _, p := range w.alive() {
		n += p.node.Stats().Held
	}
	return n
}

// acceptable checks that a client may get this error.
func (w *world) acceptable(p *proc, err error) {
	switch {
	case errors.Is(err, twotier.ErrUnknownOutcome), errors.Is(err, twotier.ErrUnavailable),
		errors.Is(err, context.DeadlineExceeded):
	case errors.Is(err, twotier.ErrOverload) && w.plan.lag > 0:
	case p.dead.Load(), p.leaving.Load() && errors.Is(err, twotier.ErrClosed):
	default:
		w.t.Errorf("node %s says: %v", p.id, err)
	}
}

func (w *world) until(limit time.Duration, done func() bool) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if done() {
			return true
		}
	}
	return false
}

// run runs the schedule of a seed.
func run(t *testing.T, seed uint64, verbose bool) outcome {
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := &world{
		t: t, seed: seed, began: time.Now(), rnd: rnd, plan: newPlan(rnd),
		redis: embedded.New(embedded.Options{}), verbose: verbose && testing.Verbose(),
		ledger: ledger{keys: map[string]*account{}}, groups: groups{excused: map[string]bool{}},
		procs: map[int]*proc{}, inUse: map[*proc]int{}, listed: map[string]roster.Entry{},
	}
	w.ladders = drawLadders(rand.New(rand.NewPCG(seed, 2)), w.plan.ladders)
	w.plan.rules = *rulesFlag || *mixedFlag && seed%4 == 1
	w.plan.values = *valuesFlag || *mixedFlag && seed%8 == 3
	w.plan.holds = *holdsFlag || seed%4 == 2
	w.net = simnet.New(seed, w.plan.weather)
	t.Logf("seed %d: %s %+v %v", seed, w.plan.kind, w.plan, w.ladders)
	if w.plan.holds {
		w.awaitPeriod()
	}
	if w.plan.rules {
		must.Succeed(t, w.rules.begin(rand.New(rand.NewPCG(seed, 3))))
	}
	for i := 1; i <= w.plan.nodes; i++ {
		w.joinAt(i)
	}
	outside, err := w.newOutside()
	must.Succeed(t, err)
	stop := make(chan struct{})
	clients := w.startClients(outside, stop)
	w.play()
	close(stop)
	clients.Wait()
	if err := outside.close(); err != nil {
		t.Errorf("the client closes: %v", err)
	}
	w.watching.Wait()
	w.heal()
	w.until(30*time.Second, func() bool {
		return !slices.ContainsFunc(w.alive(), func(p *proc) bool { return p.node.InDoubt() > 0 })
	})
	w.awaitReleases()
	w.settle(t)
	o := w.check()
	w.shutDown()
	return o
}

// startClients starts all clients, which send requests until they are stopped. One of them is
// outside.
func (w *world) startClients(outside *outside, stop <-chan struct{}) *sync.WaitGroup {
	clients := new(sync.WaitGroup)
	for i := range 6 {
		c := &client{w: w, number: i, rnd: rand.New(rand.NewPCG(w.seed, uint64(100+i)))}
		if i == 0 {
			c.outside = outside
		}
		clients.Go(func() { c.run(stop) })
	}
	if w.plan.rules {
		for i := range askers {
			a := w.newAsker(i)
			clients.Go(func() { a.run(stop) })
		}
	}
	if w.plan.values {
		for i := range adders {
			a := w.newAdder(i, outside)
			clients.Go(func() { a.run(stop) })
		}
	}
	if w.plan.holds {
		for i := range holders {
			h := w.newHolder(i)
			clients.Go(func() { h.run(stop) })
		}
	}
	return clients
}

var _ node.Direct = (*direct)(nil)

package simtest

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/roster"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/internal/testing/simnet"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// meter counts the traffic of all nodes, and how long clients wait. A nil meter counts nothing.
type meter struct {
	mu      sync.Mutex
	sums    traffic
	asked   int
	longest time.Duration
}

// traffic is the amount of messages sent, by kind.
type traffic map[string]amount

// amount is a number of messages and their size.
type amount struct{ messages, bytes float64 }

func (a amount) String() string {
	if a.bytes == 0 {
		return fmt.Sprintf("%.4g", a.messages)
	}
	return fmt.Sprintf("%.3g, %.0f B", a.messages, a.bytes)
}

// over divides all amounts.
func (t traffic) over(n float64) traffic {
	for kind, a := range t {
		t[kind] = amount{a.messages / n, a.bytes / n}
	}
	return t
}

func (m *meter) add(kind string, messages, bytes int) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.sums[kind]
	m.sums[kind] = amount{a.messages + float64(messages), a.bytes + float64(bytes)}
}

// gossip counts gossip. Calls are counted by their callers.
func (m *meter) gossip(s simnet.Sent) {
	switch {
	case s.Kind != simnet.Gossip:
	case s.Stream:
		m.add("gossip: exchanges of state, and news", s.Messages, s.Bytes)
	default:
		m.add("gossip: packets", s.Messages, s.Bytes)
	}
}

// metered counts a node's exchanges with Redis.
type metered struct {
	*faultstore.Store
	meter *meter
}

// Exchange implements syncer.Store.
func (s metered) Exchange(ctx context.Context, rounds []*syncer.Round) {
	s.meter.exchange(rounds)
	s.Store.Exchange(ctx, rounds)
}

func (m *meter) exchange(rounds []*syncer.Round) {
	m.add("Redis: exchanges", 1, 0)
	for _, r := range rounds {
		switch {
		case r.Seq > 0 || r.Republish:
			m.add("Redis: rounds that write", 1, 0)
		case len(r.Keys) > 0:
			m.add("Redis: rounds that load", 1, 0)
		default:
			m.add("Redis: rounds that verify", 1, 0)
		}
	}
}

// took counts an operation of a client.
func (m *meter) took(operations int, d time.Duration) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked += operations
	m.longest = max(m.longest, d)
}

// operations returns the number of operations since the last call, and how long the longest took.
func (m *meter) operations() (n int, longest time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, longest = m.asked, m.longest
	m.asked, m.longest = 0, 0
	return n, longest
}

// take returns the traffic since the last call.
func (m *meter) take() traffic {
	m.mu.Lock()
	defer m.mu.Unlock()
	sums := m.sums
	m.sums = traffic{}
	return sums
}

// asking is a node's access to the others; it labels each message with its question.
type asking struct{ node.Peers }

func (a asking) Ask(ctx context.Context, to *ring.Member, question, answer any) error {
	kind, _ := node.KindOf(question)
	return a.Peers.Ask(context.WithValue(ctx, questionKey{}, kind.Name), to, question, answer)
}

type questionKey struct{}

// questionIn returns the name of a message's question.
func questionIn(ctx context.Context) string {
	if name, ok := ctx.Value(questionKey{}).(string); ok {
		return "peers: " + name
	}
	return "peers: operations"
}

var sizesFlag = flag.String("sizes", "",
	"sizes of the clusters that TestScale compares, the smallest first; empty: 10,20")

// sizes returns the sizes to compare.
func sizes() []string {
	if *sizesFlag == "" {
		return []string{"10", "20"}
	}
	return strings.Split(*sizesFlag, ",")
}

// TestScale runs clusters of several sizes with the partitions and the flush interval of a real
// one: a quiet while, one node that is replaced, and a deploy that replaces all of them under load.
// The traffic of a node in the first two must not grow with the number of nodes. In the deploy
// nothing is lost and no limit exceeded.
func TestScale(t *testing.T) {
	race.SkipLong(t)
	var all []scaled
	for _, size := range sizes() {
		n, err := strconv.Atoi(size)
		if err != nil || n < 2 {
			t.Fatalf("-sizes: a cluster of %q nodes", size)
		}
		s := scaled{nodes: n}
		t.Run(size, func(t *testing.T) { synctest.Test(t, s.run) })
		all = append(all, s)
	}
	if t.Failed() {
		return
	}
	t.Log("\n" + scaleReport(all))
	for _, s := range all[1:] {
		s.quiet.notAbove(t, "a quiet node", s.nodes, all[0].quiet)
		s.replaced.notAbove(t, "a replacement", s.nodes, all[0].replaced)
	}
}

// scaled holds the measurements of one size of cluster: for each node, and in the quiet time for
// each second.
type scaled struct {
	nodes                   int
	quiet, replaced, deploy traffic
	deployed                deploy
}

// quietTime is how long a cluster is measured at rest: some rounds of the exchanges of state, which
// become rarer the more nodes there are.
const quietTime = 3 * time.Minute

func (s *scaled) run(t *testing.T) {
	w := newScaleWorld(t, s.nodes)
	for i := 1; i <= s.nodes; i++ {
		w.joinAt(i)
	}
	w.fill()
	time.Sleep(30 * time.Second)
	w.meter.take()
	time.Sleep(quietTime)
	s.quiet = w.meter.take().over(float64(s.nodes) * quietTime.Seconds())
	w.replace(1 + s.nodes/2)
	s.replaced = w.meter.take().over(float64(s.nodes))
	s.deployed = w.deploy()
	s.deploy = w.meter.take().over(float64(s.nodes))
	w.settle(t)
	w.check()
	for _, p := range w.alive() {
		p.kill()
	}
	time.Sleep(2 * time.Minute) // the goroutines of memberlist end with their last probe
}

func newScaleWorld(t *testing.T, nodes int) *world {
	w := &world{
		t: t, seed: 1, began: time.Now(), rnd: rand.New(rand.NewPCG(1, 1)),
		redis: embedded.New(embedded.Options{}), ladders: []*leaparray.Ladder{usual()},
		plan: plan{
			kind: graceful, nodes: nodes, partitions: 1021, lanes: 4, exact: true, patient: true,
			interval: 200 * time.Millisecond, verify: 5 * time.Second, pause: 60 * time.Millisecond,
			weather: simnet.Weather{Delay: 300 * time.Microsecond, Jitter: 400 * time.Microsecond},
		},
		ledger: ledger{keys: map[string]*account{}}, procs: map[int]*proc{}, inUse: map[*proc]int{},
		listed: map[string]roster.Entry{},
		meter:  &meter{sums: traffic{}}, groups: groups{excused: map[string]bool{}},
	}
	w.net = simnet.New(w.seed, w.plan.weather)
	w.net.Observe(w.meter.gossip)
	return w
}

// fill counts keys in nearly all partitions, through all nodes.
func (w *world) fill() {
	c := &client{w: w, rnd: w.rnd}
	list := w.alive()
	const keys, at = 3000, 100
	for first := 0; first < keys; first += at {
		var ops []twotier.Op
		for i := first; i < first+at; i++ {
			ops = append(ops, *adding(fmt.Sprint("filled", i)))
		}
		c.do(list[first/at%len(list)], ops...)
	}
}

// replace replaces a node by another process with its ID, and waits until the cluster is quiet
// again.
func (w *world) replace(i int) {
	w.leaves(w.at(i))
	w.joinAt(i)
	time.Sleep(3 * time.Second)
}

// deploy holds the measurements of a deploy of all nodes.
type deploy struct {
	took                         time.Duration
	operations, refused, unknown int
	longest                      time.Duration // operation
	moved, fromStore             int64         // partitions
	tables                       int64         // at each node
}

// deploy replaces all nodes, one after the other, while clients are busy.
func (w *world) deploy() (d deploy) {
	before := w.moves()
	began, refused := time.Now(), w.refused.Load()
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 6 {
		c := &client{w: w, number: i, rnd: rand.New(rand.NewPCG(w.seed, uint64(100+i)))}
		clients.Go(func() { c.run(stop) })
	}
	for i := 1; i <= w.plan.nodes; i++ {
		w.leaves(w.at(i))
		w.joinAt(i)
	}
	close(stop)
	clients.Wait()
	after := w.moves()
	d.took, d.refused = time.Since(began), int(w.refused.Load()-refused)
	d.operations, d.longest = w.meter.operations()
	d.moved, d.fromStore = after.moved-before.moved, after.fromStore-before.fromStore
	d.tables = (after.tables - before.tables) / int64(w.plan.nodes)
	for _, key := range w.ledger.names() {
		a := w.ledger.copy(key)
		d.unknown += int(a.more + a.less)
	}
	if d.unknown > 0 || 100*d.refused > d.operations {
		w.t.Errorf("of %d operations %d were refused; the outcome of %d is unknown", d.operations,
			d.refused, d.unknown)
	}
	return d
}

// moves sums up the statistics of ownership of all processes that ever ran.
func (w *world) moves() (sum deploy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.all {
		s := p.node.Stats()
		sum.moved += s.Moves.Taken
		sum.fromStore += s.Moves.FromStore
		sum.tables += s.TablesTotal
	}
	return sum
}

// notAbove fails if a node among n sends more than twice as much of any kind as one in the smallest
// cluster.
func (t traffic) notAbove(test *testing.T, what string, n int, least traffic) {
	for kind, a := range t {
		if b := least[kind]; a.messages > 2*b.messages+few.messages ||
			a.bytes > 2*b.bytes+few.bytes {
			test.Errorf("%s, %s: %.2f and %.0f bytes of each of %d nodes, %.2f and %.0f in the "+
				"smallest cluster", what, kind, a.messages, a.bytes, n, b.messages, b.bytes)
		}
	}
}

// few is an additional allowance, because small amounts vary by chance.
var few = amount{messages: 1, bytes: 500}

// scaleReport formats the measurements as tables.
func scaleReport(all []scaled) string {
	var b strings.Builder
	head := func(title string) {
		fmt.Fprintf(&b, "\n| %s |", title)
		for _, s := range all {
			fmt.Fprintf(&b, " %d nodes |", s.nodes)
		}
		fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---:|", len(all)))
	}
	row := func(name string, value func(s *scaled) string) {
		fmt.Fprintf(&b, "| %s |", name)
		for i := range all {
			fmt.Fprintf(&b, " %s |", value(&all[i]))
		}
		b.WriteString("\n")
	}
	part := func(title string, of func(s *scaled) traffic) {
		head(title)
		for _, kind := range kindsOf(all, of) {
			row(kind, func(s *scaled) string { return of(s)[kind].String() })
		}
	}
	part("quiet: each node, each second", func(s *scaled) traffic { return s.quiet })
	part("one node is replaced: each node", func(s *scaled) traffic { return s.replaced })
	part("all are replaced: each node", func(s *scaled) traffic { return s.deploy })
	head("all are replaced: the cluster")
	row("time", func(s *scaled) string { return s.deployed.took.Round(time.Second).String() })
	row("operations", func(s *scaled) string { return fmt.Sprint(s.deployed.operations) })
	row("refused", func(s *scaled) string { return fmt.Sprint(s.deployed.refused) })
	row("of unknown outcome", func(s *scaled) string { return fmt.Sprint(s.deployed.unknown) })
	row("longest operation", func(s *scaled) string {
		return s.deployed.longest.Round(time.Millisecond).String()
	})
	row("partitions handed over", func(s *scaled) string { return fmt.Sprint(s.deployed.moved) })
	row("partitions from the store", func(s *scaled) string {
		return fmt.Sprint(s.deployed.fromStore)
	})
	row("tables of each node", func(s *scaled) string { return fmt.Sprint(s.deployed.tables) })
	return b.String()
}

// kindsOf returns the kinds of traffic that occurred, in order.
func kindsOf(all []scaled, of func(s *scaled) traffic) (kinds []string) {
	for i := range all {
		for kind := range of(&all[i]) {
			if !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		}
	}
	slices.Sort(kinds)
	return kinds
}

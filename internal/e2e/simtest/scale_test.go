package simtest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/internal/roster"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/internal/testing/simnet"
	"twotier.dev/twotier/leaparray"
)

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

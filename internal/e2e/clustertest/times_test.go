package clustertest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// prober is a set of clients that continuously add to keys of one node through the others.
type prober struct {
	quit    chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	answers []answered
}

// answered holds the time at which a request was sent and the time of its answer.
type answered struct{ sent, at time.Time }

// probe starts clients of the given nodes for these keys. A request without an answer does not hold
// up the others.
func (c *cluster) probe(keys []string, bases []string) *prober {
	p := &prober{quit: make(chan struct{})}
	tr := (&proctest.Traffic{T: c.T, Ledger: c.Ledger}).To(bases...).Open()
	for w := range 24 {
		p.running.Go(func() {
			for n := w; ; n++ {
				select {
				case <-p.quit:
					return
				case <-time.After(20 * time.Millisecond):
				}
				sent := time.Now()
				if tr.Add(keys[n%len(keys)], 1, false) == proctest.Acked {
					p.note(answered{sent, time.Now()})
				}
			}
		})
	}
	c.T.Cleanup(p.stop)
	return p
}

func (p *prober) note(a answered) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers = append(p.answers, a)
}

func (p *prober) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.answers)
}

func (p *prober) stop() {
	select {
	case <-p.quit:
	default:
		close(p.quit)
	}
	p.running.Wait()
}

// since returns how long after moment the first answer came to a request that was sent after it,
// the longest time without an answer, and the slowest answer.
func (p *prober) since(moment time.Time) (first, gap, slowest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := moment
	for _, a := range p.answers { // in the order of arrival
		if !a.at.After(moment) {
			continue
		}
		gap, last = max(gap, a.at.Sub(last)), a.at
		slowest = max(slowest, a.at.Sub(a.sent))
		if first == 0 && a.sent.After(moment) {
			first = a.at.Sub(moment)
		}
	}
	return first, gap, slowest
}

// noticed waits until the running nodes have taken over all partitions and have removed the failed
// node from their tables. It returns how long after since each of these happened.
func (c *cluster) noticed(since time.Time) (owned, dropped time.Duration) {
	c.T.Helper()
	proctest.Until(c.T, "the others notice", func() bool {
		held, members := 0, 0
		for _, i := range c.Running() {
			v, err := c.Nodes[i].Look()
			must.Succeed(c.T, err)
			held, members = held+v.Held, max(members, len(v.Members))
		}
		if owned == 0 && held == c.Partitions {
			owned = time.Since(since)
		}
		if dropped == 0 && members == len(c.Nodes) {
			dropped = time.Since(since)
		}
		return owned > 0 && dropped > 0
	})
	return owned, dropped
}

// spread formats the measurements of several runs.
func spread(list []time.Duration) string {
	slices.Sort(list)
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf("%v median, %v to %v in %d runs", round(list[len(list)/2]), round(list[0]),
		round(list[len(list)-1]), len(list))
}

// TestHowLongItTakes prints how long it takes until a failure is noticed, until the others answer
// in place of the failed node, and until they own its partitions. It checks none of the times.
func TestHowLongItTakes(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*proctest.Process){
		"SIGKILL": (*proctest.Process).Kill, "SIGSTOP": (*proctest.Process).Pause,
		"SIGTERM": (*proctest.Process).Terminate,
	} {
		t.Run(how, func(t *testing.T) {
			c := start(t, 3)
			var measured [5][]time.Duration
			for range *runsFlag {
				for i, d := range c.failure(end) {
					measured[i] = append(measured[i], d)
				}
			}
			for i, what := range []string{"first answer to a request about a key of its",
				"longest time without an answer", "slowest answer",
				"the others own all partitions", "it is no member any more"} {
				t.Logf("%s: %s: %s", how, what, spread(measured[i]))
			}
		})
	}
}

// failure ends node 1 while clients ask the others about its keys, measures the times, and restarts
// it.
func (c *cluster) failure(end func(*proctest.Process)) [5]time.Duration {
	c.T.Helper()
	var keys []string
	for i := range 50 {
		keys = append(keys, c.keyOf(1, fmt.Sprint("probe-", i, "-")))
	}
	p := c.probe(keys, c.Bases(0, 2))
	proctest.Until(c.T, "answers come", func() bool { return p.count() > 100 })
	victim := c.Nodes[1]
	delete(c.Nodes, 1)
	began := time.Now()
	end(victim)
	owned, dropped := c.noticed(began)
	p.stop()
	first, gap, slowest := p.since(began)
	victim.Kill()
	c.Serve(1)
	c.Settled()
	return [5]time.Duration{first, gap, slowest, owned, dropped}
}

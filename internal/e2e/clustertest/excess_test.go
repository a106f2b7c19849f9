package clustertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// side is the clients of one part of a split cluster.
type side struct {
	node *proctest.Process

	mu       sync.Mutex
	tries    int
	admitted []time.Duration // since the beginning
	refused  int             // tries in a row
	unknown  int             // tries with unknown outcome
	waits    int             // tries that no node could decide
	err      error
}

// tally is the result of driving one limit from all sides of a split at once.
type tally struct {
	nodes    int
	flush    time.Duration
	rate     float64 // tries per second and side that were made
	limit    int
	admitted int
	unknown  int
	stale    time.Duration // the oldest news of the others that explains an admission
}

// workers is the number of clients of a side, and maxWaits how many of their attempts may stay
// undecided.
const (
	workers  = 6
	maxWaits = 1000
)

// drive acquires one key on all sides, at a rate of attempts per second on each, until all have
// been refused for a long time.
func drive(t *testing.T, sides []*side, key string, limit int, rate float64,
	flush time.Duration) tally {
	t.Helper()
	body := fmt.Sprintf(`{"key":%q,"limits":[{"window":"24h","max":%d}]}`, key, limit)
	began := time.Now()
	// A refused side continues until it must have learned of everything that the others admitted.
	enough := workers + int(3*flush.Seconds()*rate)
	for _, s := range sides {
		s.ask(body, began)
	}
	var running sync.WaitGroup
	for _, s := range sides {
		for w := range workers {
			running.Go(func() { s.run(body, began, w, limit, rate, enough) })
		}
	}
	running.Wait()
	sum := tally{nodes: len(sides), flush: flush, limit: limit}
	for _, s := range sides {
		if s.err != nil {
			t.Fatal(s.err)
		}
		sum.admitted += len(s.admitted)
		sum.unknown += s.unknown
		slices.Sort(s.admitted)
		sum.rate += float64(s.tries) / time.Since(began).Seconds() / float64(len(sides))
	}
	for i := range sides {
		sum.stale = max(sum.stale, staleness(sides, i, limit))
	}
	return sum
}

// run is one of a side's clients.
func (s *side) run(body string, began time.Time, w, limit int, rate float64, enough int) {
	step := time.Duration(workers / rate * float64(time.Second))
	for due := began.Add(step * time.Duration(w) / workers); ; due = due.Add(step) {
		time.Sleep(time.Until(due)) // the rate of the load
		if s.ask(body, began) >= enough || s.over(limit) {
			return
		}
		if time.Since(due) > step {
			due = time.Now() // don't make up for tries that were missed during a slow answer
		}
	}
}

// over reports whether the side alone admitted more than the limit, which ends the run.
func (s *side) over(limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.admitted) > limit {
		s.err = fmt.Errorf("one node alone admitted more than the limit of %d", limit)
	}
	return s.err != nil
}

// ask acquires once and returns how often in a row the side has been refused.
func (s *side) ask(body string, began time.Time) int {
	status, out, err := s.node.Post("/v1/acquire", body)
	at := time.Since(began)
	var a proctest.Answer
	if err == nil {
		err = json.Unmarshal(out, &a)
	}
	if err == nil && status != http.StatusOK && a.Outcome != "unknown" {
		err = fmt.Errorf("status %d: %s", status, out)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	switch {
	case status == http.StatusServiceUnavailable && a.Outcome == "" && s.waits < maxWaits:
		s.waits++ // nothing was counted: no node decides yet
	case err != nil:
		s.err = err
		s.refused = 1 << 30 // ends the run
	case a.Outcome == "unknown":
		s.unknown++
	case a.Allowed:
		s.admitted = append(s.admitted, at)
		s.refused = 0
	default:
		s.refused++
	}
	return s.refused
}

// staleness returns the least age of the information about the others on which side i admitted
// events: that long before, the others had already used up the rest of the limit.
func staleness(sides []*side, i, limit int) (worst time.Duration) {
	var others []time.Duration
	for j, s := range sides {
		if j != i {
			others = append(others, s.admitted...)
		}
	}
	slices.Sort(others)
	for own, at := range sides[i].admitted {
		if rest := limit - own; rest <= len(others) && rest > 0 {
			worst = max(worst, at-others[rest-1])
		} else if rest <= 0 {
			worst = max(worst, at)
		}
	}
	return worst
}

// bound returns the documented bound of the excess: the events that the other sides admit in two
// flush intervals, including one request of each at the beginning in addition to the rate, but no
// more than the limit for each side.
func (y *tally) bound() float64 {
	return float64(y.nodes-1) * min(float64(y.limit), 1+y.rate*2*y.flush.Seconds())
}

func (y *tally) String() string {
	return fmt.Sprintf("| %d | %v | %.0f | %d | %d | %d | %.0f | %v |", y.nodes, y.flush, y.rate,
		y.limit, y.admitted,
		y.admitted-y.limit, y.bound(), y.stale.Round(time.Millisecond))
}

const tallyHead = `
| sides | flush interval | tries/s and side | limit | admitted | excess | bound | oldest news |
|---|---|---|---|---|---|---|---|`

// check checks invariants that hold however slow the machine is: Redis holds exactly the admitted
// events, and no side alone exceeded the limit.
func (y *tally) check(t *testing.T, c *cluster, key string) {
	t.Helper()
	proctest.UntilNil(t, "Redis holds what was admitted", func() error {
		held, err := c.Stored([]string{key})
		if n := int(held[key]); err == nil && (n < y.admitted || n > y.admitted+y.unknown) {
			err = fmt.Errorf("it holds %d, admitted were %d, and perhaps %d more", n, y.admitted,
				y.unknown)
		}
		return err
	})
	if y.admitted+y.unknown < y.limit || y.admitted > y.nodes*y.limit {
		t.Errorf("%d admitted, want %d to %d", y.admitted, y.limit, y.nodes*y.limit)
	}
}

// apart starts n nodes over one Redis that never meet, like a cluster split into n sides.
func apart(t *testing.T, n int, flush time.Duration) (*cluster, []*side) {
	t.Helper()
	c := &cluster{proctest.NewCluster(t, program, redistest.Start(t), nil)}
	var sides []*side
	for range n {
		p := program.Serve(t, proctest.Options{}, "--redis", c.URL, "--gossip",
			proctest.Host()+":0", "--flush-interval", flush.String())
		sides = append(sides, &side{node: p})
	}
	return c, sides
}

// again returns fresh sides for another key.
func again(old []*side) (sides []*side) {
	for _, s := range old {
		sides = append(sides, &side{node: s.node})
	}
	return sides
}

// TestExcessCurve drives a limit from all sides of a split at once and prints by how much it was
// exceeded, for several numbers of sides, flush intervals and rates.
func TestExcessCurve(t *testing.T) {
	t.Parallel()
	nodes, flushes, rates := []int{2, 3},
		[]time.Duration{10 * time.Millisecond, 200 * time.Millisecond}, []float64{200}
	if *curveFlag {
		nodes, rates = []int{2, 3, 5}, []float64{50, 200, 600}
		flushes = []time.Duration{10 * time.Millisecond, 50 * time.Millisecond,
			200 * time.Millisecond, time.Second}
	}
	table := tallyHead
	for _, n := range nodes {
		for _, flush := range flushes {
			c, sides := apart(t, n, flush)
			for _, rate := range rates {
				// First a limit that lasts a second and several flushes, so that the sides learn of
				// each other before it is used up; then one that is used up before they can.
				for _, lasts := range []float64{max(1, 5*flush.Seconds()), flush.Seconds() / 2} {
					key, limit := fmt.Sprint("k", rate, "-", lasts),
						max(5, int(float64(n)*rate*lasts))
					sides = again(sides)
					y := drive(t, sides, key, limit, rate, flush)
					y.check(t, c, key)
					table += "\n" + y.String()
				}
			}
			for _, s := range sides {
				s.node.Kill()
			}
		}
	}
	t.Log(table)
}

package mirror

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

const (
	defaultWaiting  = 1 << 16
	maxWaitingBytes = 64 << 20
	// maxBatch is the number of verdicts in one request to twotier.
	maxBatch = 1000
	// settling is how long a verdict waits for earlier ones that are still on their way. Several
	// processes and connections of an application deliver them in any order.
	settling = 100 * time.Millisecond
)

// queue holds verdicts until they are compared, in the order of their times.
type queue struct {
	max int

	mu    sync.Mutex
	list  []waiting
	bytes int64
}

// waiting is a verdict in the queue.
type waiting struct {
	Verdict

	arrived time.Time
}

func newQueue(most int) *queue { return &queue{max: most} }

// add queues a verdict unless too many wait.
func (q *queue) add(v *Verdict, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) >= q.max || q.bytes+v.Size() > maxWaitingBytes {
		return false
	}
	q.list = append(q.list, waiting{*v, now})
	q.bytes += v.Size()
	return true
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.list)
}

// take removes the next verdicts to compare: those that have arrived until some time, and all with
// an earlier time than one of them. At the same time, allowed events come before refused
// ones, because they are the reason of the refusal.
func (q *queue) take(until time.Time) []Verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	last, ready := int64(0), false
	for i := range q.list {
		if w := &q.list[i]; !w.arrived.After(until) {
			last, ready = max(last, w.At), true
		}
	}
	if !ready {
		return nil
	}
	slices.SortStableFunc(q.list, func(x, y waiting) int {
		return cmp.Or(cmp.Compare(x.At, y.At), compareAllowed(x.Allowed, y.Allowed))
	})
	var batch []Verdict
	for i := 0; i < len(q.list) && len(batch) < maxBatch && q.list[i].At <= last; i++ {
		batch = append(batch, q.list[i].Verdict)
		q.bytes -= q.list[i].Size()
	}
	q.list = slices.Delete(q.list, 0, len(batch))
	return batch
}

// compareAllowed orders allowed events before refused ones.
func compareAllowed(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return -1
	}
	return 1
}

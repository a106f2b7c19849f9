package verdicts

import (
	"context"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/request"
)

const (
	// interval is how often new counts are added to the history.
	interval = time.Second
	// recordTimeout bounds one such addition. Counts that take longer may be missing.
	recordTimeout = 2 * time.Second
	// maxBatch bounds the operations executed as one batch.
	maxBatch = 1000
)

// Node executes the additions of a [History], wherever in the cluster they belong.
type Node interface {
	// Record is syncer.Counter.DoAll for operations without a client.
	Record(ctx context.Context, ops []twotier.Op, res []twotier.Result)
}

// History counts verdicts as events of keys in the namespace [request.Verdicts], so that they are
// kept, flushed, evicted and read like any other count, for the whole cluster. In the middle of
// every second it adds the verdicts that [Counters] have counted since: at the end of a second, an
// addition that is late by a few milliseconds would leave one bucket empty and double the next.
//
// The key is NAMESPACE/VERDICT for limits without a rule, and NAMESPACE/VERDICT/RULE for a rule,
// such as sms/refused/receiver. The keys @all/VERDICT count every acquire once, by its overall
// verdict: refused if anything refused it, shadow_refused if only rules in shadow would have. There
// is no key @all/near, because an acquire near a limit is allowed.
//
// Missing are decisions within a second before a crash, apart from the counts that any crash loses;
// decisions of a node without others at the moment it stops; and additions of unknown outcome,
// because a node did not answer: nothing is counted twice.
type History struct {
	counters *Counters
	node     Node
	now      func() int64
	settled  map[entry]int64 // the part of each total that is in the history, or never will be
	opened   bool
	once     sync.Once
	stop     chan struct{}
	done     chan struct{}
}

// entry identifies a key of the history.
type entry struct {
	seriesName
	verdict twotier.Verdict
}

// key returns the key of an entry.
func (e entry) key() []byte {
	text := e.ns + "/" + e.verdict.String()
	if e.rule != "" {
		text += "/" + e.rule
	}
	return request.KeyOf([]byte(text))
}

// NewHistory returns a history of counters, kept by node. now is the node's clock in unix
// milliseconds.
func NewHistory(counters *Counters, node Node, now func() int64) *History {
	return &History{counters: counters, node: node, now: now, settled: map[entry]int64{},
		stop: make(chan struct{}), done: make(chan struct{})}
}

// Open starts to record, until Close is called.
func (h *History) Open() {
	h.opened = true
	go h.runRecord()
}

// runRecord records in the middle of every second.
func (h *History) runRecord() {
	defer close(h.done)
	timer := time.NewTimer(h.untilNext())
	defer timer.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-timer.C:
			h.Record()
			timer.Reset(h.untilNext())
		}
	}
}

// untilNext returns the time until the next middle of an interval.
func (h *History) untilNext() time.Duration {
	const length = int64(interval / time.Millisecond)
	return time.Duration(length-(h.now()+length/2)%length) * time.Millisecond
}

// Close stops recording, and records the remaining counts. It may be called again.
func (h *History) Close() {
	h.once.Do(func() { close(h.stop) })
	if h.opened {
		<-h.done
	}
	h.Record()
}

// Record adds the counts since its last call. Call it only before Open or after Close.
func (h *History) Record() {
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	for batch := range slices.Chunk(h.unrecordedCounts(), maxBatch) {
		h.add(ctx, batch)
	}
}

// addition is the amount to add to an entry.
type addition struct {
	entry
	n int64
}

// unrecordedCounts returns the counts that are not in the history yet.
func (h *History) unrecordedCounts() (list []addition) {
	note := func(e entry, total int64) {
		if n := min(total-h.settled[e], request.MaxN); n > 0 {
			list = append(list, addition{e, n})
		}
	}
	for v := range twotier.Verdict(twotier.VerdictCount) {
		note(entry{seriesName{All, ""}, v}, h.counters.whole[v].Load())
		for of, s := range *h.counters.all.Load() {
			total := int64(0)
			for d := range endpoints {
				total += s[d][v].Load()
			}
			note(entry{of, v}, total)
		}
	}
	return list
}

// add adds some entries to the history.
func (h *History) add(ctx context.Context, batch []addition) {
	ops, res := make([]twotier.Op, len(batch)), make([]twotier.Result, len(batch))
	for i, a := range batch {
		check := twotier.Check{NS: []byte(request.Verdicts), Key: a.key(), N: a.n}
		ops[i] = twotier.Op{Kind: twotier.Add, Ack: twotier.AckMemory,
			Checks: []twotier.Check{check}}
	}
	h.node.Record(ctx, ops, res)
	for i, a := range batch {
		h.recordOutcome(a, res[i].Err)
	}
}

// recordOutcome records the outcome of an addition. An addition that certainly failed is tried
// again.
func (h *History) recordOutcome(a addition, err error) {
	if err != nil {
		switch request.FailureOf(err, true).Kind {
		case request.Overload, request.Unavailable:
			return
		}
		if a.ns != All { // the series of the rules include these
			h.counters.unrecorded.Add(a.n)
		}
	}
	h.settled[a.entry] += a.n
}

// Reader reads counts.
type Reader interface {
	// DoAll executes operations and sets Err in each result.
	DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result)
}

// NeverAsked reports whether no request has asked for a rule within a day: the [History] has no
// verdict of the rule. It returns false if the history can't be read.
func NeverAsked(ctx context.Context, from Reader, r *twotier.Rule) bool {
	const day = int64(24 * time.Hour / time.Millisecond)
	ops := make([]twotier.Op, twotier.VerdictCount)
	res := make([]twotier.Result, twotier.VerdictCount)
	for v := range ops {
		e := entry{seriesName{r.Space(), r.Name}, twotier.Verdict(v)}
		ops[v] = twotier.Op{Kind: twotier.Count, Checks: []twotier.Check{{
			NS: []byte(request.Verdicts), Key: e.key(), Limits: []twotier.Limit{{Window: day}}}}}
	}
	from.DoAll(ctx, ops, res)
	for i := range res {
		if res[i].Err != nil || len(res[i].Checks) == 0 || len(res[i].Checks[0].Limits) == 0 ||
			res[i].Checks[0].Limits[0].Count > 0 {
			return false
		}
	}
	return true
}

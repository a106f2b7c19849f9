package verdicts

import (
	"context"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier/httpapi/rule"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/syncer"
)

const (
	// interval is how often what was counted is added to the history.
	interval = time.Second
	// recordTimeout bounds how long that may take. What takes longer may be missing.
	recordTimeout = 2 * time.Second
	// maxBatch bounds the operations that are executed as one batch.
	maxBatch = 1000
)

// Node executes what a [History] counts, wherever in the cluster it belongs.
type Node interface {
	// Record is syncer.Counter.DoAll for operations that no client asked for.
	Record(ctx context.Context, ops []syncer.Op, res []syncer.Result)
}

// History counts verdicts as events of keys in the namespace [request.Verdicts], so that they are
// kept, flushed, evicted and read like any other count, and are those of the whole cluster. Every
// second it adds what [Counters] have counted since.
//
// The key is NAMESPACE/VERDICT for limits that are of no rule, and NAMESPACE/VERDICT/RULE for those
// of a rule, such as sms/refused/receiver. The keys @all/VERDICT count every acquire once, by what
// it came to as a whole: refused if anything refused it, shadow_refused if only rules in shadow
// would have. What was decided within a second of a crash is missing,
// beside what the crash loses of any counts; so is what a node that has no other one beside it
// decides in the moment in which it stops; and so is what may or may not have been added because a
// node did not answer: nothing is counted twice.
type History struct {
	counters *Counters
	node     Node
	settled  map[entry]int64 // what of each total is in the history, or never will be
	opened   bool
	once     sync.Once
	stop     chan struct{}
	done     chan struct{}
}

// entry is what a key of the history counts.
type entry struct {
	name
	verdict rule.Verdict
}

// key returns the key of an entry.
func (e entry) key() []byte {
	text := e.ns + "/" + e.verdict.String()
	if e.rule != "" {
		text += "/" + e.rule
	}
	return request.KeyOf([]byte(text))
}

// NewHistory returns a history of what counters count, kept by node.
func NewHistory(counters *Counters, node Node) *History {
	return &History{counters: counters, node: node, settled: map[entry]int64{},
		stop: make(chan struct{}), done: make(chan struct{})}
}

// Open starts to record, until Close is called.
func (h *History) Open() {
	h.opened = true
	go h.runRecord()
}

// runRecord records every second.
func (h *History) runRecord() {
	defer close(h.done)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-ticker.C:
			h.Record()
		}
	}
}

// Close stops recording, and records what is left. It may be called again.
func (h *History) Close() {
	h.once.Do(func() { close(h.stop) })
	if h.opened {
		<-h.done
	}
	h.Record()
}

// Record adds what was counted since the last time. Call it only before Open or after Close.
func (h *History) Record() {
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	for batch := range slices.Chunk(h.news(), maxBatch) {
		h.add(ctx, batch)
	}
}

// addition is what is to be added to an entry.
type addition struct {
	entry
	n int64
}

// news returns what is not in the history yet.
func (h *History) news() (list []addition) {
	note := func(e entry, total int64) {
		if n := min(total-h.settled[e], request.MaxN); n > 0 {
			list = append(list, addition{e, n})
		}
	}
	for v := range rule.Verdict(rule.Verdicts) {
		note(entry{name{All, ""}, v}, h.counters.whole[v].Load())
		for of, s := range *h.counters.all.Load() {
			total := int64(0)
			for d := range doors {
				total += s[d][v].Load()
			}
			note(entry{of, v}, total)
		}
	}
	return list
}

// add adds some entries to the history.
func (h *History) add(ctx context.Context, batch []addition) {
	ops, res := make([]syncer.Op, len(batch)), make([]syncer.Result, len(batch))
	for i, a := range batch {
		check := syncer.Check{NS: []byte(request.Verdicts), Key: a.key(), N: a.n}
		ops[i] = syncer.Op{Kind: syncer.Add, Ack: syncer.AckMemory, Checks: []syncer.Check{check}}
	}
	h.node.Record(ctx, ops, res)
	for i, a := range batch {
		h.settle(a, res[i].Err)
	}
}

// settle notes what became of an addition. It is tried again if it was certainly not executed.
func (h *History) settle(a addition, err error) {
	if err != nil {
		switch request.FailureOf(err, true).Kind {
		case request.Overload, request.Unavailable:
			return
		}
		if a.ns != All { // those are counted by their rules, too
			h.counters.unrecorded.Add(a.n)
		}
	}
	h.settled[a.entry] += a.n
}

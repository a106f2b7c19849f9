package resp

import (
	"slices"
	"sync"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/request"
)

// shape is the form of the answer to an operation.
type shape uint8

const (
	shapeAcquire shape = iota
	shapeOK
	shapeCounts
	shapeBounds
	shapeThrottle
)

// form holds the data about an operation that the service does not need.
type form struct {
	shape shape
	first int // index of its first check in work.checks
	count int // number of its checks
}

// work is the memory for executing the commands of one read: operations that are executed as one
// batch, and answers that are sent together. All operations, checks and limits are in three slices
// that are reused, so that executing a command allocates nothing.
type work struct {
	ops     []twotier.Op
	forms   []form // parallel to ops
	checks  []twotier.Check
	starts  []int // parallel to checks: where the limits of each begin
	limits  []twotier.Limit
	ruled   []ruledLimit      // the limits that rules put there, in order
	bans    []twotier.BanRule // of rules that ban; Check is an index in checks until link
	naming  []*twotier.Rule   // the rules that the current check names
	rules   Rules             // resolves the names of rules; nil if there are none
	results []twotier.Result
	out     []byte
	context *request.Context
	grant   *twotier.Grant // nil allows everything
}

// The bounds of a work for a small buffer and of one for a large buffer, and the approximate size
// of the latter in bytes.
const (
	smallOps, largeOps     = 64, 512
	largeWork              = 640 << 10
	smallOutput, largeText = 8 << 10, 64 << 10
)

// workOf estimates how many bytes it takes to execute and answer that many bytes of commands. The
// shortest commands take the most: an operation, its check and its results are some three hundred
// bytes.
func workOf(received int) int64 { return 2<<10 + 14*int64(received) }

// leanOps is the number of operations up to which a work is always kept for the next use. Larger
// ones are dropped while much of the memory is in use: a kept work can be larger than the memory
// taken for its next use.
const leanOps = 16

// works pools unused works.
type works struct{ small, large sync.Pool }

func (p *works) get(large bool) *work {
	pool := &p.small
	if large {
		pool = &p.large
	}
	if w, ok := pool.Get().(*work); ok {
		return w
	}
	return &work{context: new(request.Context)}
}

func (p *works) put(w *work, large bool) {
	w.out, w.grant, w.rules = w.out[:0], nil, nil
	switch {
	case large:
		p.large.Put(w)
	case cap(w.out) <= 2*smallOutput && cap(w.limits) <= smallInput:
		p.small.Put(w)
	}
}

// most returns how many operations form one batch at most.
func most(large bool) int {
	if large {
		return largeOps
	}
	return smallOps
}

// clear drops the answered operations.
func (w *work) clear() { w.truncate(0, 0, 0) }

func (w *work) truncate(ops, checks, limits int) {
	w.ops, w.forms = w.ops[:ops], w.forms[:ops]
	w.checks, w.starts, w.limits = w.checks[:checks], w.starts[:checks], w.limits[:limits]
	for n := len(w.ruled); n > 0 && w.ruled[n-1].at >= limits; n-- {
		w.ruled = w.ruled[:n-1]
	}
	for n := len(w.bans); n > 0 && w.bans[n-1].Check >= checks; n-- {
		w.bans = w.bans[:n-1]
	}
}

// link points operations to their checks and checks to their limits, after the slices have stopped
// growing.
func (w *work) link() {
	end := len(w.limits)
	for i := len(w.checks) - 1; i >= 0; i-- {
		w.checks[i].Limits = w.limits[w.starts[i]:end:end]
		end = w.starts[i]
	}
	next := 0
	for i, f := range w.forms {
		end := f.first + f.count
		w.ops[i].Checks = w.checks[f.first:end:end]
		from := next
		for ; next < len(w.bans) && w.bans[next].Check < end; next++ {
			w.bans[next].Check -= f.first
		}
		w.ops[i].Rules = w.bans[from:next:next]
	}
}

// room returns a result for each operation, reusing memory.
func (w *work) room() []twotier.Result {
	n := len(w.ops)
	if n > cap(w.results) {
		w.results = slices.Grow(w.results[:cap(w.results)], n-cap(w.results))
		w.results = w.results[:cap(w.results)]
	}
	w.results = w.results[:cap(w.results)]
	for i := range w.results[:n] {
		w.results[i].Reset()
	}
	return w.results[:n]
}

// add adds an operation whose checks begin at first.
func (w *work) add(op twotier.Op, s shape, first int) {
	w.ops = append(w.ops, op)
	w.forms = append(w.forms, form{shape: s, first: first, count: len(w.checks) - first})
}

// answer appends the answer to operation i.
func (w *work) answer(i int, res *twotier.Result) {
	switch w.forms[i].shape {
	case shapeAcquire:
		w.out = w.appendAcquire(w.out, i, res)
	case shapeOK:
		w.out = append(w.out, "+OK\r\n"...)
	case shapeCounts:
		w.out = appendCounts(w.out, res)
	case shapeBounds:
		w.out = appendBounds(w.out, res)
	default:
		w.out = appendThrottle(w.out, &w.ops[i], res)
	}
}

// appendAcquire appends the answer to acquire i.
func (w *work) appendAcquire(b []byte, i int, res *twotier.Result) []byte {
	n := 2
	for j := range res.Checks {
		n += 2 * (len(res.Checks[j].Limits) - w.off(i, j))
	}
	b = appendArray(b, n)
	b = appendInt(b, truth(res.Allowed))
	b = appendInt(b, res.RetryAfter)
	for j := range res.Checks {
		for k := range res.Checks[j].Limits {
			l := &res.Checks[j].Limits[k]
			most := l.Max
			if r := w.ruleOf(i, j, k); r != nil {
				if r.Rule.State == twotier.RuleOff {
					continue
				}
				most = r.Max
			}
			b = appendInt(b, l.Count)
			b = appendInt(b, max(0, most-l.Count))
		}
	}
	return b
}

func appendCounts(b []byte, res *twotier.Result) []byte {
	limits := limitsOf(res)
	b = appendArray(b, len(limits))
	for k := range limits {
		b = appendInt(b, limits[k].Count)
	}
	return b
}

func appendBounds(b []byte, res *twotier.Result) []byte {
	limits := limitsOf(res)
	b = appendArray(b, 3*len(limits))
	for k := range limits {
		b = appendInt(b, limits[k].Count)
		b = appendInt(b, limits[k].Lo)
		b = appendInt(b, limits[k].Hi)
	}
	return b
}

// limitsOf returns the limits of the only check.
func limitsOf(res *twotier.Result) []twotier.LimitResult {
	if len(res.Checks) == 0 {
		return nil
	}
	return res.Checks[0].Limits
}

func truth(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

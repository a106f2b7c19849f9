package resp

import (
	"strings"
	"sync"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

// shape is the form of the answer to an operation.
type shape uint8

const (
	shapeAcquire shape = iota
	shapeOK
	shapeCounts
	shapeBounds
	shapeThrottle
	shapeValues
)

// work is the memory for executing the commands of one read: operations that are executed as one
// batch, tagged with the shapes of their answers, and answers that are sent together.
type work struct {
	ask.Request
	out     []byte
	figures []int64 // of the answer to an acquire
	context *request.Context
}

// The bounds of a work for a small buffer and of one for a large buffer, and the approximate size
// of the latter in bytes.
const (
	smallOps, largeOps     = 64, 512
	largeWork              = 640 << 10
	smallOutput, largeText = 8 << 10, 64 << 10
)

// workBytes estimates how many bytes it takes to execute and answer that many bytes of commands.
// The shortest commands take the most: an operation, its check and its results are some three
// hundred bytes.
func workBytes(received int) int64 { return 2<<10 + 14*int64(received) }

// leanOps is the number of operations up to which a work is always kept for the next use. Larger
// ones are dropped while much of the memory is in use: a kept work can be larger than the memory
// taken for its next use.
const leanOps = 16

// workPool pools unused works.
type workPool struct{ small, large sync.Pool }

func (p *workPool) get(large bool) *work {
	pool := &p.small
	if large {
		pool = &p.large
	}
	if w, ok := pool.Get().(*work); ok {
		return w
	}
	return &work{context: new(request.Context), Request: ask.Request{Words: ask.Words{
		NS: "NS", Limits: "LIMIT or RULE", Parts: "checks or commands"}}}
}

func (p *workPool) put(w *work, large bool) {
	w.out, w.Grant, w.Rules, w.Holds = w.out[:0], nil, nil, nil
	switch {
	case large:
		p.large.Put(w)
	case cap(w.out) <= 2*smallOutput && w.LimitCapacity() <= smallInput:
		p.small.Put(w)
	}
}

// maxBatchOps returns how many operations form one batch at most.
func maxBatchOps(large bool) int {
	if large {
		return largeOps
	}
	return smallOps
}

// parseOp adds the operation of a command to the batch. parsed is false if the command has none.
func (c *conn) parseOp(id command, args [][]byte) (parsed bool, e errorReply) {
	switch id {
	case cmdAcquire:
		return true, c.work.parse(twotier.Acquire, false, args)
	case cmdAdd:
		return true, c.work.parse(twotier.Add, false, args)
	case cmdCount:
		return true, c.work.parse(twotier.Count, false, args)
	case cmdThrottle:
		return true, c.work.parseThrottle(args)
	case cmdDistinct:
		return true, c.work.parse(0, true, args)
	}
	return false, ""
}

// parse adds an operation with these arguments, the name of the command first: one of that kind, or
// one about values alone.
func (w *work) parse(kind twotier.Kind, values bool, args [][]byte) errorReply {
	d := w.beginOp(args)
	d.op.Kind, d.values = kind, values
	e := d.readArgs()
	switch {
	case e != "":
	case values:
		e = d.endDistinct()
	default:
		e = d.endOp()
	}
	if e != "" {
		w.DropOp()
	}
	return e
}

// beginOp begins an operation, whose rules are resolved in one set.
func (w *work) beginOp(args [][]byte) draft {
	w.ForgetRules()
	w.BeginOp()
	return draft{w: w, args: args[1:]}
}

// appendAnswer appends the answer to operation i.
func (w *work) appendAnswer(i int, res *twotier.Result) {
	switch shape(w.Tag(i)) {
	case shapeAcquire:
		w.out = w.appendAcquire(w.out, i, res)
	case shapeOK:
		w.out = append(w.out, "+OK\r\n"...)
	case shapeCounts:
		w.out = appendCounts(w.out, limitsOf(res))
	case shapeBounds:
		w.out = appendBounds(w.out, res)
	case shapeValues:
		w.out = appendCounts(w.out, w.ValuesOf(i, 0, res).Counted)
	default:
		most := w.Ops[i].Checks[0].Limits[0].Max
		if l := w.ruleOf(i, 0, 0); l != nil { // in shadow
			most = l.Limit().Max
		}
		w.out = appendThrottle(w.out, &w.Ops[i], res, most)
	}
}

// appendAcquire appends the answer to acquire i: the limits of all checks, then their limits on
// values and the windows in which values are counted, then the open holds of each check that bounds
// it, and the id of the hold. Limits of rules that are off are left out.
func (w *work) appendAcquire(b []byte, i int, res *twotier.Result) []byte {
	f := append(w.figures[:0], boolInt(res.Allowed), res.RetryAfter)
	for j := range res.Checks {
		for k := range res.Checks[j].Limits {
			l := &res.Checks[j].Limits[k]
			most := l.Max
			if r := w.ruleOf(i, j, k); r != nil {
				if r.Rule.State == twotier.RuleOff {
					continue
				}
				most = r.Limit().Max
			}
			f = append(f, l.Count, max(0, most-l.Count))
		}
	}
	for k := range res.Values {
		v := w.ValuesOf(i, w.Ops[i].Values[k].Check, res)
		for _, l := range v.Judged {
			f = append(f, l.Count, max(0, l.Max-l.Count))
		}
		for _, l := range v.Counted {
			f = append(f, l.Count)
		}
	}
	for k := range res.Leases {
		l := &res.Leases[k]
		f = append(f, l.Open, max(0, l.Max-l.Open))
	}
	n, id := len(f), ""
	if w.Ops[i].Hold > 0 {
		if id = w.HoldID(i, res); id != "" {
			n++
		}
	}
	b = appendArray(b, n)
	for _, v := range f {
		b = appendInt(b, v)
	}
	if id != "" {
		b = appendBulk(b, id)
	}
	w.figures = f
	return b
}

// refusalOfValues returns the error for operation i if it adds values, default rules have refused
// them, and its answer has no verdict.
func (w *work) refusalOfValues(i int, res *twotier.Result) errorReply {
	if shape(w.Tag(i)) != shapeValues || w.Ops[i].Kind == twotier.Count || res.Allowed {
		return ""
	}
	v := w.ValuesOf(i, 0, res)
	if v.Result == nil { // another node's result may be short
		return ""
	}
	var by []string
	for _, k := range w.RefusingValues(i, 0, v) {
		by = append(by, string(w.AppendLimitName(nil, i, 0, k)))
	}
	return errorf(codeRefused, "by %s; nothing was added; retry_after_ms=%d",
		strings.Join(by, ", "), res.RetryAfter)
}

// ruleOf returns the rule and limit behind limit k of check j of operation i, or nil if there is
// none.
func (w *work) ruleOf(i, j, k int) *verdicts.Ruled {
	if !w.HasRules() {
		return nil
	}
	return w.RuleOf(i, j, k)
}

func appendCounts(b []byte, limits []twotier.LimitResult) []byte {
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

func boolInt(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

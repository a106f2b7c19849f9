package httpapi

import (
	"fmt"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/request"
)

// Bounds of a body, in bytes: of one operation, and of a batch or of several descriptors.
const (
	maxBody      = 64 << 10
	maxBatchBody = 1 << 20
)

// form records how a request spelled an operation. The answer has the same form, and errors name
// fields the same way.
type form struct {
	first  int  // index of its first check in decoder.checks
	count  int  // number of its checks
	checks bool // an acquire with "checks" rather than one key
}

// bad is an operation of a batch that can't be executed.
type bad struct {
	index   int
	problem *problem
}

// decoder turns a request into operations. All operations, checks and limits of a request are in
// three slices that are reused for the next request, so a decoder keeps no more than the size of a
// body allows.
type decoder struct {
	scanner
	ops     []twotier.Op
	forms   []form // parallel to ops
	checks  []twotier.Check
	starts  []int // parallel to checks: where the limits of each begin
	limits  []twotier.Limit
	texts   [][]byte          // parallel to limits: the window as the request spelled it
	named   []namedLimit      // the limits from rules, in order
	bans    []twotier.BanRule // of rules that ban; Check is an index in checks until link
	rules   Rules             // resolves the names of rules; nil if there are none
	inForce *twotier.RuleSet  // the rules of this request, once one is named
	naming  []*twotier.Rule   // the rules named by the current check
	values  []valueOp         // the operations of a batch on distinct values
	bads    []bad
	quiet   bool
	grant   *twotier.Grant // nil allows everything
	memory  *requestMemory // memory is reserved from here
	cost    int64          // bytes reserved so far
	answers int            // bytes that the answer may take, without bads
}

// reset prepares d for reading body.
func (d *decoder) reset(body []byte) {
	d.scanner.reset(body)
	d.ops, d.forms = d.ops[:0], d.forms[:0]
	d.bads, d.quiet = d.bads[:0], false
	clear(d.values)
	d.values = d.values[:0]
	d.cost, d.answers = 0, 0
	d.inForce, d.naming = nil, d.naming[:0]
	d.truncate(0, 0)
}

// truncate forgets all but the first checks and limits.
func (d *decoder) truncate(checks, limits int) {
	d.checks, d.starts = d.checks[:checks], d.starts[:checks]
	d.limits, d.texts = d.limits[:limits], d.texts[:limits]
	for n := len(d.named); n > 0 && d.named[n-1].at >= limits; n-- {
		d.named = d.named[:n-1]
	}
	for n := len(d.bans); n > 0 && d.bans[n-1].Check >= checks; n-- {
		d.bans = d.bans[:n-1]
	}
}

// link points operations to their checks and checks to their limits, once the slices have stopped
// growing.
func (d *decoder) link() {
	end := len(d.limits)
	for i := len(d.checks) - 1; i >= 0; i-- {
		d.checks[i].Limits = d.limits[d.starts[i]:end:end]
		end = d.starts[i]
	}
	for i, f := range d.forms {
		end := f.first + f.count
		d.ops[i].Checks = d.checks[f.first:end:end]
	}
	if len(d.bans) > 0 {
		d.linkBans()
	}
}

// windowText returns the window of a limit as the request spelled it.
func (d *decoder) windowText(op, check, limit int) []byte {
	return d.texts[d.starts[d.forms[op].first+check]+limit]
}

// single reads a body that is one operation of the given kind.
func (d *decoder) single(body []byte, kind twotier.Kind) *problem {
	d.reset(body)
	p := d.op(kind, false)
	if p == nil {
		p = d.end()
	}
	if p != nil {
		return d.malformedFirst(p)
	}
	d.link()
	return nil
}

// malformedFirst returns p, unless p refuses a field and the document is not JSON: then it returns
// the problem with the JSON.
func (d *decoder) malformedFirst(p *problem) *problem {
	if !p.ofField() {
		return p
	}
	d.pos = 0
	if worse := d.skip(0); worse != nil {
		return worse
	}
	if worse := d.end(); worse != nil {
		return worse
	}
	return p
}

// batch reads the body of a batch. Operations that are JSON but are refused end up in bads;
// anything else refuses the whole batch.
func (d *decoder) batch(body []byte) *problem {
	d.reset(body)
	p := d.batchObject()
	if p == nil {
		p = d.end()
	}
	if p != nil {
		return d.malformedFirst(p)
	}
	d.link()
	return nil
}

func (d *decoder) batchObject() *problem {
	if p := d.enter('{', "an object with ops"); p != nil {
		return p
	}
	var seenOps, seenQuiet bool
	for first := true; ; first = false {
		name, p := d.member(first)
		if p != nil {
			return p
		}
		if name == nil {
			break
		}
		switch {
		case string(name) == "ops" && !seenOps:
			seenOps = true
			p = d.batchOps()
		case string(name) == "quiet" && !seenQuiet:
			seenQuiet = true
			if d.quiet, p = d.boolean(); p != nil {
				p = p.in("quiet")
			}
		case string(name) == "ops" || string(name) == "quiet":
			p = refused(string(name), "given twice")
		default:
			p = refused(clip(name), "unknown field; want ops or quiet")
		}
		if p != nil {
			return p
		}
	}
	if !seenOps {
		return refused("ops", "missing; want a list of operations")
	}
	return nil
}

func (d *decoder) batchOps() *problem {
	if p := d.enter('[', "a list of operations"); p != nil {
		return p.in("ops")
	}
	for i := 0; ; i++ {
		more, p := d.element(i == 0)
		if p != nil || !more {
			return p
		}
		if i == request.MaxOps {
			return refused("ops", fmt.Sprintf("want at most %d operations", request.MaxOps))
		}
		if p := d.batchOp(i); p != nil {
			if p.kind == kindTooLarge {
				p.detail += fmt.Sprintf(": the first %d operations fit", i)
			}
			return p
		}
	}
}

// batchOp reads one operation of a batch, or skips it if it is refused.
func (d *decoder) batchOp(i int) *problem {
	start, checks, limits, values := d.pos, len(d.checks), len(d.limits), len(d.values)
	p := d.op(0, true)
	if p == nil && len(d.values) > values {
		d.values[values].index = i
	}
	if p == nil || !p.ofField() {
		return p
	}
	d.pos = start
	if p := d.skip(0); p != nil {
		return p
	}
	d.truncate(checks, limits)
	d.bads = append(d.bads, bad{i, p})
	return d.spend(costBad)
}

// limit appends one limit to the last check.
func (d *decoder) limit(ms, most int64, text []byte) {
	d.limits = append(d.limits, twotier.Limit{Window: ms, Max: most})
	d.texts = append(d.texts, text)
}

// ackOf parses the value of "ack".
func ackOf(b []byte) (twotier.Ack, *problem) {
	switch string(b) {
	case "memory":
		return twotier.AckMemory, nil
	case "redis":
		return twotier.AckStore, nil
	case "replica":
		return twotier.AckReplica, nil
	case "disk":
		return twotier.AckDisk, nil
	}
	return 0, refused("", `want "memory", "redis", "replica" or "disk", got "`+clip(b)+`"`)
}

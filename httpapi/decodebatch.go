package httpapi

import (
	"fmt"

	"twotier.dev/twotier/internal/request"
)

// bad is an operation of a batch that can't be executed.
type bad struct {
	index   int
	problem *problem
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
	d.Link()
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
	start, values := d.pos, len(d.values)
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
	d.DropOp()
	d.bads = append(d.bads, bad{i, p})
	return d.spend(costBad)
}

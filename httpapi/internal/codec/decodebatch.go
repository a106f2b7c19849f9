package codec

import (
	"fmt"

	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/request"
)

// badOp is an operation of a batch that can't be executed.
type badOp struct {
	index   int
	problem *wire.Problem
}

// DecodeBatch reads the body of a batch. It skips operations that are JSON but are refused, see
// Merge; anything else refuses the whole batch.
func (d *Decoder) DecodeBatch(body []byte) *wire.Problem {
	d.Reset(body)
	p := d.EndBody(d.readBatch())
	if p == nil {
		d.Link()
	}
	return p
}

func (d *Decoder) readBatch() *wire.Problem {
	var seenOps, seenQuiet bool
	p := d.ReadObject("an object with ops", func(name []byte) (p *wire.Problem) {
		switch {
		case string(name) == "ops" && !seenOps:
			seenOps = true
			return d.readBatchOps()
		case string(name) == "quiet" && !seenQuiet:
			seenQuiet = true
			if d.Quiet, p = d.ReadBool(); p != nil {
				return p.PrefixField("quiet")
			}
			return nil
		case string(name) == "ops" || string(name) == "quiet":
			return wire.FieldProblem(string(name), "given twice")
		}
		return wire.FieldProblem(request.Clip(name), "unknown field; want ops or quiet")
	})
	switch {
	case p != nil:
	case !seenOps:
		p = wire.FieldProblem("ops", "missing; want a list of operations")
	case d.Quiet && d.holds:
		p = wire.FieldProblem("quiet", "an operation has a hold, whose id is in the answer to it; "+
			"leave quiet out")
	}
	return p
}

func (d *Decoder) readBatchOps() *wire.Problem {
	if p := d.ReadBracket('[', "a list of operations"); p != nil {
		return p.PrefixField("ops")
	}
	for i := 0; ; i++ {
		more, p := d.NextElement(i == 0)
		if p != nil || !more {
			return p
		}
		if i == request.MaxOps {
			return wire.FieldProblem("ops",
				fmt.Sprintf("want at most %d operations", request.MaxOps))
		}
		if p := d.readBatchOp(i); p != nil {
			if p.Kind == wire.TooLarge {
				p.Detail += fmt.Sprintf(": the first %d operations fit", i)
			}
			return p
		}
	}
}

// readBatchOp reads one operation of a batch, or skips it if it is refused.
func (d *Decoder) readBatchOp(i int) *wire.Problem {
	start := d.Pos
	p := d.readOp(0, true)
	if p == nil || !p.IsOfField() {
		return p
	}
	d.Pos = start
	if p := d.Skip(0); p != nil {
		return p
	}
	d.DropOp()
	d.bads = append(d.bads, badOp{i, p})
	return d.reserve(costBad)
}

// Merged iterates over the operations of a batch in their order: refused ones, and the others.
type Merged struct {
	bads  []badOp
	index int // of the next one
	ops   int // number of the others returned so far
}

// Merge returns all operations of a batch, and their number.
func (d *Decoder) Merge() (m Merged, total int) {
	return Merged{bads: d.bads}, len(d.bads) + len(d.Ops)
}

// Next returns the problem of the next operation, or its index among the others.
func (m *Merged) Next() (wrong *wire.Problem, op int) {
	i := m.index
	m.index++
	if len(m.bads) > 0 && m.bads[0].index == i {
		wrong, m.bads = m.bads[0].problem, m.bads[1:]
	} else {
		op = m.ops
		m.ops++
	}
	return wrong, op
}

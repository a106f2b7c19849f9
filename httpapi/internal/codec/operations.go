package codec

import (
	"fmt"
	"strconv"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/fields"
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
	return d.end(d.readBatch())
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
	p := d.readOp(&draft{batch: true})
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

// DecodeRenew reads {"hold","for"}.
func DecodeRenew(d *Decoder) (id string, lasts int64, p *wire.Problem) {
	var seen fields.Set
	p = d.readFields("an object with hold and for", &seen, fields.OfRenew,
		renewHas, func(f fields.Set) (p *wire.Problem) {
			if f == fields.For {
				lasts, p = d.ReadDuration()
				return p
			}
			text, p := d.ReadText()
			id = string(text)
			return p
		})
	switch {
	case p != nil:
	case id == "":
		p = wire.FieldProblem("hold", "missing; want the id of a hold")
	case lasts == 0:
		p = wire.FieldProblem("for", "missing; "+request.WantWindow)
	}
	return id, lasts, p
}

// AppendSettled appends the answer to a settlement.
func AppendSettled(b []byte, a *ask.Settled) []byte {
	b = append(b, `{"settled":true`...)
	if a.Repeated {
		b = append(b, `,"repeated":true`...)
	}
	if a.Late {
		b = append(b, `,"late":true`...)
	}
	if len(a.Over) > 0 {
		b = append(b, `,"over":[`...)
		for _, name := range a.Over {
			b = wire.AppendString(wire.AppendComma(b), name)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// DecodeSettle reads {"hold","n"} or {"hold","checks"}.
func DecodeSettle(d *Decoder) (*ask.Settling, *wire.Problem) {
	q := &ask.Settling{}
	var seen fields.Set
	p := d.readFields("an object with hold and n, or hold and checks", &seen,
		fields.OfSettle, "settle has hold, n and checks",
		func(f fields.Set) (p *wire.Problem) {
			switch f {
			case fields.Hold:
				var id []byte
				id, p = d.ReadText()
				q.ID = string(id)
			case fields.N:
				q.All, p = d.ReadInteger()
			case fields.Checks:
				return d.ReadList("a list of checks", request.MaxChecks, "checks",
					func(int) *wire.Problem { return readSettledCheck(d, q) })
			}
			return p
		})
	switch {
	case p != nil:
		return nil, p
	case q.ID == "":
		return nil, wire.FieldProblem("hold", "missing; want the id of a hold")
	case (seen&fields.N == 0) == (seen&fields.Checks == 0):
		return nil, wire.FieldProblem("n", "want either n, for every check, or checks")
	case seen&fields.Checks != 0 && len(q.Checks) == 0:
		return nil, wire.FieldProblem("checks", "want at least one check")
	}
	return q, nil
}

// readSettledCheck reads {"ns","key","n"}.
func readSettledCheck(d *Decoder, q *ask.Settling) *wire.Problem {
	var c ask.SettledCheck
	var seen fields.Set
	p := d.readFields("an object with key and n", &seen, fields.OfSettledCheck,
		"want ns, key and n", func(f fields.Set) (p *wire.Problem) {
			switch f {
			case fields.NS:
				c.NS, p = d.ReadText()
			case fields.Key:
				c.Key, p = d.ReadText()
			case fields.N:
				c.N, p = d.ReadInteger()
			}
			return p
		})
	switch {
	case p != nil:
		return p
	case c.Key == nil:
		return wire.FieldProblem("key", "missing; "+request.WantKey)
	case seen&fields.N == 0:
		return wire.FieldProblem("n", "missing; "+request.WantAcquireN)
	}
	q.Checks = append(q.Checks, c)
	return nil
}

// finishDistinct makes the checks that need the whole operation on values, and adds it.
func (d *Decoder) finishDistinct(o *draft) *wire.Problem {
	adds, _ := d.ValuesInProgress()
	adding := o.seen & (fields.TS | fields.Ack | fields.Limits | fields.Rules)
	query := o.seen&(fields.Op|fields.Values) == fields.Op
	switch {
	case o.check.Key == nil:
		return wire.FieldProblem("key", "missing; "+request.WantKey)
	case !query && adds == 0:
		return wire.FieldProblem("values", "missing; want at least one value")
	case !query && o.seen&fields.At != 0:
		return wire.FieldProblem("at", "is for counting; values that are added have ts")
	case query && adding != 0:
		return wire.FieldProblem(adding.Name(), "is for values that are added; want values")
	}
	return d.EndDistinctOp(&o.op, &o.check)
}

// EndDistinctOp adds the operation on values that was read.
func (d *Decoder) EndDistinctOp(op *twotier.Op, c *twotier.Check) *wire.Problem {
	if f := d.EndDistinct(op, c, TagDistinct); f != nil {
		return wire.FromFailure(f)
	}
	if p := d.reserveValuesMemory(c); p != nil {
		return p
	}
	return d.ReserveMemory(op.Kind)
}

// readValues reads "values".
func (d *Decoder) readValues(into *[][]byte) *wire.Problem {
	return d.ReadList("a list of values", request.MaxValues, "values", func(int) *wire.Problem {
		v, p := d.ReadText()
		if p == nil && (len(v) == 0 || len(v) > request.MaxValueBytes) {
			p = wire.FieldProblem("", fmt.Sprintf("want 1 to %d bytes", request.MaxValueBytes))
		}
		*into = append(*into, v)
		return p
	})
}

// Upper bounds of the memory, in bytes, for an operation on values, for each value, and for each
// limit or window, whose rule is named twice in an answer.
const (
	costValueOp    = 3*384/2 + answerOp + answerRefusal
	costValue      = 64
	answerCounted  = answerLimit + 2*answerNamed
	costValueLimit = 3*160/2 + answerCounted
)

// reserveValuesMemory reserves the memory that the values of a check, which is the last one, use
// until their operation is answered.
func (d *Decoder) reserveValuesMemory(c *twotier.Check) *wire.Problem {
	values, limits := d.ValuesSize()
	d.Answers += answerOp + answerRefusal + limits*answerCounted + escaped*len(c.Key)
	return d.reserve(costValueOp + values*costValue + limits*costValueLimit + escaped*len(c.Key))
}

// appendDistinct appends the answer to operation i, which is about values alone.
func (e Encoder) appendDistinct(b []byte, i int, res *twotier.Result) []byte {
	b = append(wire.AppendKey(b, e.Ops[i].Checks[0].Key), ',')
	b = e.appendValues(b, i, 0, res, e.ValuesOf(i, 0, res))
	if e.Ops[i].Kind != twotier.Count {
		b = strconv.AppendBool(append(b, `,"over":`...), !res.Allowed)
		if !res.Allowed {
			b = e.appendRefusedBy(b, i, res)
			b = wire.AppendField(b, "retry_after_ms", res.RetryAfter)
			b = appendRefusal(b, e.RefusalOf(i))
		}
	}
	if e.Warns() {
		b = e.appendNear(b, i, res)
	}
	if e.IsRuled(i) {
		b = wire.AppendField(b, "rules_version", e.RulesVersion())
	}
	b = strconv.AppendBool(append(appendSource(b, res), `,"degraded":`...), res.Degraded)
	return append(b, '}')
}

// appendValues appends the "counts" of the values of check j.
func (e Encoder) appendValues(b []byte, i, j int, res *twotier.Result, v ask.Values) []byte {
	b = append(b, `"counts":[`...)
	b = e.appendLimits(b, i, j, res, v.First, v.Judged, judgedValues)
	b = e.appendLimits(b, i, j, res, v.First+len(v.Judged), v.Counted, countedValues)
	return append(b, ']')
}

// appendRule appends the fields that name a limit's rule. The rule of a request's limits in shadow
// has no name.
func appendRule(b []byte, r *twotier.Rule) []byte {
	if r.Name != "" {
		b = append(b, `,"rule":"`...)
		b = append(append(b, r.Name...), '"') // a name needs no escaping
	}
	if r.State == twotier.RuleShadow {
		b = append(b, `,"shadow":true`...)
	}
	return b
}

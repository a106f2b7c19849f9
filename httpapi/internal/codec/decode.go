package codec

import (
	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/request"
)

// Tags record how a request spelled an operation. The answer has the same form, and errors name
// fields the same way.
const (
	TagOne      uint8 = iota // one key
	TagChecks                // an acquire with "checks"
	TagDistinct              // the values of one key
)

// Decoder turns a request into operations.
type Decoder struct {
	wire.Scanner
	ask.Request
	// Quiet marks a batch that wants totals.
	Quiet bool
	holds bool // an operation has a hold
	// Memory is where memory for executing and answering is reserved; nil is unlimited. Cost is the
	// number of bytes reserved so far, Answers how many of them the answer may take.
	Memory  Memory
	Cost    int64
	Answers int

	bads []badOp
}

// Memory bounds the memory of requests.
type Memory interface {
	// Reserve reserves n bytes, or returns why there are not so many.
	Reserve(n int64) *wire.Problem
}

// Reset prepares d for reading body.
func (d *Decoder) Reset(body []byte) {
	d.Scanner.Reset(body)
	d.Request.Reset()
	d.bads, d.Quiet, d.holds = d.bads[:0], false, false
	d.Cost, d.Answers = 0, 0
}

// DecodeSingle reads a body that is one operation of the given kind.
func (d *Decoder) DecodeSingle(body []byte, kind twotier.Kind) *wire.Problem {
	d.Reset(body)
	return d.end(d.readOp(&draft{named: true, op: twotier.Op{Kind: kind}}))
}

// DecodeDistinct reads {"ns","key","values","ts","ack","limits","rules","window"}.
func (d *Decoder) DecodeDistinct(body []byte) *wire.Problem {
	d.Reset(body)
	return d.end(d.readOp(&draft{named: true, values: true}))
}

// end ends a body whose operations were read with problem p, or without one.
func (d *Decoder) end(p *wire.Problem) *wire.Problem {
	if p = d.EndBody(p); p == nil {
		d.Link()
	}
	return p
}

// EndBody ends a body that was read with problem p, or without one. If p refuses a field and the
// body is not JSON, EndBody returns the problem with the JSON.
func (d *Decoder) EndBody(p *wire.Problem) *wire.Problem {
	if p == nil {
		return d.ExpectEnd()
	}
	if !p.IsOfField() {
		return p
	}
	d.Pos = 0
	if worse := d.Skip(0); worse != nil {
		return worse
	}
	if worse := d.ExpectEnd(); worse != nil {
		return worse
	}
	return p
}

// draft is an operation while it is being read.
type draft struct {
	op     twotier.Op
	named  bool // op.Kind and values are known
	batch  bool // the operation names its kind itself
	values bool // it is one on distinct values, which is none of the kinds
	seen   fields.Set
	check  twotier.Check // the fields next to "op", unless there are "checks"
	tag    uint8
}

// fields returns the fields that the operation may have, and their list in error messages.
func (o *draft) fields() (allowed fields.Set, has string) {
	switch {
	case !o.named:
		return fields.OfCount | fields.OfAcquire | fields.OfDistinct,
			"want op and the fields of that operation"
	case o.values && o.batch:
		return fields.OfBatchDistinct, batchDistinctHas
	case o.values:
		return fields.OfDistinct, distinctHas
	case o.op.Kind == twotier.Add:
		return fields.OfAdd, addHas
	case o.op.Kind == twotier.Count:
		return fields.OfCount, countHas
	}
	return fields.OfAcquire, acquireHas
}

// readOp reads one operation: of the given kind or, in a batch, of the kind that its field "op"
// names.
func (d *Decoder) readOp(o *draft) *wire.Problem {
	d.BeginOp()
	from, want := d.Pos, "an object"
	if o.values {
		want = "an object with key and values"
	}
	if p := d.ReadBracket('{', want); p != nil {
		return p
	}
	o.check.N = 1
	for first := true; ; first = false {
		name, p := d.NextMember(first)
		if p != nil {
			return p
		}
		if name == nil {
			break
		}
		f := fields.Named(name)
		allowed, has := o.fields()
		if o.batch {
			allowed |= fields.Op
		}
		if f&allowed&^o.seen == 0 {
			return fieldProblem(f, allowed, name, has)
		}
		o.seen |= f
		known, own := o.values, d.LimitCount()
		if p := d.readOpValue(o, f); p != nil {
			return p.PrefixField(string(name))
		}
		switch {
		case o.values && !known: // "op" need not be the first field
			d.Pos = from
			d.DropOp()
			return d.readOp(&draft{named: true, batch: true, values: true})
		case o.values && f == fields.Window:
			d.MoveWindows(own)
		}
	}
	if o.values {
		return d.finishDistinct(o)
	}
	return d.finishOp(o)
}

// fieldProblem refuses a field that is not allowed, or that was seen before.
func fieldProblem(f, allowed fields.Set, name []byte, has string) *wire.Problem {
	if f&allowed == 0 {
		return unknownFieldProblem(name, has)
	}
	return wire.FieldProblem(string(name), "given twice")
}

func unknownFieldProblem(name []byte, has string) *wire.Problem {
	return wire.FieldProblem(request.Clip(name), "unknown field; "+has)
}

func (d *Decoder) readOpValue(o *draft, f fields.Set) (p *wire.Problem) {
	var b []byte
	switch f {
	case fields.Op:
		if b, p = d.ReadText(); p == nil && string(b) == "distinct" {
			o.values = true
		} else if p == nil {
			o.op.Kind, p = kindOf(b)
			o.named = p == nil
		}
	case fields.TS, fields.At:
		if o.op.TS, p = d.ReadInteger(); p == nil && !f.Allows(o.op.TS) {
			p = wire.FieldProblem("", f.Want())
		}
	case fields.Ack:
		if b, p = d.ReadText(); p == nil {
			o.op.Ack, p = ackOf(b)
		}
	case fields.Hold:
		o.op.Hold, p = d.ReadDuration()
	case fields.OnExpiry:
		if b, p = d.ReadText(); p == nil {
			var wrong string
			if o.op.Release, wrong = request.ParseOnExpiry(b); wrong != "" {
				p = wire.FieldProblem("", wrong)
			}
		}
	case fields.Checks:
		o.tag = TagChecks
		return d.readChecks()
	case fields.Window:
		return d.readWindows()
	default:
		if value := f.Value(&o.op); value != nil {
			*value, p = d.ReadBool()
			return p
		}
		return d.readCheckValue(&o.check, f)
	}
	return p
}

// finishOp makes the checks that need the whole operation, and adds the operation.
func (d *Decoder) finishOp(o *draft) *wire.Problem {
	if !o.named {
		return wire.FieldProblem("op", `missing; want "add", "count", "acquire" or "distinct"`)
	}
	allowed, has := o.fields()
	if extra := o.seen &^ allowed &^ fields.Op; extra != 0 {
		return unknownFieldProblem([]byte(extra.Name()), has)
	}
	if o.tag == TagChecks {
		if extra := o.seen & fields.OfCheck; extra != 0 {
			return wire.FieldProblem("checks", "want either checks or "+extra.Name()+", not both")
		}
	} else if p := d.AddCheck(&o.check, o.op.Kind); p != nil {
		return p
	}
	if d.HasValues() {
		if f := d.CheckValues(&o.op); f != nil {
			return wire.FromFailure(f)
		}
	}
	if d.NeedsHold(&o.op) {
		if f := d.CheckHold(&o.op); f != nil {
			return wire.FromFailure(f)
		}
		if o.op.Hold > 0 {
			d.holds = true
			if p := d.reserveHoldMemory(); p != nil {
				return p
			}
		}
	}
	d.EndOp(&o.op, o.tag)
	return d.ReserveMemory(o.op.Kind)
}

// readCheckValue reads the value of one field of a check.
func (d *Decoder) readCheckValue(c *twotier.Check, f fields.Set) (p *wire.Problem) {
	switch f {
	case fields.NS:
		if c.NS, p = d.ReadText(); p == nil && !request.ValidNS(c.NS) && !request.ImportedNS(c.NS) {
			p = wire.FieldProblem("", request.WantNS)
		}
	case fields.Key:
		if c.Key, p = d.ReadText(); p == nil && !request.ValidKey(c.Key) {
			p = wire.FieldProblem("", request.WantKey)
		}
	case fields.N:
		c.N, p = d.ReadInteger()
	case fields.Values:
		var values [][]byte
		p = d.readValues(&values)
		d.AddValues(values)
	case fields.Limits:
		p = d.ReadList("a list of limits", request.MaxLimits, "limits",
			func(int) *wire.Problem { return d.readLimit(false) })
	case fields.ValueLimits:
		p = d.ReadList("a list of limits", request.MaxValueLimits, "limits",
			func(int) *wire.Problem { return d.readLimit(true) })
	case fields.Rules:
		p = d.readRules()
	}
	return p
}

// AddCheck adds a decoded check if it has everything that its operation needs, and if there is
// memory for the limits of its rules: a short name can stand for many.
func (d *Decoder) AddCheck(c *twotier.Check, kind twotier.Kind) *wire.Problem {
	limits, bans, f := d.PrepareCheck(c, kind)
	if f != nil {
		return wire.FromFailure(f)
	}
	if d.Shadow != nil && d.IsInShadow(c, kind) {
		limits += d.LimitCount()
	}
	if limits > 0 {
		if p := d.reserveRulesMemory(limits, bans); p != nil {
			return p
		}
	}
	d.EndCheck(c, kind)
	if d.HasValues() {
		if values, _ := d.ValuesInProgress(); values > 0 {
			return d.reserveValuesMemory(c)
		}
	}
	return nil
}

// Upper bounds of the memory, in bytes, for operations, their results and their answers. Slices
// that grow have up to half as much again as they need; numbers in JSON have up to 20 characters.
const (
	answerOp    = 128
	answerCheck = 128
	answerLimit = 224 // six figures, their names and a window
	costOp      = 3*(128+24+136)/2 + answerOp
	costCheck   = 3*(112+8+48)/2 + answerCheck
	costLimit   = 3*(24+24+64)/2 + answerLimit
	costNamed   = 3*56/2 + answerNamed
	costBad     = 1 << 10
	// A rule that bans adds a check, its limit, its names and their results.
	costBan   = 2*(96+48+384) + 224 + answerBan
	answerBan = 384 // its path, the name of the rule, and the key
	// A lease adds a check with its limit, its names and their results, and a limit to the answer.
	costLease   = 2*(112+24+48+64+40+56+96) + answerLease
	answerLease = 384 // four figures, and twice the name of its rule
	answerNamed = 128 // the name of a rule, that it is one, and the version
	// answerRefusal is the id of a refusal.
	answerRefusal = 96
	// escaped is how many bytes one byte of a key can take in an answer.
	escaped = 6
)

// ReserveMemory reserves the memory that the operation in progress, which is of this kind, uses
// until it is answered.
func (d *Decoder) ReserveMemory(kind twotier.Kind) *wire.Problem {
	checks, id := d.CheckCount(), 0
	if kind == twotier.Acquire {
		id = answerRefusal
	}
	keys, limits := d.OpSize()
	d.Answers += answerOp + id + checks*answerCheck + limits*answerLimit + escaped*keys
	return d.reserve(costOp + id + checks*costCheck + limits*costLimit + escaped*keys)
}

// reserveHoldMemory reserves the memory that the hold of the operation in progress uses in
// addition: its id, which is copied to the answer, and its leases.
func (d *Decoder) reserveHoldMemory() *wire.Problem {
	id, leases := d.HoldSize()
	d.Answers += id + leases*answerLease
	return d.reserve(2*id + leases*costLease)
}

// reserveRulesMemory reserves the memory that so many limits of rules use in addition, and so many
// rules that ban.
func (d *Decoder) reserveRulesMemory(limits, bans int) *wire.Problem {
	d.Answers += limits*answerNamed + bans*answerBan
	return d.reserve(limits*costNamed + bans*costBan)
}

// reserve reserves n bytes for the request that is being read.
func (d *Decoder) reserve(n int) *wire.Problem {
	if d.Memory != nil {
		if p := d.Memory.Reserve(int64(n)); p != nil {
			return p
		}
	}
	d.Cost += int64(n)
	return nil
}

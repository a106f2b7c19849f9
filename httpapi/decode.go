package httpapi

import (
	"math/bits"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/request"
)

// Bounds of a body, in bytes: of one operation, and of a batch or of several descriptors.
const (
	maxBody      = 64 << 10
	maxBatchBody = 1 << 20
)

// Tags record how a request spelled an operation. The answer has the same form, and errors name
// fields the same way.
const (
	tagOne    uint8 = iota // one key
	tagChecks              // an acquire with "checks"
)

// decoder turns a request into operations.
type decoder struct {
	scanner
	ask.Request
	values  []valueOp // the operations of a batch on distinct values
	bads    []bad
	quiet   bool
	memory  *requestMemory // memory is reserved from here
	cost    int64          // bytes reserved so far
	answers int            // bytes that the answer may take, without bads
}

// reset prepares d for reading body.
func (d *decoder) reset(body []byte) {
	d.scanner.reset(body)
	d.Request.Reset()
	d.bads, d.quiet = d.bads[:0], false
	clear(d.values)
	d.values = d.values[:0]
	d.cost, d.answers = 0, 0
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
	d.Link()
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

// fields is a set of fields of an operation.
type fields uint16

// The fields that operations have.
const (
	fieldOp fields = 1 << iota
	fieldNS
	fieldKey
	fieldN
	fieldTS
	fieldAck
	fieldLimits
	fieldRules
	fieldChecks
	fieldCountDenied
	fieldWindow
	fieldAt
	fieldDryRun
	fieldValues
)

// fieldNames are the names of the fields in the order of their bits.
var fieldNames = [...]string{"op", "ns", "key", "n", "ts", "ack", "limits", "rules",
	"checks", "count_denied", "window", "at", "dry_run", "values"}

// ofCheck is the set of fields that make up a check.
const ofCheck = fieldNS | fieldKey | fieldN | fieldLimits | fieldRules

// fieldOf returns the field of that name, or 0 if there is none.
func fieldOf(name []byte) fields {
	switch string(name) {
	case "op":
		return fieldOp
	case "ns":
		return fieldNS
	case "key":
		return fieldKey
	case "n":
		return fieldN
	case "ts":
		return fieldTS
	case "ack":
		return fieldAck
	case "limits":
		return fieldLimits
	case "rules":
		return fieldRules
	case "checks":
		return fieldChecks
	case "count_denied":
		return fieldCountDenied
	case "window":
		return fieldWindow
	case "at":
		return fieldAt
	case "dry_run":
		return fieldDryRun
	case "values":
		return fieldValues
	}
	return 0
}

// fieldsOf returns the fields that operations of a kind have, and their names for error messages.
func fieldsOf(kind twotier.Kind, named bool) (fields, string) {
	switch {
	case named && kind == twotier.Add:
		return ofCheck | fieldTS | fieldAck, "add has ns, key, n, ts, ack, limits and rules"
	case named && kind == twotier.Count:
		return fieldNS | fieldKey | fieldWindow | fieldAt, "count has ns, key, window and at"
	case named:
		return ofCheck | fieldTS | fieldAck | fieldChecks | fieldCountDenied | fieldDryRun,
			"acquire has ns, key, n, ts, ack, limits, rules, checks, count_denied and dry_run"
	}
	return 1<<len(fieldNames) - 1, "want op and the fields of that operation"
}

// draft is an operation while it is being read.
type draft struct {
	op     twotier.Op
	named  bool // op.Kind is known
	batch  bool // the operation names its kind itself
	values bool // it is one on distinct values, which is none of the kinds
	seen   fields
	check  twotier.Check // the fields next to "op", unless there are "checks"
	tag    uint8
}

// op reads one operation: of the given kind or, in a batch, of the kind that its field "op" names.
func (d *decoder) op(kind twotier.Kind, batch bool) *problem {
	d.BeginOp()
	from := d.pos
	if p := d.enter('{', "an object"); p != nil {
		return p
	}
	o := draft{named: !batch, batch: batch, op: twotier.Op{Kind: kind}}
	o.check.N = 1
	for first := true; ; first = false {
		name, p := d.member(first)
		if p != nil {
			return p
		}
		if name == nil {
			break
		}
		f := fieldOf(name)
		allowed, has := fieldsOf(o.op.Kind, o.named)
		if batch {
			allowed |= fieldOp
		}
		if p := once(&o.seen, f, allowed, name, has); p != nil {
			return p
		}
		if p := d.opValue(&o, f); p != nil {
			return p.in(string(name))
		}
		if o.values { // "op" need not be the first field
			d.pos = from
			d.DropOp()
			return d.distinctOp()
		}
	}
	return d.finish(&o)
}

// once records that a field was seen, and refuses one that is not allowed or was seen before.
func once(seen *fields, f, allowed fields, name []byte, has string) *problem {
	if f&allowed == 0 {
		return unknown(name, has)
	}
	if *seen&f != 0 {
		return refused(string(name), "given twice")
	}
	*seen |= f
	return nil
}

func unknown(name []byte, has string) *problem {
	return refused(clip(name), "unknown field; "+has)
}

func (d *decoder) opValue(o *draft, f fields) (p *problem) {
	var b []byte
	switch f {
	case fieldOp:
		if b, p = d.text(); p == nil && string(b) == "distinct" {
			o.values = true
		} else if p == nil {
			o.op.Kind, p = kindOf(b)
			o.named = p == nil
		}
	case fieldValues: // of an operation whose kind is not known yet
		return d.skip(0)
	case fieldTS, fieldAt:
		if o.op.TS, p = d.integer(); p == nil && o.op.TS < 1 {
			p = refused("", "want unix milliseconds, at least 1")
		}
	case fieldAck:
		if b, p = d.text(); p == nil {
			o.op.Ack, p = ackOf(b)
		}
	case fieldCountDenied:
		o.op.CountDenied, p = d.boolean()
	case fieldDryRun:
		o.op.DryRun, p = d.boolean()
	case fieldChecks:
		o.tag = tagChecks
		return d.checkList()
	case fieldWindow:
		return d.windows()
	default:
		return d.checkValue(&o.check, f)
	}
	return p
}

func kindOf(b []byte) (twotier.Kind, *problem) {
	switch string(b) {
	case "add":
		return twotier.Add, nil
	case "count":
		return twotier.Count, nil
	case "acquire":
		return twotier.Acquire, nil
	}
	return 0, refused("", `want "add", "count", "acquire" or "distinct", got "`+clip(b)+`"`)
}

// finish makes the checks that need the whole operation, and adds the operation.
func (d *decoder) finish(o *draft) *problem {
	if !o.named {
		return refused("op", `missing; want "add", "count", "acquire" or "distinct"`)
	}
	allowed, has := fieldsOf(o.op.Kind, true)
	if extra := o.seen &^ allowed &^ fieldOp; extra != 0 {
		return unknown([]byte(extra.name()), has)
	}
	if o.tag == tagChecks {
		if extra := o.seen & ofCheck; extra != 0 {
			return refused("checks", "want either checks or "+extra.name()+", not both")
		}
	} else if p := d.addCheck(&o.check, o.op.Kind); p != nil {
		return p
	}
	d.EndOp(o.op, o.tag)
	return d.account()
}

// name returns the name of the first field in the set.
func (f fields) name() string { return fieldNames[bits.TrailingZeros16(uint16(f))] }

// checkValue reads the value of one field of a check.
func (d *decoder) checkValue(c *twotier.Check, f fields) (p *problem) {
	switch f {
	case fieldNS:
		if c.NS, p = d.text(); p == nil && !request.ValidNS(c.NS) {
			p = refused("", request.WantNS)
		}
	case fieldKey:
		if c.Key, p = d.text(); p == nil && !request.ValidKey(c.Key) {
			p = refused("", request.WantKey)
		}
	case fieldN:
		c.N, p = d.integer()
	case fieldLimits:
		p = d.limitList()
	case fieldRules:
		p = d.ruleList()
	}
	return p
}

// addCheck adds a decoded check if it has everything that its operation needs.
func (d *decoder) addCheck(c *twotier.Check, kind twotier.Kind) *problem {
	rules, bans := d.RuledCount(), d.BanCount()
	if f := d.EndCheck(c, kind); f != nil {
		return problemFrom(f)
	}
	if d.RuledCount() > rules {
		return d.accountRules(d.RuledCount()-rules, d.BanCount()-bans)
	}
	return nil
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

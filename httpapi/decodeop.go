package httpapi

import (
	"math/bits"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/request"
)

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
	form   form
}

// op reads one operation: of the given kind or, in a batch, of the kind that its field "op" names.
func (d *decoder) op(kind twotier.Kind, batch bool) *problem {
	from := d.pos
	if p := d.enter('{', "an object"); p != nil {
		return p
	}
	o := draft{named: !batch, batch: batch, op: twotier.Op{Kind: kind},
		form: form{first: len(d.checks)}}
	o.check.N = 1
	start := len(d.limits)
	d.naming = d.naming[:0]
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
			d.truncate(o.form.first, start)
			return d.distinctOp()
		}
	}
	return d.finish(&o, start)
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
		o.form.checks = true
		return d.checkList(o.form.first)
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

// finish makes the checks that need the whole operation, whose limits begin at start, and adds the
// operation.
func (d *decoder) finish(o *draft, start int) *problem {
	if !o.named {
		return refused("op", `missing; want "add", "count", "acquire" or "distinct"`)
	}
	allowed, has := fieldsOf(o.op.Kind, true)
	if extra := o.seen &^ allowed &^ fieldOp; extra != 0 {
		return unknown([]byte(extra.name()), has)
	}
	if o.form.checks {
		if extra := o.seen & ofCheck; extra != 0 {
			return refused("checks", "want either checks or "+extra.name()+", not both")
		}
	} else {
		if p := d.addCheck(&o.check, o.op.Kind, start); p != nil {
			return p
		}
	}
	o.form.count = len(d.checks) - o.form.first
	d.ops = append(d.ops, o.op)
	d.forms = append(d.forms, o.form)
	return d.account(d.checks[o.form.first:], len(d.limits)-start)
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

// addCheck adds a decoded check, whose limits begin at start, if it has everything that its
// operation needs.
func (d *decoder) addCheck(c *twotier.Check, kind twotier.Kind, start int) *problem {
	if len(d.naming) > 0 || kind == twotier.Acquire && len(d.limits) == start {
		if p := d.addRules(c, kind, start); p != nil {
			return p
		}
	}
	if d.grant != nil {
		if p := forbidden(d.grant, roleOf(kind), c.NS); p != nil {
			return p
		}
	}
	switch {
	case c.Key == nil:
		return refused("key", "missing; "+request.WantKey)
	case kind == twotier.Add && (c.N == 0 || c.N > request.MaxN || c.N < -request.MaxN):
		return refused("n", request.WantAddN)
	case kind == twotier.Acquire && (c.N < 1 || c.N > request.MaxN):
		return refused("n", request.WantN)
	case kind == twotier.Acquire && len(d.limits) == start:
		return refused("limits", "missing; want at least one limit, or rules")
	case kind == twotier.Count && len(d.limits) == start:
		return refused("window", "missing; "+request.WantWindow)
	}
	d.checks = append(d.checks, *c)
	d.starts = append(d.starts, start)
	return nil
}

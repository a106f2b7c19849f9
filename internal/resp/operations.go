package resp

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/request"
)

// givenTwice is the error detail of an option given more than once.
const givenTwice = "given twice"

// draft is an operation while its arguments are read.
type draft struct {
	w       *work
	args    [][]byte // not read yet
	op      twotier.Op
	check   twotier.Check
	several bool // errors name the check
	values  bool // the operation is about different values alone
	seen    fields.Set
	bounds  bool
}

// shape returns the form of the answer.
func (d *draft) shape() shape {
	switch {
	case d.op.Kind == twotier.Add:
		return shapeOK
	case d.op.Kind == twotier.Acquire:
		return shapeAcquire
	case d.bounds:
		return shapeBounds
	}
	return shapeCounts
}

// readArgs reads the arguments: a key, its windows and its options.
func (d *draft) readArgs() errorReply {
	if e := d.readKey(); e != "" {
		return e
	}
	if d.op.Kind == twotier.Count {
		if e := d.readWindows(); e != "" {
			return e
		}
	}
	for len(d.args) > 0 {
		word := d.args[0]
		o := optionOf(word)
		switch {
		case d.values && len(d.args) < 2:
			return fieldError(request.Clip(word), "its value is missing")
		case o&d.options() == 0:
			return d.unknownOption(word)
		}
		d.args = d.args[1:]
		if e := d.readOption(o); e != "" {
			return e
		}
	}
	return ""
}

// endOp adds the operation that has been read.
func (d *draft) endOp() errorReply {
	if e := d.endCheck(); e != "" {
		return e
	}
	if f := d.w.CheckValues(&d.op); f != nil {
		return d.failureError(f)
	}
	if d.w.NeedsHold(&d.op) {
		if f := d.w.CheckHold(&d.op); f != nil {
			return d.failureError(f)
		}
	}
	d.w.EndOp(&d.op, uint8(d.shape()))
	return ""
}

// options returns the options of the command.
func (d *draft) options() fields.Set {
	switch {
	case d.values:
		return fields.OptionsOfDistinct
	case d.op.Kind == twotier.Add:
		return fields.OptionsOfAdd
	case d.op.Kind == twotier.Count:
		return fields.OptionsOfCount
	}
	return fields.OptionsOfAcquire
}

// unknownOption returns the error for a word that is no option of the command.
func (d *draft) unknownOption(word []byte) errorReply {
	want := d.options().Words()
	switch {
	case d.values:
		want = "NS, TS, VALUES, LIMIT, RULE or WINDOW"
	case d.op.Kind == twotier.Count:
		want = "a window, " + want
	}
	return fieldError(request.Clip(word), "unknown option; want "+want)
}

// readOption reads the values that follow an option.
func (d *draft) readOption(o fields.Set) errorReply {
	switch o {
	case fields.Limits, fields.ValueLimits:
		return d.readLimit(o)
	case fields.Window:
		return d.readValueWindows()
	case fields.Checks:
		return d.nextCheck()
	case fields.Rules:
		return d.readRule()
	}
	if d.seen&o != 0 {
		return fieldError(o.Name(), givenTwice)
	}
	d.seen |= o
	if value := o.Value(&d.op); value != nil {
		*value = true
		return ""
	}
	if o == fields.Bounds {
		d.bounds = true
		return ""
	}
	if len(d.args) == 0 {
		return fieldError(o.Name(), "its value is missing")
	}
	value := d.args[0]
	d.args = d.args[1:]
	return d.readValue(o, value)
}

// readValue reads the value of an option.
func (d *draft) readValue(o fields.Set, value []byte) errorReply {
	switch o {
	case fields.NS:
		if d.check.NS = value; !request.ValidNS(value) &&
			(d.op.Kind != twotier.Count || !request.ReadableNS(value)) {
			return d.fieldError("ns", request.WantNS)
		}
	case fields.N:
		n, ok := parseInteger(value)
		if d.check.N = n; !ok {
			return d.fieldError("n", wantN(d.op.Kind))
		}
	case fields.TS, fields.At:
		ts, ok := parseInteger(value)
		if d.op.TS = ts; !ok || !o.Allows(ts) {
			return fieldError(o.Name(), o.Want())
		}
	case fields.Ack:
		ack, ok := ackOf(value)
		if d.op.Ack = ack; !ok {
			return fieldError("ack",
				"want memory, redis, replica or disk, got "+request.Clip(value))
		}
	case fields.Hold:
		ms, wrong := request.ParseWindow(value)
		if d.op.Hold = ms; wrong != "" {
			return fieldError("hold", wrong)
		}
	case fields.OnExpiry:
		release, wrong := request.ParseOnExpiry(bytes.ToLower(value))
		if d.op.Release = release; wrong != "" {
			return fieldError(o.Name(), wrong)
		}
	case fields.Concurrent:
		n, ok := parseInteger(value)
		if !ok || !o.Allows(n) {
			return d.fieldError(o.Name(), o.Want())
		}
		d.w.LimitLeases(n)
	case fields.Values:
		values, e := d.readValues(value)
		d.w.AddValues(values)
		return e
	}
	return ""
}

func wantN(kind twotier.Kind) string {
	if kind == twotier.Add {
		return request.WantAddN
	}
	return request.WantAcquireN
}

func ackOf(word []byte) (twotier.Ack, bool) {
	var b [len("REPLICA")]byte
	if len(word) > len(b) {
		return 0, false
	}
	switch string(upper(b[:0], word)) {
	case "MEMORY":
		return twotier.AckMemory, true
	case "REDIS":
		return twotier.AckStore, true
	case "REPLICA":
		return twotier.AckReplica, true
	case "DISK":
		return twotier.AckDisk, true
	}
	return 0, false
}

// readKey reads the key that begins a check.
func (d *draft) readKey() errorReply {
	d.check = twotier.Check{N: 1}
	if len(d.args) == 0 {
		return d.fieldError("key", "missing; "+request.WantKey)
	}
	if d.check.Key = d.args[0]; !request.ValidKey(d.check.Key) {
		return d.fieldError("key", request.WantKey)
	}
	d.args = d.args[1:]
	return ""
}

// nextCheck ends the check and reads the key of the next.
func (d *draft) nextCheck() errorReply {
	d.several = true
	if e := d.endCheck(); e != "" {
		return e
	}
	if d.w.CheckCount() == request.MaxChecks {
		return fieldError("checks", fmt.Sprintf("want at most %d checks", request.MaxChecks))
	}
	d.w.BeginCheck()
	d.seen &^= fields.NS | fields.N | fields.Concurrent | fields.Values
	return d.readKey()
}

// readLimit reads a window and its maximum, of events or of values.
func (d *draft) readLimit(o fields.Set) errorReply {
	values, own := o == fields.ValueLimits, d.w.LimitCount()
	if values {
		_, own = d.w.ValuesInProgress()
	} else if own == request.MaxLimits {
		return d.fieldError("limits", fmt.Sprintf("want at most %d limits", request.MaxLimits))
	}
	fail := func(field, detail string) errorReply {
		return d.fieldError(fmt.Sprintf("%s[%d].%s", o.Name(), own, field), detail)
	}
	if len(d.args) < 2 {
		return fail("window", "want "+o.Words()+", a window and a maximum")
	}
	limit, wrong := parseWindow(d.args[0], values)
	if wrong != "" {
		return fail("window", wrong)
	}
	most, ok := parseInteger(d.args[1])
	if !ok || !fields.Max.Allows(most) {
		return fail("max", fields.Max.Want())
	}
	d.args = d.args[2:]
	if limit.Max = most; values {
		d.w.LimitValues(limit, nil)
	} else {
		d.w.AddLimit(limit, nil)
	}
	return ""
}

// parseWindow parses a window of events or of values.
func parseWindow(text []byte, values bool) (l twotier.Limit, wrong string) {
	if !values {
		return request.ParseLimitWindow(text)
	}
	l.Window, wrong = request.ParseWindow(text)
	return l, wrong
}

// readWindows reads the windows of a count, which precede its options, or those in which values are
// counted, which come last.
func (d *draft) readWindows() errorReply {
	for i := 0; len(d.args) > 0 && (d.values || optionOf(d.args[0]) == 0); i++ {
		limit, wrong := parseWindow(d.args[0], d.values)
		switch {
		case wrong != "":
			return fieldError("window", wrong)
		case i == request.MaxWindows:
			return fieldError("window", fmt.Sprintf("want at most %d windows", request.MaxWindows))
		}
		d.args = d.args[1:]
		d.w.AddLimit(limit, nil)
	}
	return ""
}

// readValueWindows reads the windows in which values are counted.
func (d *draft) readValueWindows() errorReply {
	own := d.w.LimitCount()
	e := d.readWindows()
	d.w.MoveWindows(own)
	return e
}

// maxRuled bounds the limits that rules add to one command: a short name can stand for many.
const maxRuled = 64

// readRule reads the name of a rule.
func (d *draft) readRule() errorReply {
	if len(d.args) == 0 {
		return d.fieldError("rules", "want RULE and a name")
	}
	name := d.args[0]
	d.args = d.args[1:]
	return d.failureError(d.w.AddNamedRule(name))
}

// endCheck adds the check that has been read, if it has everything its operation needs.
func (d *draft) endCheck() errorReply {
	limits, _, f := d.w.PrepareCheck(&d.check, d.op.Kind)
	if f != nil {
		return d.failureError(f)
	}
	if d.w.OpRuledCount()+limits > maxRuled {
		return d.fieldError("rules", fmt.Sprintf("they have more than %d limits in one command",
			maxRuled))
	}
	d.w.EndCheck(&d.check, d.op.Kind)
	return ""
}

// failureError returns the error for a failure of the check; nil is no error. Options have no
// indexes.
func (d *draft) failureError(f *request.Failure) errorReply {
	switch {
	case f == nil:
		return ""
	case f.Kind != request.Invalid:
		return errorOfFailure(f)
	}
	field, _, _ := strings.Cut(f.Field, "[")
	return d.fieldError(cmp.Or(field, "rules"), f.Detail)
}

// fieldError returns the error for a field of the check.
func (d *draft) fieldError(field, detail string) errorReply {
	if d.several {
		field = fmt.Sprintf("checks[%d].%s", d.w.CheckCount(), field)
	}
	return fieldError(field, detail)
}

// endDistinct adds the command that has been read, unless it has nothing to do. If it has LIMIT or
// RULE, its answer carries their verdict.
func (d *draft) endDistinct() errorReply {
	form := shapeValues
	adds, windows := d.w.ValuesInProgress()
	if d.w.LimitCount() > 0 || d.w.NamesRules() {
		form = shapeAcquire
	}
	switch {
	case adds == 0 && form == shapeAcquire:
		return fieldError("values", "missing; limits and rules judge what is added")
	case adds == 0 && windows == 0:
		return fieldError("values", "missing; want VALUES, WINDOW or both")
	}
	if f := d.w.EndDistinct(&d.op, &d.check, uint8(form)); f != nil {
		return errorOfFailure(f)
	}
	return ""
}

// readValues reads so many values.
func (d *draft) readValues(count []byte) ([][]byte, errorReply) {
	n, ok := parseInteger(count)
	if !ok || n < 1 || n > request.MaxValues || n > int64(len(d.args)) {
		return nil, d.fieldError("values", fmt.Sprintf("want their number, 1 to %d, and so many "+
			"values", request.MaxValues))
	}
	values := slices.Clone(d.args[:n]) // the next command has the list of arguments
	d.args = d.args[n:]
	for i, v := range values {
		if len(v) == 0 || len(v) > request.MaxValueBytes {
			return nil, d.fieldError(fmt.Sprintf("values[%d]", i), fmt.Sprintf(
				"want 1 to %d bytes", request.MaxValueBytes))
		}
	}
	return values, ""
}

package resp

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/request"
)

// draft is an operation while its arguments are read.
type draft struct {
	w       *work
	args    [][]byte // not read yet
	op      twotier.Op
	check   twotier.Check
	several bool // errors name the check
	seen    fields.Set
	bounds  bool
}

// parse adds an operation of that kind with these arguments, the name of the command first.
func (w *work) parse(kind twotier.Kind, args [][]byte) errorReply {
	d := w.beginOp(args)
	d.op.Kind = kind
	e := d.readArgs()
	if e == "" {
		e = d.failureError(w.CheckValues(&d.op))
	}
	if e == "" && w.NeedsHold(&d.op) {
		e = d.failureError(w.CheckHold(&d.op))
	}
	if e != "" {
		w.DropOp()
		return e
	}
	w.EndOp(&d.op, uint8(d.shape()))
	return ""
}

// beginOp begins an operation, whose rules are resolved in one set.
func (w *work) beginOp(args [][]byte) draft {
	w.ForgetRules()
	w.BeginOp()
	return draft{w: w, args: args[1:]}
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
	if e := d.readWindows(); e != "" {
		return e
	}
	for len(d.args) > 0 {
		o := optionOf(d.args[0])
		if o&optionsOf(d.op.Kind) == 0 {
			return unknownOption(d.args[0], d.op.Kind)
		}
		d.args = d.args[1:]
		if e := d.readOption(o); e != "" {
			return e
		}
	}
	return d.endCheck()
}

// optionsOf returns the options of a command.
func optionsOf(kind twotier.Kind) fields.Set {
	switch kind {
	case twotier.Add:
		return fields.OptionsOfAdd
	case twotier.Count:
		return fields.OptionsOfCount
	}
	return fields.OptionsOfAcquire
}

// unknownOption returns the error for a word that is no option of the command.
func unknownOption(word []byte, kind twotier.Kind) errorReply {
	want := optionsOf(kind).Words()
	if kind == twotier.Count {
		want = "a window, " + want
	}
	return fieldError(request.Clip(word), "unknown option; want "+want)
}

// readOption reads the values that follow an option.
func (d *draft) readOption(o fields.Set) errorReply {
	switch o {
	case fields.Limits:
		return d.readLimit()
	case fields.ValueLimits:
		return d.readValueLimit()
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

// readLimit reads a window and its maximum.
func (d *draft) readLimit() errorReply {
	if d.w.LimitCount() == request.MaxLimits {
		return d.fieldError("limits", fmt.Sprintf("want at most %d limits", request.MaxLimits))
	}
	if len(d.args) < 2 {
		return d.limitFieldError("window", "want LIMIT, a window and a maximum")
	}
	limit, wrong := request.ParseLimitWindow(d.args[0])
	if wrong != "" {
		return d.limitFieldError("window", wrong)
	}
	most, ok := parseInteger(d.args[1])
	if !ok || !fields.Max.Allows(most) {
		return d.limitFieldError("max", fields.Max.Want())
	}
	d.args = d.args[2:]
	limit.Max = most
	d.w.AddLimit(limit, nil)
	return ""
}

// readWindows reads the windows of a count.
func (d *draft) readWindows() errorReply {
	if d.op.Kind != twotier.Count {
		return ""
	}
	for i := 0; len(d.args) > 0 && optionOf(d.args[0]) == 0; i++ {
		limit, wrong := request.ParseLimitWindow(d.args[0])
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

// limitFieldError returns the error for a field of the limit being read.
func (d *draft) limitFieldError(field, detail string) errorReply {
	return d.fieldError(fmt.Sprintf("limits[%d].%s", d.w.LimitCount(), field), detail)
}

// parseOp adds the operation of a command to the batch. parsed is false if the command has none.
func (c *conn) parseOp(id command, args [][]byte) (parsed bool, e errorReply) {
	switch id {
	case cmdAcquire:
		return true, c.work.parse(twotier.Acquire, args)
	case cmdAdd:
		return true, c.work.parse(twotier.Add, args)
	case cmdCount:
		return true, c.work.parse(twotier.Count, args)
	case cmdThrottle:
		return true, c.work.parseThrottle(args)
	case cmdDistinct:
		return true, c.work.parseDistinct(args)
	}
	return false, ""
}

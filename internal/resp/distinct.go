package resp

import (
	"fmt"
	"slices"
	"strings"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

// givenTwice is the error detail of an option given more than once.
const givenTwice = "given twice"

// parseDistinct adds TT.DISTINCT key [NS ns] [TS ms] [VALUES n v...] [LIMIT window max | RULE
// name]... [WINDOW w...] to the batch.
func (w *work) parseDistinct(args [][]byte) errorReply {
	d := w.beginOp(args)
	e := d.readDistinctArgs()
	if e == "" {
		e = d.endDistinct()
	}
	if e != "" {
		w.DropOp()
	}
	return e
}

// readDistinctArgs reads a key and its options.
func (d *draft) readDistinctArgs() errorReply {
	if e := d.readKey(); e != "" {
		return e
	}
	for len(d.args) > 0 {
		o := optionOf(d.args[0])
		switch {
		case len(d.args) < 2:
			return fieldError(request.Clip(d.args[0]), "its value is missing")
		case o&fields.OptionsOfDistinct == 0:
			return fieldError(request.Clip(d.args[0]),
				"unknown option; want NS, TS, VALUES, LIMIT, RULE or WINDOW")
		}
		d.args = d.args[1:]
		read := d.readOption
		if o == fields.Window {
			read = d.readValueWindows
		}
		if e := read(o); e != "" {
			return e
		}
	}
	return ""
}

// readValueWindows reads the windows in which values are counted, which come last.
func (d *draft) readValueWindows(fields.Set) errorReply {
	if len(d.args) > request.MaxWindows {
		return fieldError("window", fmt.Sprintf("want at most %d windows", request.MaxWindows))
	}
	own := d.w.LimitCount()
	for _, text := range d.args {
		ms, wrong := request.ParseWindow(text)
		if wrong != "" {
			return fieldError("window", wrong)
		}
		d.w.AddLimit(twotier.Limit{Window: ms}, nil)
	}
	d.w.MoveWindows(own)
	d.args = nil
	return ""
}

// endDistinct adds the command that has been read, unless it has nothing to do. If it has LIMIT or
// RULE, its answer carries their verdict.
func (d *draft) endDistinct() errorReply {
	form, v := shapeValues, d.w.ValuesInProgress()
	if d.w.LimitCount() > 0 || d.w.NamesRules() {
		form = shapeJudgedValues
	}
	switch {
	case len(v.Add) == 0 && form == shapeJudgedValues:
		return fieldError("values", "missing; limits and rules judge what is added")
	case len(v.Add) == 0 && !d.w.HasWindows():
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

// readValueLimit reads a window and the maximum of different values in it.
func (d *draft) readValueLimit() errorReply {
	path := fmt.Sprintf("value_limits[%d].", len(d.w.ValuesInProgress().Limits))
	if len(d.args) < 2 {
		return d.fieldError(path+"window", "want VLIMIT, a window and a maximum")
	}
	ms, wrong := request.ParseWindow(d.args[0])
	if wrong != "" {
		return d.fieldError(path+"window", wrong)
	}
	most, ok := parseInteger(d.args[1])
	if !ok || !fields.Max.Allows(most) {
		return d.fieldError(path+"max", fields.Max.Want())
	}
	d.args = d.args[2:]
	d.w.LimitValues(twotier.Limit{Window: ms, Max: most}, nil)
	return ""
}

// appendValues appends the answer to operation i, which is about values: an integer for each
// window. The verdict of limits comes first: whether they allowed the values, when to try again,
// and two integers for each. Without a verdict, a refusal by default rules is an error.
func (c *conn) appendValues(i int, res *twotier.Result, verdict bool) {
	v, of := c.work.ValuesOf(i, 0, res)
	if v == nil { // another node's result may be short
		v, of = new(verdicts.Values), new(twotier.CheckResult)
	}
	if !res.Allowed && !verdict && len(v.Add) > 0 {
		c.replyError(errorf(codeRefused, "by %s; nothing was added; retry_after_ms=%d",
			strings.Join(v.RefusedBy(of, "limits"), ", "), res.RetryAfter))
		return
	}
	limits := min(v.Judging(), len(of.Limits))
	b, counted := c.work.out, of.Limits[limits:]
	if verdict {
		b = appendInt(appendArray(b, 2+2*limits+len(counted)), boolInt(res.Allowed))
		b = appendInt(b, res.RetryAfter)
		for _, l := range of.Limits[:limits] {
			b = appendInt(appendInt(b, l.Count), max(0, l.Max-l.Count))
		}
	} else {
		b = appendArray(b, len(counted))
	}
	for _, l := range counted {
		b = appendInt(b, l.Count)
	}
	c.work.out = b
}

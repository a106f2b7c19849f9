package codec

import (
	"bytes"
	"fmt"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/request"
)

// readChecks reads the "checks" of an acquire.
func (d *Decoder) readChecks() *wire.Problem {
	p := d.ReadList("a list of checks", request.MaxChecks, "checks", d.readCheck)
	if p == nil && d.CheckCount() == 0 {
		p = wire.FieldProblem("", "want at least one check")
	}
	return p
}

// readCheck reads one of the "checks" of an acquire.
func (d *Decoder) readCheck(int) *wire.Problem {
	c, seen := twotier.Check{N: 1}, fieldSet(0)
	d.BeginCheck()
	p := d.readFields("an object", &seen, ofCheck, "a check has ns, key, n, limits and rules",
		func(f fieldSet) *wire.Problem { return d.readCheckValue(&c, f) })
	if p != nil {
		return p
	}
	return d.AddCheck(&c, twotier.Acquire)
}

// readFields reads an object that has some of the allowed fields, and calls read at the value of
// each.
func (d *Decoder) readFields(want string, seen *fieldSet, allowed fieldSet, has string,
	read func(f fieldSet) *wire.Problem) *wire.Problem {
	return d.ReadObject(want, func(name []byte) *wire.Problem {
		f := fieldOf(name)
		if p := markSeen(seen, f, allowed, name, has); p != nil {
			return p
		}
		if p := read(f); p != nil {
			return p.PrefixField(string(name))
		}
		return nil
	})
}

// readLimits reads "limits".
func (d *Decoder) readLimits() *wire.Problem {
	return d.ReadList("a list of limits", request.MaxLimits, "limits", d.readLimit)
}

// readLimit reads {"window","max"}.
func (d *Decoder) readLimit(int) *wire.Problem {
	const window, most = 1, 2
	if p := d.ReadBracket('{', "an object with window and max"); p != nil {
		return p
	}
	var ms, highest int64
	var text []byte
	seen := fieldSet(0)
	for first := true; ; first = false {
		name, p := d.NextMember(first)
		if p != nil {
			return p
		}
		if name == nil {
			break
		}
		f := fieldSet(0)
		switch string(name) {
		case "window":
			f = window
		case "max":
			f = most
		}
		if p := markSeen(&seen, f, window|most, name, "a limit has window and max"); p != nil {
			return p
		}
		if f == window {
			ms, text, p = d.readWindow()
		} else if highest, p = d.ReadInteger(); p == nil && highest < 0 {
			p = wire.FieldProblem("", "want 0 or more")
		}
		if p != nil {
			return p.PrefixField(string(name))
		}
	}
	if seen&window == 0 {
		return wire.FieldProblem("window", "missing; "+request.WantWindow)
	}
	if seen&most == 0 {
		return wire.FieldProblem("max", "missing; want a whole number")
	}
	d.AddLimit(twotier.Limit{Window: ms, Max: highest}, text)
	return nil
}

// readWindow reads one duration.
func (d *Decoder) readWindow() (ms int64, text []byte, p *wire.Problem) {
	if d.Peek() != '"' {
		return 0, nil, d.UnexpectedProblem(request.WantWindow[len("want "):])
	}
	if text, p = d.Str(); p != nil {
		return 0, nil, p
	}
	ms, wrong := request.ParseWindow(text)
	if wrong != "" {
		return 0, nil, wire.FieldProblem("", wrong)
	}
	return ms, text, nil
}

// readWindows reads the "window" of a count: one duration or several, separated by commas or as a
// list.
func (d *Decoder) readWindows() *wire.Problem {
	if d.Peek() != '[' {
		if d.Peek() != '"' {
			return d.UnexpectedProblem(request.WantWindow[len("want "):])
		}
		list, p := d.Str()
		if p != nil {
			return p
		}
		return d.ReadWindowList(list)
	}
	return d.ReadList("", request.MaxWindows, "windows", func(int) *wire.Problem {
		ms, text, p := d.readWindow()
		if p == nil {
			d.AddLimit(twotier.Limit{Window: ms}, text)
		}
		return p
	})
}

// ReadWindowList splits a list of durations at its commas.
func (d *Decoder) ReadWindowList(list []byte) *wire.Problem {
	for i := 0; ; i++ {
		text, rest, more := bytes.Cut(list, []byte{','})
		if i == request.MaxWindows {
			return wire.FieldProblem("", fmt.Sprintf("want at most %d windows", request.MaxWindows))
		}
		ms, wrong := request.ParseWindow(text)
		if wrong != "" {
			return wire.FieldProblem("", wrong)
		}
		d.AddLimit(twotier.Limit{Window: ms}, text)
		if !more {
			return nil
		}
		list = rest
	}
}

// readRules reads "rules": names, each of which stands for the limits of that rule.
func (d *Decoder) readRules() *wire.Problem {
	const want = "a list of names of rules"
	return d.ReadList(want, ask.MaxRules, "rules", func(int) *wire.Problem {
		name, p := d.ReadText()
		if p != nil {
			return p
		}
		return wire.FromFailure(d.AddNamedRule(name))
	})
}

package httpapi

import (
	"bytes"
	"fmt"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/request"
)

// checkList reads the "checks" of an acquire.
func (d *decoder) checkList() *problem {
	if p := d.enter('[', "a list of checks"); p != nil {
		return p
	}
	for i := 0; ; i++ {
		more, p := d.element(i == 0)
		if p != nil {
			return p
		}
		if !more {
			break
		}
		if i == request.MaxChecks {
			return refused("", fmt.Sprintf("want at most %d checks", request.MaxChecks))
		}
		if p := d.check(); p != nil {
			return p.in("[" + itoa(i) + "]")
		}
	}
	if d.CheckCount() == 0 {
		return refused("", "want at least one check")
	}
	return nil
}

// check reads one of the "checks" of an acquire.
func (d *decoder) check() *problem {
	if p := d.enter('{', "an object"); p != nil {
		return p
	}
	c, seen := twotier.Check{N: 1}, fields(0)
	d.BeginCheck()
	for first := true; ; first = false {
		name, p := d.member(first)
		if p != nil {
			return p
		}
		if name == nil {
			break
		}
		f := fieldOf(name)
		const has = "a check has ns, key, n, limits and rules"
		if p := once(&seen, f, ofCheck, name, has); p != nil {
			return p
		}
		if p := d.checkValue(&c, f); p != nil {
			return p.in(string(name))
		}
	}
	return d.addCheck(&c, twotier.Acquire)
}

// limitList reads "limits".
func (d *decoder) limitList() *problem {
	if p := d.enter('[', "a list of limits"); p != nil {
		return p
	}
	for i := 0; ; i++ {
		more, p := d.element(i == 0)
		if p != nil || !more {
			return p
		}
		if i == request.MaxLimits {
			return refused("", fmt.Sprintf("want at most %d limits", request.MaxLimits))
		}
		if p := d.oneLimit(); p != nil {
			return p.in("[" + itoa(i) + "]")
		}
	}
}

// oneLimit reads {"window","max"}.
func (d *decoder) oneLimit() *problem {
	const window, most = 1, 2
	if p := d.enter('{', "an object with window and max"); p != nil {
		return p
	}
	var ms, highest int64
	var text []byte
	seen := fields(0)
	for first := true; ; first = false {
		name, p := d.member(first)
		if p != nil {
			return p
		}
		if name == nil {
			break
		}
		f := fields(0)
		switch string(name) {
		case "window":
			f = window
		case "max":
			f = most
		}
		if p := once(&seen, f, window|most, name, "a limit has window and max"); p != nil {
			return p
		}
		if f == window {
			ms, text, p = d.window()
		} else if highest, p = d.integer(); p == nil && highest < 0 {
			p = refused("", "want 0 or more")
		}
		if p != nil {
			return p.in(string(name))
		}
	}
	if seen&window == 0 {
		return refused("window", "missing; "+request.WantWindow)
	}
	if seen&most == 0 {
		return refused("max", "missing; want a whole number")
	}
	d.AddLimit(twotier.Limit{Window: ms, Max: highest}, text)
	return nil
}

// window reads one duration.
func (d *decoder) window() (ms int64, text []byte, p *problem) {
	if d.peek() != '"' {
		return 0, nil, d.unexpected(request.WantWindow[len("want "):])
	}
	if text, p = d.str(); p != nil {
		return 0, nil, p
	}
	ms, wrong := request.ParseWindow(text)
	if wrong != "" {
		return 0, nil, refused("", wrong+`, got "`+clip(text)+`"`)
	}
	return ms, text, nil
}

// windows reads the "window" of a count: one duration or several, separated by commas or as a list.
func (d *decoder) windows() *problem {
	if d.peek() != '[' {
		if d.peek() != '"' {
			return d.unexpected(request.WantWindow[len("want "):])
		}
		list, p := d.str()
		if p != nil {
			return p
		}
		return d.windowsOf(list)
	}
	d.pos++
	for i := 0; ; i++ {
		more, p := d.element(i == 0)
		if p != nil || !more {
			return p
		}
		if i == request.MaxWindows {
			return refused("", fmt.Sprintf("want at most %d windows", request.MaxWindows))
		}
		ms, text, p := d.window()
		if p != nil {
			return p.in("[" + itoa(i) + "]")
		}
		d.AddLimit(twotier.Limit{Window: ms}, text)
	}
}

// windowsOf splits a list of durations at its commas.
func (d *decoder) windowsOf(list []byte) *problem {
	for i := 0; ; i++ {
		text, rest, more := bytes.Cut(list, []byte{','})
		if i == request.MaxWindows {
			return refused("", fmt.Sprintf("want at most %d windows", request.MaxWindows))
		}
		ms, wrong := request.ParseWindow(text)
		if wrong != "" {
			return refused("", wrong+`, got "`+clip(text)+`"`)
		}
		d.AddLimit(twotier.Limit{Window: ms}, text)
		if !more {
			return nil
		}
		list = rest
	}
}

// ruleList reads "rules": names, each of which stands for the limits of that rule.
func (d *decoder) ruleList() *problem {
	if p := d.enter('[', "a list of names of rules"); p != nil {
		return p
	}
	for i := 0; ; i++ {
		more, p := d.element(i == 0)
		if p != nil || !more {
			return p
		}
		if i == ask.MaxRules {
			return refused("", fmt.Sprintf("want at most %d rules", ask.MaxRules))
		}
		name, p := d.text()
		if p == nil {
			p = problemFrom(d.NameRule(name))
		}
		if p != nil {
			return p.in("[" + itoa(i) + "]")
		}
	}
}

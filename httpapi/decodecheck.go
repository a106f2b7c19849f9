package httpapi

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"twotier.dev/twotier/syncer"
)

// Messages that several fields share.
const (
	wantN      = "want 1 to 2147483647"
	wantAddN   = "want 1 to 2147483647, or -1 to -2147483647 to take back"
	wantWindow = `want a duration such as "90s" or "1d2h3m4s"`
	wantKey    = "want 1 to 256 bytes of UTF-8 without control characters"
	wantNS     = "want 1 to 64 of A-Z, a-z, 0-9, '_', '.' and '-'"
)

// checkList reads the "checks" of an acquire.
func (d *decoder) checkList(first int) *problem {
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
		if i == maxChecks {
			return refused("", fmt.Sprintf("want at most %d checks", maxChecks))
		}
		if p := d.check(); p != nil {
			return p.in("[" + itoa(i) + "]")
		}
	}
	if len(d.checks) == first {
		return refused("", "want at least one check")
	}
	return nil
}

// check reads one of the "checks" of an acquire.
func (d *decoder) check() *problem {
	if p := d.enter('{', "an object"); p != nil {
		return p
	}
	c, seen, start := syncer.Check{N: 1}, fields(0), len(d.limits)
	for first := true; ; first = false {
		name, p := d.member(first)
		if p != nil {
			return p
		}
		if name == nil {
			break
		}
		f := fieldOf(name)
		if p := once(&seen, f, ofCheck, name, "a check has ns, key, n and limits"); p != nil {
			return p
		}
		if p := d.checkValue(&c, f); p != nil {
			return p.in(string(name))
		}
	}
	return d.addCheck(&c, syncer.Acquire, start)
}

// checkValue reads the value of one field of a check.
func (d *decoder) checkValue(c *syncer.Check, f fields) (p *problem) {
	switch f {
	case fieldNS:
		if c.NS, p = d.text(); p == nil && !validNS(c.NS) {
			p = refused("", wantNS)
		}
	case fieldKey:
		if c.Key, p = d.text(); p == nil && !validKey(c.Key) {
			p = refused("", wantKey)
		}
	case fieldN:
		c.N, p = d.integer()
	case fieldLimits:
		p = d.limitList()
	}
	return p
}

// addCheck adds a check that has been read, whose limits begin at start, if it has everything its
// operation needs.
func (d *decoder) addCheck(c *syncer.Check, kind syncer.Kind, start int) *problem {
	if p := forbidden(d.grant, roleOf(kind), c.NS); p != nil {
		return p
	}
	switch {
	case c.Key == nil:
		return refused("key", "missing; "+wantKey)
	case kind == syncer.Add && (c.N == 0 || c.N > maxN || c.N < -maxN):
		return refused("n", wantAddN)
	case kind == syncer.Acquire && (c.N < 1 || c.N > maxN):
		return refused("n", wantN)
	case kind == syncer.Acquire && len(d.limits) == start:
		return refused("limits", "missing; want at least one limit")
	case kind == syncer.Count && len(d.limits) == start:
		return refused("window", "missing; "+wantWindow)
	}
	d.checks = append(d.checks, *c)
	d.starts = append(d.starts, start)
	return nil
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
		if i == maxLimits {
			return refused("", fmt.Sprintf("want at most %d limits", maxLimits))
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
		return refused("window", "missing; "+wantWindow)
	}
	if seen&most == 0 {
		return refused("max", "missing; want a whole number")
	}
	d.limit(ms, highest, text)
	return nil
}

// window reads one duration.
func (d *decoder) window() (ms int64, text []byte, p *problem) {
	if d.peek() != '"' {
		return 0, nil, d.unexpected(wantWindow[len("want "):])
	}
	if text, p = d.str(); p != nil {
		return 0, nil, p
	}
	ms, wrong := parseWindow(text)
	if wrong != "" {
		return 0, nil, refused("", wrong+`, got "`+clip(text)+`"`)
	}
	return ms, text, nil
}

// windows reads the "window" of a count: one duration or several, separated by commas or as a list.
func (d *decoder) windows() *problem {
	if d.peek() != '[' {
		if d.peek() != '"' {
			return d.unexpected(wantWindow[len("want "):])
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
		if i == maxWindows {
			return refused("", fmt.Sprintf("want at most %d windows", maxWindows))
		}
		ms, text, p := d.window()
		if p != nil {
			return p.in("[" + itoa(i) + "]")
		}
		d.limit(ms, 0, text)
	}
}

// windowsOf splits a list of durations at its commas.
func (d *decoder) windowsOf(list []byte) *problem {
	for i := 0; ; i++ {
		text, rest, more := bytes.Cut(list, []byte{','})
		if i == maxWindows {
			return refused("", fmt.Sprintf("want at most %d windows", maxWindows))
		}
		ms, wrong := parseWindow(text)
		if wrong != "" {
			return refused("", wrong+`, got "`+clip(text)+`"`)
		}
		d.limit(ms, 0, text)
		if !more {
			return nil
		}
		list = rest
	}
}

// validKey reports whether b may be a key. JSON has already been checked for UTF-8, a URL has not.
func validKey(b []byte) bool {
	if len(b) == 0 || len(b) > maxKeyBytes {
		return false
	}
	if plain(b, 0) == len(b) {
		return bytes.IndexByte(b, 0x7f) < 0
	}
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r < 0x20 || (r >= 0x7f && r < 0xa0) || (r == utf8.RuneError && size == 1) {
			return false
		}
		i += size
	}
	return true
}

// validNS reports whether b may be the name of a namespace.
func validNS(b []byte) bool {
	if len(b) == 0 || len(b) > maxNSBytes {
		return false
	}
	for _, c := range b {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && !isDigit(c) && c != '_' && c != '.' && c != '-' {
			return false
		}
	}
	return true
}

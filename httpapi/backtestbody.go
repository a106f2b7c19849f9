package httpapi

import (
	"bytes"
	"math"
	"strconv"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/codec"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/backtest"
	"twotier.dev/twotier/internal/request"
)

// backtestQuery is the body of a backtest.
type backtestQuery struct {
	rules   []*twotier.Rule
	version *int64 // the version of the rules; nil for a document
	top     int
	suggest float64 // the percentile of the limits to suggest; 0 for a backtest
}

// decodeBacktest reads the object. proposed is the document, or nil if the body names rules.
func decodeBacktest(d *codec.Decoder) (q backtestQuery, proposed []byte, p *wire.Problem) {
	q.top = backtest.MaxTop
	seen := map[string]bool{}
	p = d.ReadObject("an object with rules", func(name []byte) (p *wire.Problem) {
		field := request.Clip(name)
		switch {
		case seen[field]:
			return wire.FieldProblem(field, "given twice")
		case field == "rules":
			q.rules, proposed, p = decodeProposal(d)
		case field == "top":
			var n int64
			if n, p = d.ReadInteger(); p == nil && (n < 1 || n > backtest.MaxTop) {
				p = wire.FieldProblem("", "want 1 to "+strconv.Itoa(backtest.MaxTop))
			}
			q.top = int(n)
		case field == "suggest":
			q.suggest, p = decodeSuggest(d)
		default:
			return wire.FieldProblem(field, "unknown field; a backtest has rules, top and suggest")
		}
		if p != nil {
			return p.PrefixField(field)
		}
		seen[field] = true
		return nil
	})
	if p == nil && seen["top"] && seen["suggest"] {
		p = wire.FieldProblem("top", "has no effect on a suggestion; leave one of them out")
	}
	return q, proposed, p
}

// decodeProposal reads a document, as an object or as a YAML text, or names of rules in force.
func decodeProposal(d *codec.Decoder) (rules []*twotier.Rule, proposed []byte, p *wire.Problem) {
	switch d.Peek() {
	case '"':
		text, p := d.ReadText()
		return nil, bytes.Clone(text), p
	case '{':
		start := d.Pos
		if p := d.Skip(0); p != nil {
			return nil, nil, p
		}
		// Mistakes have their lines and columns in the whole body.
		text := bytes.Clone(d.Src[:d.Pos])
		for i := range start {
			if text[i] != '\n' {
				text[i] = ' '
			}
		}
		return nil, text, nil
	case '[':
		rules, p = decodeRuleNames(d)
		return rules, nil, p
	}
	return nil, nil, d.UnexpectedProblem(
		"a document of rules, as an object or as a string, or a list " +
			"of names")
}

// decodeRuleNames reads names of rules in force.
func decodeRuleNames(d *codec.Decoder) (rules []*twotier.Rule, p *wire.Problem) {
	const want = "a list of names of rules"
	p = d.ReadList(want, math.MaxInt, "rules", func(i int) *wire.Problem {
		name, p := d.ReadText()
		if p != nil {
			return p
		}
		if i == backtest.MaxRules {
			return wire.FieldProblem("", "want at most "+strconv.Itoa(i)+" rules")
		}
		r, p := d.ResolveRule(name)
		rules = append(rules, r)
		return p
	})
	return rules, p
}

// decodeSuggest reads {"percentile"} and returns the percentile.
func decodeSuggest(d *codec.Decoder) (percentile float64, p *wire.Problem) {
	percentile = backtest.DefaultPercentile
	seen := false
	p = d.ReadObject("an object with percentile", func(name []byte) *wire.Problem {
		field := request.Clip(name)
		switch {
		case field != "percentile":
			return wire.FieldProblem(field, "unknown field; suggest has percentile")
		case seen:
			return wire.FieldProblem(field, "given twice")
		}
		seen = true
		d.Peek()
		start := d.Pos
		if p := d.Skip(0); p != nil {
			return p
		}
		var err error
		percentile, err = strconv.ParseFloat(string(d.Src[start:d.Pos]), 64)
		if err != nil || !(percentile > 0 && percentile <= 100) {
			return wire.FieldProblem(field, "want a number above 0, and at most 100")
		}
		return nil
	})
	return percentile, p
}

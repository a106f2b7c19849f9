package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/backtest"
)

// Backtester predicts the effect of rules.
type Backtester interface {
	// Backtest reads up to top keys of each list, see [backtest.Run]. Errors are the same as for
	// [Service]. It has its own timeout.
	Backtest(ctx context.Context, rules []*twotier.Rule, top int) (*backtest.Report, error)
}

// backtestQuery is the body of a backtest.
type backtestQuery struct {
	rules   []*twotier.Rule
	version *int64 // the version of the rules; nil for a document
	top     int
}

// backtestAnswer is its answer.
type backtestAnswer struct {
	At      int64  `json:"at"`
	Top     int    `json:"top"`
	Version *int64 `json:"rules_version,omitempty"`
	*backtest.Report
}

// backtest answers with the predicted effect of rules, which need not be in force.
func (s *Server) backtest(ctx *fasthttp.RequestCtx) *problem {
	if p := problemFrom(ask.AllowAll(grantOf(ctx))); p != nil {
		return p
	}
	if p := noQuery(ctx); p != nil {
		return p
	}
	x := s.begin(ctx)
	q, p := s.backtestBody(x, ctx.PostBody())
	s.finish(x)
	if p != nil {
		return p
	}
	at := time.Now()
	report, err := s.opts.Backtester.Backtest(context.Background(), q.rules, q.top)
	if err != nil {
		return s.problemOf(err, false)
	}
	text, err := json.Marshal(backtestAnswer{at.UnixMilli(), q.top, q.version, report})
	if err != nil {
		return s.problemOf(err, false)
	}
	if p := memoryOf(ctx).takeUpTo(int64(len(text))); p != nil {
		return p
	}
	ctx.SetContentType("application/json")
	ctx.Response.SetBodyRaw(text)
	return nil
}

// backtestBody reads {"rules","top"}.
func (s *Server) backtestBody(d *requestState, body []byte) (backtestQuery, *problem) {
	d.reset(body)
	q, proposed, p := d.backtestMembers()
	if p == nil {
		p = d.end()
	}
	if p != nil {
		return q, d.malformedFirst(p)
	}
	if proposed != nil {
		set, err := s.opts.RuleBook.Read(proposed)
		if err != nil {
			return q, s.problemOfRules(err, false)
		}
		for _, name := range set.Names() {
			q.rules = append(q.rules, set.Find([]byte(name)))
		}
	} else if len(q.rules) > 0 {
		version := d.RulesVersion()
		q.version = &version
	}
	if len(q.rules) == 0 {
		return q, refused("rules", "want a document with at least one rule that has a name, or "+
			"names of rules in force")
	}
	return q, nil
}

// backtestMembers reads the object. proposed is the document, or nil if the body names rules.
func (d *decoder) backtestMembers() (q backtestQuery, proposed []byte, p *problem) {
	q.top = backtest.MaxTop
	if p := d.enter('{', "an object with rules"); p != nil {
		return q, nil, p
	}
	seen := map[string]bool{}
	for first := true; ; first = false {
		name, p := d.member(first)
		if p != nil || name == nil {
			return q, proposed, p
		}
		field := clip(name)
		switch {
		case seen[field]:
			return q, nil, refused(field, "given twice")
		case field == "rules":
			q.rules, proposed, p = d.proposal()
		case field == "top":
			var n int64
			if n, p = d.integer(); p == nil && (n < 1 || n > backtest.MaxTop) {
				p = refused("", "want 1 to "+itoa(backtest.MaxTop))
			}
			q.top = int(n)
		default:
			return q, nil, refused(field, "unknown field; a backtest has rules and top")
		}
		if p != nil {
			return q, nil, p.in(field)
		}
		seen[field] = true
	}
}

// proposal reads a document, as an object or as a YAML text, or names of rules in force.
func (d *decoder) proposal() (rules []*twotier.Rule, proposed []byte, p *problem) {
	switch d.peek() {
	case '"':
		text, p := d.text()
		return nil, bytes.Clone(text), p
	case '{':
		start := d.pos
		if p := d.skip(0); p != nil {
			return nil, nil, p
		}
		// Mistakes have their lines and columns in the whole body.
		text := bytes.Clone(d.src[:d.pos])
		for i := range start {
			if text[i] != '\n' {
				text[i] = ' '
			}
		}
		return nil, text, nil
	case '[':
		rules, p = d.ruleNames()
		return rules, nil, p
	}
	return nil, nil, d.unexpected("a document of rules, as an object or as a string, or a list " +
		"of names")
}

// ruleNames reads names of rules in force.
func (d *decoder) ruleNames() (rules []*twotier.Rule, p *problem) {
	if p := d.enter('[', "a list of names of rules"); p != nil {
		return nil, p
	}
	for i := 0; ; i++ {
		more, p := d.element(i == 0)
		if p != nil || !more {
			return rules, p
		}
		name, p := d.text()
		if p == nil && i == backtest.MaxRules {
			p = refused("", "want at most "+itoa(backtest.MaxRules)+" rules")
		}
		var r *twotier.Rule
		if p == nil {
			r, p = d.findRule(name)
		}
		if p != nil {
			return nil, p.in("[" + itoa(i) + "]")
		}
		rules = append(rules, r)
	}
}

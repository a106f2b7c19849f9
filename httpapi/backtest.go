package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/codec"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/backtest"
	"twotier.dev/twotier/internal/request"
)

// Backtester predicts the effect of rules.
type Backtester interface {
	// Backtest reads up to top keys of each list, see [backtest.Run]. Errors are the same as for
	// [Service]. It has its own timeout.
	Backtest(ctx context.Context, rules []*twotier.Rule, top int) (*backtest.Report, error)
	// Suggest suggests limits for the windows of rules, see [backtest.Suggest]. Otherwise it is
	// like Backtest.
	Suggest(ctx context.Context, rules []*twotier.Rule,
		percentile float64) (*backtest.Suggestions, error)
}

// backtestAnswer is its answer.
type backtestAnswer struct {
	At      int64  `json:"at"`
	Top     int    `json:"top"`
	Version *int64 `json:"rules_version,omitempty"`
	*backtest.Report
}

// suggestAnswer is the answer to a backtest that asks for suggestions.
type suggestAnswer struct {
	At      int64  `json:"at"`
	Version *int64 `json:"rules_version,omitempty"`
	*backtest.Suggestions
}

// backtest answers with the predicted effect of rules, which need not be in force.
func (s *Server) backtest(ctx *fasthttp.RequestCtx) *wire.Problem {
	x := s.beginRequest(ctx)
	q, p := s.readBacktestBody(x, ctx.PostBody())
	s.finishRequest(x)
	if p != nil {
		return p
	}
	answer, err := s.runBacktest(&q)
	if err != nil {
		return s.problemOf(err, false)
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return s.problemOf(err, false)
	}
	if p := memoryOf(ctx).ReserveUpTo(int64(len(text))); p != nil {
		return p
	}
	return sendJSON(ctx, text)
}

// runBacktest returns the answer to a query.
func (s *Server) runBacktest(q *backtestQuery) (answer any, err error) {
	at, by := time.Now().UnixMilli(), s.opts.Backtester
	if q.suggest > 0 {
		found, err := by.Suggest(context.Background(), q.rules, q.suggest)
		return suggestAnswer{at, q.version, found}, err
	}
	report, err := by.Backtest(context.Background(), q.rules, q.top)
	return backtestAnswer{at, q.top, q.version, report}, err
}

// readBacktestBody reads {"rules","top","suggest"}.
func (s *Server) readBacktestBody(d *requestState, body []byte) (backtestQuery, *wire.Problem) {
	d.Reset(body)
	q, proposed, p := decodeBacktest(&d.Decoder)
	if p = d.EndBody(p); p != nil {
		return q, p
	}
	if proposed != nil {
		if p := d.memory.ReserveDocument(len(proposed)); p != nil {
			return q, p
		}
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
		return q, wire.FieldProblem("rules", "want a document with at least one rule that has a "+
			"name, or names of rules in force")
	}
	return q, nil
}

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

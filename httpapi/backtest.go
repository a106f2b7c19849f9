package httpapi

import (
	"context"
	"encoding/json"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/backtest"
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

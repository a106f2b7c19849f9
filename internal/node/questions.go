package node

import (
	"context"
	"fmt"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/hotkeys"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/ownership"
)

// Question is a kind of question between nodes, with everything needed to ask, send and answer it.
type Question struct {
	// Code is the kind's number on the wire. Codes are never reused.
	Code byte
	// Name is the kind's name in errors.
	Name string
	// FromUsers marks questions asked on behalf of a user. Their number is unbounded, and the
	// questions by which nodes agree on ownership must not wait behind them.
	FromUsers bool
	// New returns a pointer to an empty question.
	New func() any

	is     func(question any) bool
	answer func(ctx context.Context, n *Node, question any) (any, error)
}

// questions lists all kinds. A new kind only needs an entry here, unless its answer is too large or
// too frequent for JSON: package peer has special encodings for such kinds.
var questions = [...]Question{
	question(0, "ping", func(context.Context, *Node, *PingQuestion) (any, error) {
		return nil, nil
	}),
	question(1, "holdings",
		func(_ context.Context, n *Node, q *ownership.HoldingsRequest) (any, error) {
			return n.owned.Holdings(q), nil
		}),
	question(2, "claim",
		func(ctx context.Context, n *Node, q *ownership.ClaimRequest) (any, error) {
			return n.owned.HandOff(ctx, q), nil
		}),
	question(3, "offer", func(_ context.Context, n *Node, q *ownership.OfferRequest) (any, error) {
		n.owned.Offered(q)
		return nil, nil
	}),
	question(4, "outcome",
		func(_ context.Context, n *Node, q *multiowner.OutcomeRequest) (any, error) {
			return n.parts.Outcome(q)
		}),
	fromUsers(question(5, "top", func(ctx context.Context, n *Node, q *TopQuestion) (any, error) {
		keys, err := n.ownTop(ctx, q)
		return &TopAnswer{keys}, err
	})),
	fromUsers(question(6, "series",
		func(ctx context.Context, n *Node, q *SeriesQuestion) (any, error) {
			bucket, points, err := n.opt.Counter.Series(ctx, q.NS, q.Key, q.Window, false)
			return &SeriesAnswer{bucket, points}, err
		})),
	question(7, "mode", func(ctx context.Context, n *Node, q *modes.Request) (any, error) {
		return nil, n.modes.Step(ctx, q)
	}),
	fromUsers(question(9, "status",
		func(_ context.Context, n *Node, _ *StatusQuestion) (any, error) {
			return n.status(), nil
		})),
	question(10, "settle",
		func(ctx context.Context, n *Node, q *multiowner.SettleRequest) (any, error) {
			return nil, n.parts.Settle(ctx, q)
		}),
	question(11, "lease", func(ctx context.Context, n *Node, q *hotkeys.LeaseRequest) (any, error) {
		return n.hot.Lend(ctx, q), nil
	}),
	fromUsers(question(21, "recall",
		func(ctx context.Context, n *Node, q *hotkeys.RecallRequest) (any, error) {
			return nil, n.hot.AnswerRecall(ctx, q)
		})),
	fromUsers(question(12, "top refused",
		func(ctx context.Context, n *Node, q *TopRefusedQuestion) (any, error) {
			keys, err := n.denied.Top(ctx, q.Limit, q.Window)
			return &TopAnswer{keys}, err
		})),
	fromUsers(question(18, "top refused in shadow",
		func(ctx context.Context, n *Node, q *TopShadowRefusedQuestion) (any, error) {
			keys, err := n.shadowed.Top(ctx, q.Limit, q.Window)
			return &TopAnswer{keys}, err
		})),
	fromUsers(question(15, "bans", func(_ context.Context, n *Node, q *BansQuestion) (any, error) {
		return &BansAnswer{n.bans.List(q.NS, q.Rule, min(q.Limit, maxBans),
			n.opt.Clock.Now())}, nil
	})),
	fromUsers(question(14, "events",
		func(_ context.Context, n *Node, _ *EventsQuestion) (any, error) {
			seen := n.log.Snapshot()
			return &seen, nil
		})),
	fromUsers(question(16, "distinct",
		func(ctx context.Context, n *Node, q *DistinctQuestion) (any, error) {
			a := new(DistinctAnswer)
			err := n.serveDistinct(ctx, &q.Op, &a.Result)
			return a, err
		})),
	fromUsers(question(19, "distinct list",
		func(ctx context.Context, n *Node, q *DistinctListQuestion) (any, error) {
			return n.serveDistinctList(ctx, q), nil
		})),
	question(17, "distinct pending",
		func(_ context.Context, n *Node, q *DistinctPendingQuestion) (any, error) {
			return n.pendingDistinct(q), nil
		}),
	question(20, "distinct handover",
		func(_ context.Context, n *Node, q *DistinctHandover) (any, error) {
			return nil, n.importDistinct(q)
		}),
	fromUsers(question(22, "distinct reset",
		func(_ context.Context, n *Node, q *DistinctReset) (any, error) {
			if n.opt.Distinct != nil {
				n.opt.Distinct.Void(q.NS, q.Key, q.Reset)
			}
			return nil, nil
		})),
	fromUsers(question(13, "replay",
		func(ctx context.Context, n *Node, q *ReplayQuestion) (any, error) {
			return &ReplayAnswer{n.replayOwn(ctx, &q.Ask)}, nil
		})),
}

// question returns the entry of a kind whose questions are of type *Q.
func question[Q any](code byte, name string,
	answer func(ctx context.Context, n *Node, q *Q) (any, error)) Question {
	return Question{
		Code: code, Name: name, New: func() any { return new(Q) },
		is: func(question any) bool {
			_, ok := question.(*Q)
			return ok
		},
		answer: func(ctx context.Context, n *Node, question any) (any, error) {
			return answer(ctx, n, question.(*Q))
		},
	}
}

func fromUsers(q Question) Question {
	q.FromUsers = true
	return q
}

// Questions returns all kinds of question.
func Questions() []Question { return append([]Question(nil), questions[:]...) }

// QuestionOf returns the kind of a question, or false if the value is not a question.
func QuestionOf(question any) (kind Question, ok bool) {
	return find(func(k *Question) bool { return k.is(question) })
}

// QuestionByCode returns the kind with the given number on the wire, or false if there is none.
func QuestionByCode(code byte) (kind Question, ok bool) {
	return find(func(k *Question) bool { return k.Code == code })
}

func find(wanted func(*Question) bool) (kind Question, ok bool) {
	for _, kind := range questions {
		if wanted(&kind) {
			return kind, true
		}
	}
	return Question{}, false
}

// Answer answers another node's question.
func (n *Node) Answer(ctx context.Context, question any) (answer any, err error) {
	if !n.opened.Load() || n.closed.Load() {
		return nil, twotier.ErrClosed
	}
	kind, ok := QuestionOf(question)
	if !ok {
		return nil, fmt.Errorf("%w: unknown question %T", twotier.ErrUnavailable, question)
	}
	return kind.answer(ctx, n, question)
}

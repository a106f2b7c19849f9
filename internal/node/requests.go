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

// RequestKind is a kind of request between nodes, with everything needed to send and answer it.
type RequestKind struct {
	// Code is the kind's number on the wire. Codes are never reused.
	Code byte
	// Name is the kind's name in errors.
	Name string
	// FromUsers marks requests on behalf of a user. Their number is unbounded, and the
	// requests by which nodes agree on ownership must not wait behind them.
	FromUsers bool
	// New returns a pointer to an empty request.
	New func() any

	is     func(request any) bool
	answer func(ctx context.Context, n *Node, request any) (any, error)
}

// requestKinds lists all kinds. A new kind only needs an entry here, unless its response is too
// large or too frequent for JSON: package peer has special encodings for such kinds.
var requestKinds = [...]RequestKind{
	newKind(0, "ping", func(context.Context, *Node, *PingRequest) (any, error) {
		return nil, nil
	}),
	newKind(1, "holdings",
		func(_ context.Context, n *Node, q *ownership.HoldingsRequest) (any, error) {
			return n.owned.Holdings(q), nil
		}),
	newKind(2, "claim",
		func(ctx context.Context, n *Node, q *ownership.ClaimRequest) (any, error) {
			return n.owned.HandOff(ctx, q), nil
		}),
	newKind(3, "offer", func(_ context.Context, n *Node, q *ownership.OfferRequest) (any, error) {
		n.owned.AcceptOffer(q)
		return nil, nil
	}),
	newKind(28, "return",
		func(ctx context.Context, n *Node, q *ownership.ReturnRequest) (any, error) {
			// A reply is the sign of life that ends the forwarding to others in its place.
			err := n.opt.Peers.Ask(ctx, &q.By, &PingRequest{}, nil)
			n.owned.AcceptReturn(ctx, q)
			return nil, err
		}),
	newKind(4, "outcome",
		func(_ context.Context, n *Node, q *multiowner.OutcomeRequest) (any, error) {
			return n.parts.Outcome(q)
		}),
	markFromUsers(newKind(5, "top", func(ctx context.Context, n *Node, q *TopRequest) (any, error) {
		keys, err := n.ownTop(ctx, q)
		return &TopResponse{keys}, err
	})),
	markFromUsers(newKind(6, "series",
		func(ctx context.Context, n *Node, q *SeriesRequest) (any, error) {
			bucket, points, err := n.opt.Counter.Series(ctx, q.NS, q.Key, q.Window, false)
			return &SeriesResponse{bucket, points}, err
		})),
	newKind(7, "mode", func(ctx context.Context, n *Node, q *modes.Request) (any, error) {
		return nil, n.modes.Step(ctx, q)
	}),
	markFromUsers(newKind(9, "status",
		func(_ context.Context, n *Node, _ *StatusRequest) (any, error) {
			return n.status(), nil
		})),
	newKind(10, "settle",
		func(ctx context.Context, n *Node, q *multiowner.SettleRequest) (any, error) {
			return nil, n.parts.Settle(ctx, q)
		}),
	newKind(11, "lease", func(ctx context.Context, n *Node, q *hotkeys.LeaseRequest) (any, error) {
		return n.hot.Lend(ctx, q), nil
	}),
	markFromUsers(newKind(21, "recall",
		func(ctx context.Context, n *Node, q *hotkeys.RecallRequest) (any, error) {
			return nil, n.hot.ServeRecall(ctx, q)
		})),
	markFromUsers(newKind(12, "top refused",
		func(ctx context.Context, n *Node, q *TopRefusedRequest) (any, error) {
			keys, err := n.denied.Top(ctx, q.Prefix, q.Limit, q.Window)
			return &TopResponse{keys}, err
		})),
	markFromUsers(newKind(18, "top refused in shadow",
		func(ctx context.Context, n *Node, q *TopShadowRefusedRequest) (any, error) {
			keys, err := n.shadowed.Top(ctx, q.Prefix, q.Limit, q.Window)
			return &TopResponse{keys}, err
		})),
	markFromUsers(newKind(23, "top leases",
		func(ctx context.Context, n *Node, q *TopLeasesRequest) (any, error) {
			keys, err := n.leases.Top(ctx, "", q.Limit, 0)
			return &TopResponse{keys}, err
		})),
	markFromUsers(newKind(15, "bans", func(
		_ context.Context, n *Node, q *BansRequest,
	) (any, error) {
		return &BansResponse{n.bans.List(q.NS, q.Rule, min(q.Limit, maxBans))}, nil
	})),
	markFromUsers(newKind(26, "refusals",
		func(_ context.Context, n *Node, q *RefusalsRequest) (any, error) {
			return n.serveRefusals(q), nil
		})),
	markFromUsers(newKind(14, "events",
		func(_ context.Context, n *Node, _ *EventsRequest) (any, error) {
			seen := n.log.Snapshot()
			return &seen, nil
		})),
	markFromUsers(newKind(27, "sample",
		func(ctx context.Context, n *Node, q *SampleRequest) (any, error) {
			a := new(SampleResponse)
			err := n.sampleOwn(ctx, q, a)
			return a, err
		})),
	markFromUsers(newKind(13, "replay",
		func(ctx context.Context, n *Node, q *ReplayRequest) (any, error) {
			return &ReplayResponse{n.replayOwn(ctx, &q.ReplayRequest)}, nil
		})),
}

// newKind returns the entry of a kind whose requests are of type *Q.
func newKind[Q any](code byte, name string,
	answer func(ctx context.Context, n *Node, q *Q) (any, error)) RequestKind {
	return RequestKind{
		Code: code, Name: name, New: func() any { return new(Q) },
		is: func(request any) bool {
			_, ok := request.(*Q)
			return ok
		},
		answer: func(ctx context.Context, n *Node, request any) (any, error) {
			return answer(ctx, n, request.(*Q))
		},
	}
}

func markFromUsers(q RequestKind) RequestKind {
	q.FromUsers = true
	return q
}

// KindOf returns the kind of a request, or false if the value is not a request.
func KindOf(request any) (kind RequestKind, ok bool) {
	return findKind(func(k *RequestKind) bool { return k.is(request) })
}

// KindByCode returns the kind with the given number on the wire, or false if there is none.
func KindByCode(code byte) (kind RequestKind, ok bool) {
	return findKind(func(k *RequestKind) bool { return k.Code == code })
}

func findKind(wanted func(*RequestKind) bool) (kind RequestKind, ok bool) {
	for _, kind := range requestKinds {
		if wanted(&kind) {
			return kind, true
		}
	}
	return RequestKind{}, false
}

// Respond answers another node's request.
func (n *Node) Respond(ctx context.Context, request any) (response any, err error) {
	if !n.opened.Load() || n.closed.Load() {
		return nil, twotier.ErrClosed
	}
	kind, ok := KindOf(request)
	if !ok {
		return nil, fmt.Errorf("%w: unknown request %T", twotier.ErrUnavailable, request)
	}
	return kind.answer(ctx, n, request)
}

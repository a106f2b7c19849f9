package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/backtest"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/hotkeys"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/refusallog"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
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

// Peers reaches the other nodes. Package peer implements it.
type Peers interface {
	// Do runs tasks in order on another node and sets Err in each result: to that node's own error;
	// to one that wraps rpc.ErrUnreachable, rpc.ErrRefused or rpc.ErrLate if the task was certainly
	// not executed; or to twotier.ErrUnknownOutcome. Tasks are executed at most once, and not after
	// ctx's deadline.
	Do(ctx context.Context, to *ring.Member, tasks []rpc.Task, res []twotier.Result)
	// DoAll does the same for groups of operations of a batch, all groups at the same time. It
	// calls meanwhile once the groups are on their way, and over with the index of each group once
	// its results are set, both on the caller's goroutine.
	DoAll(ctx context.Context, groups []rpc.Group, ops []twotier.Op, res []twotier.Result,
		meanwhile func(), over func(group int))
	// Ask sends a request, a pointer to one of the request types, and fills in the matching
	// response.
	Ask(ctx context.Context, to *ring.Member, request, response any) error
	// RetainLinks releases everything held for members that are no longer in the table.
	RetainLinks(t *ring.Table)
	// Stats returns counters of the traffic with the other nodes.
	Stats() cluster.PeerStats
}

// askOthers sends a request to all other nodes, and calls add with each response, one at a time. It
// returns the IDs of the nodes that do not answer in time.
func askOthers[R any](ctx context.Context, n *Node, timeout time.Duration, request any,
	add func(response *R)) (silent []string) {
	if n.opt.Ring == nil {
		return nil
	}
	var mu sync.Mutex
	rpc.Broadcast(ctx, n.table(), timeout, func(ctx context.Context, m *ring.Member) {
		response := new(R)
		err := n.opt.Peers.Ask(ctx, m, request, response)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			silent = append(silent, m.ID)
		} else {
			add(response)
		}
	})
	return silent
}

// The requests between nodes, and their responses.
type (
	// PingRequest asks whether a node is alive. The response is empty.
	PingRequest struct{}

	// TopRequest asks for the busiest keys that a node owns: of some namespaces if there are any,
	// otherwise those that begin with a prefix.
	TopRequest struct {
		Limit      int
		Window     int64
		Namespaces []string
		Prefix     string
	}
	// TopRefusedRequest asks for the keys with the most refusals among a node's requests.
	TopRefusedRequest struct {
		Limit  int
		Window int64
		Prefix string
	}
	// TopShadowRefusedRequest asks the same about refusals by rules in shadow.
	TopShadowRefusedRequest TopRefusedRequest
	// TopLeasesRequest asks for the keys with the most open leases of which a node knows.
	TopLeasesRequest struct{ Limit int }
	// TopResponse lists the keys, largest first.
	TopResponse struct {
		Keys []twotier.KeyCount
	}

	// SampleRequest asks for a uniform sample of the keys that a node owns in a namespace.
	SampleRequest struct {
		NS     string
		Limit  int
		Window int64
	}
	// SampleResponse lists the keys with their ranks, and has the number of keys from which they
	// were drawn, see syncer.Counter.SampleOf. Skewed is set in Redis mode, where a node only
	// remembers the keys of recent requests.
	SampleResponse struct {
		Keys   []twotier.KeyCount
		Total  int64
		Skewed bool
	}

	// BansRequest asks for the bans that a node knows of, see Node.Bans.
	BansRequest struct {
		NS, Rule string
		Limit    int
	}
	// BansResponse lists them.
	BansResponse struct {
		Bans []twotier.Banned
	}

	// RefusalsRequest asks for the recent refusals of a key that a node has answered, newest first,
	// or for the one with an ID.
	RefusalsRequest struct {
		NS, Key []byte
		Limit   int
		ID      string
	}
	// RefusalsResponse lists them. Why is the reason why there is none with the ID.
	RefusalsResponse struct {
		Refusals []refusallog.Refusal
		Why      string
	}

	// SeriesRequest asks for the buckets of a key that a node owns.
	SeriesRequest struct {
		NS, Key []byte
		Window  int64
	}
	// SeriesResponse lists the buckets, oldest first.
	SeriesResponse struct {
		BucketMS int64
		Points   []twotier.Point
	}

	// EventsRequest asks for the events that a node has seen. The response is its cluster.Events.
	EventsRequest struct{}

	// ReplayRequest asks for the effect of lists of limits on keys that a node owns.
	ReplayRequest struct{ backtest.ReplayRequest }
	// ReplayResponse holds the outcomes of each key, none for a key that could not be read.
	ReplayResponse struct{ Outcomes [][]backtest.Outcome }

	// StatusRequest asks for a node's Status.
	StatusRequest struct{}
)

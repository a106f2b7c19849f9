package node

import (
	"context"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/backtest"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/refusallog"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

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

package node

import (
	"context"
	"slices"

	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// The states of a member.
const (
	StateAlive = "alive"
	// StateSuspect: it does not answer this node, and has not been declared dead.
	StateSuspect = "suspect"
	// StateLeaving: it hands over what it has.
	StateLeaving = "leaving"
	// StateStarting: it serves nothing yet.
	StateStarting = "starting"
)

// StateCount is how many members are in one state.
type StateCount struct {
	State   string
	Members int
}

// Link is how another member is reached.
type Link struct {
	ID string
	// Up is false while it does not answer: the circuit is open, and it is done without.
	Up bool
}

// PeerStats is the traffic with other nodes. Fields whose names end in Total only grow.
type PeerStats struct {
	// MessagesTotal is the number of messages sent, ResentTotal how many of them again, FailedTotal
	// how many got no answer in the end, those that only look whether a process is back included,
	// and TasksTotal the number of operations in them.
	MessagesTotal, ResentTotal, FailedTotal, TasksTotal int64
	// Silent are the names of the processes that do not answer now: they are done without.
	Silent []string
}

// Status is what a node says of itself. Fields whose JSON names end in _total only grow.
type Status struct {
	Mode        Mode   `json:"mode"`
	RingVersion uint64 `json:"ring_version"`
	// Held and so on are as in Stats and Phases.
	Held    int `json:"held"`
	Gaining int `json:"gaining"`
	Losing  int `json:"losing"`
	Moving  int `json:"moving"`
	// Taken and Given is how many partitions were handed over directly.
	Taken          int64 `json:"taken_total"`
	Given          int64 `json:"given_total"`
	PendingBuckets int64 `json:"pending_buckets"`
	Keys           int64 `json:"keys"`
	MemoryBytes    int64 `json:"memory_bytes"`
	StoreUp        bool  `json:"redis_up"`
	// Ops is how many operations it was asked for and answered, of which Forwarded by asking the
	// owner, and Fallback in the place of an owner that did not answer. Served is how many other
	// nodes asked it for.
	Ops       int64 `json:"ops_total"`
	Forwarded int64 `json:"forwarded_total"`
	Fallback  int64 `json:"fallback_total"`
	Served    int64 `json:"served_total"`
}

// status is what this node says of itself.
func (n *Node) status() *Status {
	s := n.Stats()
	v := &Status{
		Mode: s.Mode, RingVersion: s.RingVersion, Held: s.Held, Gaining: s.Phases.Gaining,
		Losing: s.Phases.Losing, Moving: s.Phases.Moving,
		Taken: s.Moves.Taken, Given: s.Moves.Given, PendingBuckets: s.Counter.PendingBuckets,
		Keys:        s.Counter.Keys,
		MemoryBytes: s.Counter.MemoryBytes, StoreUp: s.Store.Up, Served: s.ServedTotal,
	}
	for _, o := range s.Ops {
		v.Ops += o.Total
		switch o.Source {
		case string(syncer.SourceOwner):
			v.Forwarded += o.Total
		case string(syncer.SourceFallback):
			v.Fallback += o.Total
		}
	}
	return v
}

// Survey asks all members how they are, and sets Status of those in a view that answer within a
// second. Those that have not answered for a while are not asked.
func (n *Node) Survey(ctx context.Context, v *ClusterView) {
	t := n.table()
	found := make([]*Status, t.Len())
	if t.Self() >= 0 {
		found[t.Self()] = n.status()
	}
	if n.opt.Ring != nil {
		silent := n.opt.Peers.Stats().Silent
		rpc.Broadcast(ctx, t, topTimeout, func(ctx context.Context, m *ring.Member) {
			var a Status
			if !slices.Contains(silent, m.Name) &&
				n.opt.Peers.Ask(ctx, m, &StatusQuestion{}, &a) == nil {
				found[t.Find(m.Name)] = &a
			}
		})
	}
	for i := range v.Members {
		for at, s := range found {
			if m := t.Member(at); m.ID == v.Members[i].ID && m.Born == v.Members[i].Started {
				v.Members[i].Status = s
			}
		}
	}
}

// others counts the members by state, and says how the others are reached.
func (n *Node) others(t *ring.Table, silent []string) (states []StateCount, links []Link) {
	states = []StateCount{{StateAlive, 0}, {StateSuspect, 0}, {StateLeaving, 0}, {StateStarting, 0}}
	for i := range t.Len() {
		state := n.memberView(t, i, silent).State
		states[slices.IndexFunc(states, func(c StateCount) bool {
			return c.State == state
		})].Members++
		if m := t.Member(i); i != t.Self() {
			links = append(links, Link{m.ID, !slices.Contains(silent, m.Name)})
		}
	}
	return states, links
}

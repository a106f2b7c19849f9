package node

import (
	"context"
	"slices"
	"time"

	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/events"
)

// observeInterval is how often the event log receives the node's state, apart from each new table.
const observeInterval = 500 * time.Millisecond

// runReportState passes the node's state to the event log until ctx is done.
func (n *Node) runReportState(ctx context.Context) {
	ticker := time.NewTicker(observeInterval)
	defer ticker.Stop()
	for {
		n.reportState()
		select {
		case <-ctx.Done():
			return
		case <-n.tabled:
		case <-ticker.C:
		}
	}
}

// wakeReporter makes runReportState act at once.
func (n *Node) wakeReporter() {
	select {
	case n.tabled <- struct{}{}:
	default:
	}
}

// reportState passes the node's current state to the event log.
func (n *Node) reportState() {
	s := n.Stats()
	state := events.State{
		Mode: s.Mode, StoreUp: s.Store.Up, StoreError: s.Store.Error, ClockDoubt: s.ClockDoubt,
		Losses: s.Counter.LossesTotal, Waiting: s.Counter.WaitingForRoom,
		Refused: n.overloads.list(s.Counter.BehindTotal),
	}
	if n.opt.Refused != nil {
		state.Refused = append(state.Refused, n.opt.Refused()...)
	}
	t := n.table()
	for i := range t.Len() {
		state.Members = append(state.Members, n.memberView(t, i, s.Peers.Silent))
	}
	if n.opt.Rules != nil {
		state.Rules, state.RulesBy = n.opt.Rules()
	}
	n.log.RecordState(state)
}

// Events returns the events seen by all nodes that answer within a second.
func (n *Node) Events(ctx context.Context) cluster.Events {
	parts := []cluster.Events{n.log.Snapshot()}
	t := n.table()
	var members []string
	for i := range t.Len() {
		members = append(members, t.Member(i).ID)
	}
	missing := askOthers(ctx, n, topTimeout, &EventsRequest{}, func(seen *cluster.Events) {
		parts = append(parts, *seen)
	})
	all := events.Merge(parts, members)
	slices.Sort(missing)
	all.Missing = missing
	return all
}

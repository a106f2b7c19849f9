package events

import (
	"cmp"
	"slices"

	"twotier.dev/twotier/internal/cluster"
)

// together is the maximum difference between nodes' times of the same event, in milliseconds.
const together = 15_000

// Merge combines the events of several nodes. Equal events at about the same time become one.
// members lists the IDs of the current members, which are left out of the departed ones.
func Merge(parts []cluster.Events, members []string) (all cluster.Events) {
	var list []cluster.Event
	for _, part := range parts {
		list = append(list, part.Events...)
		for _, d := range part.Departed {
			if !slices.Contains(members, d.ID) {
				all.Departed = mergeDeparted(all.Departed, d)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b cluster.Event) int { return cmp.Compare(a.At, b.At) })
	for i := range list {
		all.Events = mergeEvent(all.Events, &list[i])
	}
	slices.Reverse(all.Events)
	all.Events = all.Events[:min(len(all.Events), MaxEvents)]
	slices.SortStableFunc(all.Departed, func(a, b cluster.Departed) int {
		return cmp.Compare(b.At, a.At)
	})
	return all
}

// mergeEvent appends an event, or adds its nodes to an equal event in the list. If one node saw
// both, they are two events.
func mergeEvent(list []cluster.Event, e *cluster.Event) []cluster.Event {
	for i := len(list) - 1; i >= 0 && e.At-list[i].At <= together; i-- {
		same := &list[i]
		if same.Kind == e.Kind && same.Member == e.Member && same.Text == e.Text &&
			!slices.ContainsFunc(e.Nodes, func(node string) bool {
				return slices.Contains(same.Nodes, node)
			}) {
			same.Nodes = append(slices.Clone(same.Nodes), e.Nodes...)
			slices.Sort(same.Nodes)
			return list
		}
	}
	return append(list, *e)
}

// mergeDeparted adds a member to the departed ones. If nodes disagree about one process, a report
// that it left takes precedence, and one that it was replaced; of two processes with one ID, the
// younger one counts.
func mergeDeparted(list []cluster.Departed, d cluster.Departed) []cluster.Departed {
	for i := range list {
		known := &list[i]
		if known.ID != d.ID {
			continue
		}
		switch {
		case d.Started > known.Started:
			*known = d
		case d.Started < known.Started:
		case d.Why == cluster.Left:
			*known = d
		default:
			known.Missing = known.Missing && d.Missing
		}
		return list
	}
	return append(list, d)
}

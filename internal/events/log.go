package events

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"twotier.dev/twotier/internal/cluster"
)

// Bounds of the events and departed members that a log keeps.
const (
	MaxEvents   = 500
	MaxDeparted = 50
)

// State is a node's view of its cluster and itself at one moment.
type State struct {
	// Members holds the ID, address, state and start of each member. Self marks this log's node.
	Members []cluster.Member
	Mode    cluster.Mode
	// Rules is the version of the rules in force, RulesBy its author; 0 while it is unknown.
	Rules   int64
	RulesBy string
	// StoreUp reports whether the store answers, StoreError the reason if not. Losses is the number
	// of data losses found so far.
	StoreUp    bool
	StoreError string
	Losses     int64
	// ClockDoubt is the reason why the time can't be relied on.
	ClockDoubt string
}

// Log holds the events seen by one node.
type Log struct {
	node string
	now  func() int64

	mu       sync.Mutex
	last     State
	begun    bool
	events   []cluster.Event // oldest first
	departed []cluster.Departed
}

// New returns the log of a node. now returns unix milliseconds.
func New(node string, now func() int64) *Log { return &Log{node: node, now: now} }

// Snapshot returns the events and departed members, latest first.
func (l *Log) Snapshot() cluster.Events {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := cluster.Events{Events: slices.Clone(l.events), Departed: slices.Clone(l.departed)}
	for i := range all.Departed {
		d := &all.Departed[i]
		d.Missing = d.Missing && l.now()-d.At < cluster.MissingFor.Milliseconds()
	}
	slices.Reverse(all.Events)
	slices.Reverse(all.Departed)
	return all
}

// RecordState compares a state with the previous one. States must come in chronological order.
func (l *Log) RecordState(s State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun {
		l.begun = true
		l.add(cluster.Started, l.node, "%s has started", l.node)
		l.last = State{Members: s.Members, Mode: s.Mode, Rules: s.Rules, StoreUp: true,
			Losses: s.Losses}
	}
	l.recordMembers(l.last.Members, s.Members)
	l.recordSettingChanges(&s)
	l.recordStore(&s)
	l.last = s
}

// add records an event.
func (l *Log) add(kind cluster.EventKind, member, format string, args ...any) {
	if len(l.events) == MaxEvents {
		l.events = slices.Delete(l.events, 0, 1)
	}
	l.events = append(l.events, cluster.Event{At: l.now(), Kind: kind, Member: member,
		Text: fmt.Sprintf(format, args...), Nodes: []string{l.node}})
}

// findMember returns the member with an ID.
func findMember(list []cluster.Member, id string) *cluster.Member {
	at := slices.IndexFunc(list, func(m cluster.Member) bool { return m.ID == id })
	if at < 0 {
		return nil
	}
	return &list[at]
}

// recordMembers records members that joined, left, crashed, or stopped or resumed answering.
func (l *Log) recordMembers(old, members []cluster.Member) {
	for i := range old {
		m := &old[i]
		again := findMember(members, m.ID)
		if again == nil || again.Started != m.Started {
			l.recordDeparture(m)
		}
	}
	for i := range members {
		m := &members[i]
		before := findMember(old, m.ID)
		if before == nil || before.Started != m.Started {
			l.recordJoin(m, findMember(members, l.node))
			continue
		}
		l.recordChange(before, m)
	}
}

// recordJoin records a new member, unless it is older than this node, self.
func (l *Log) recordJoin(m, self *cluster.Member) {
	known := len(l.departed)
	l.forget(m.ID)
	if self != nil && m.Started < self.Started && len(l.departed) == known {
		return
	}
	l.add(cluster.Joined, m.ID, "%s has joined", m.ID)
	if len(l.departed) == known {
		l.replaceMissing()
	}
}

// forget forgets the departure of a member.
func (l *Log) forget(id string) {
	l.departed = slices.DeleteFunc(l.departed, func(d cluster.Departed) bool { return d.ID == id })
}

// replaceMissing records that a member with a new ID takes the place of the one that has been
// missing for the longest time.
func (l *Log) replaceMissing() {
	for i := range l.departed {
		if d := &l.departed[i]; d.Missing {
			d.Missing = false
			return
		}
	}
}

// recordChange records a change of a member that stays.
func (l *Log) recordChange(before, m *cluster.Member) {
	switch {
	case before.State == m.State:
	case m.State == cluster.Leaving:
		l.add(cluster.Draining, m.ID, "%s is leaving, and hands over what it owns", m.ID)
	case m.State == cluster.Suspect:
		l.add(cluster.Silent, m.ID, "%s does not answer", m.ID)
	case before.State == cluster.Suspect:
		l.add(cluster.Answering, m.ID, "%s answers again", m.ID)
	}
}

// recordDeparture records the departure of a member.
func (l *Log) recordDeparture(m *cluster.Member) {
	why := cluster.Crashed
	if m.State == cluster.Leaving {
		why = cluster.Left
		l.add(why, m.ID, "%s has left", m.ID)
	} else {
		l.add(why, m.ID, "%s is gone without having said so: it crashed, or can't be reached", m.ID)
	}
	l.forget(m.ID)
	if len(l.departed) == MaxDeparted {
		l.departed = slices.Delete(l.departed, 0, 1)
	}
	l.departed = append(l.departed, cluster.Departed{ID: m.ID, Address: m.Address,
		Started: m.Started, At: l.now(), Why: why, Missing: why == cluster.Crashed})
}

// recordSettingChanges records changes made by users.
func (l *Log) recordSettingChanges(s *State) {
	if s.Mode != l.last.Mode {
		l.add(cluster.ModeChanged, "", "the mode is %s in place of %s", s.Mode, l.last.Mode)
	}
	if s.Rules != l.last.Rules && s.Rules > 0 {
		l.add(cluster.RulesChanged, "", "version %d of the rules is in force, by %s", s.Rules,
			cmp.Or(s.RulesBy, "somebody without a name"))
	}
}

// recordStore records changes of the store and its clock.
func (l *Log) recordStore(s *State) {
	switch {
	case l.last.StoreUp && !s.StoreUp:
		l.add(cluster.StoreLost, "", "Redis can't be reached: %s", s.StoreError)
	case !l.last.StoreUp && s.StoreUp:
		l.add(cluster.StoreBack, "", "Redis can be reached again")
	}
	if s.Losses > l.last.Losses {
		l.add(cluster.DataLost, "",
			"Redis had lost counts; what was in memory has been published again")
	}
	switch s.ClockDoubt {
	case l.last.ClockDoubt:
	case "":
		l.add(cluster.ClockTrusted, "", "the time is trusted again")
	default:
		l.add(cluster.ClockDoubted, "", "the time is in doubt: %s", s.ClockDoubt)
	}
}

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

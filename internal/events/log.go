package events

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"twotier.dev/twotier/httpapi/cluster"
)

// The most events and departed members that a log keeps.
const (
	MaxEvents   = 500
	MaxDeparted = 50
)

// State is what a log compares.
type State struct {
	// Members has the ID, address, state and start of each. Self is whose log it is.
	Members []cluster.Member
	Mode    cluster.Mode
	// Rules is the version of the rules in force, RulesBy who made it; 0 while it is not known.
	Rules   int64
	RulesBy string
	// StoreUp says whether the store answers, StoreError why it does not. Losses is how often it
	// had lost data.
	StoreUp    bool
	StoreError string
	Losses     int64
	// ClockDoubt says why the time can't be relied on.
	ClockDoubt string
	// Waiting is the number of writes that wait because the store is too far behind.
	Waiting int64
	// Refused is what was refused because of limits of the node. The reasons and their order are
	// the same in all states of a node.
	Refused []Refused
}

// Refused is how many requests and connections were refused for a reason, since the node started.
type Refused struct {
	Why   string
	Total int64
}

// Log is what one node has seen.
type Log struct {
	node string
	now  func() int64

	mu       sync.Mutex
	last     State
	begun    bool
	excess   *excess         // nil while there is no overload
	events   []cluster.Event // oldest first
	departed []cluster.Departed
}

// New returns the log of a node. now returns unix milliseconds.
func New(node string, now func() int64) *Log { return &Log{node: node, now: now} }

// Snapshot returns what the log has.
func (l *Log) Snapshot() cluster.Events {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := cluster.Events{Events: slices.Clone(l.events), Departed: slices.Clone(l.departed)}
	slices.Reverse(all.Events)
	slices.Reverse(all.Departed)
	return all
}

// Observe compares a state with the one before it. States have to be shown in the order in which
// they were.
func (l *Log) Observe(s State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun {
		l.begun = true
		l.add(cluster.Started, l.node, "%s has started", l.node)
		l.last = State{Members: s.Members, Mode: s.Mode, Rules: s.Rules, StoreUp: true,
			Losses: s.Losses} // what was refused before now was, too, refused by this process
	}
	l.members(l.last.Members, s.Members)
	l.settings(&s)
	l.store(&s)
	l.overload(&s)
	l.last = s
}

// add notes an event.
func (l *Log) add(kind cluster.EventKind, member, format string, args ...any) {
	if len(l.events) == MaxEvents {
		l.events = slices.Delete(l.events, 0, 1)
	}
	l.events = append(l.events, cluster.Event{At: l.now(), Kind: kind, Member: member,
		Text: fmt.Sprintf(format, args...), Nodes: []string{l.node}})
}

// find returns the member with an ID.
func find(list []cluster.Member, id string) *cluster.Member {
	at := slices.IndexFunc(list, func(m cluster.Member) bool { return m.ID == id })
	if at < 0 {
		return nil
	}
	return &list[at]
}

// members notes who joined, left, crashed, and stopped answering or began to again.
func (l *Log) members(old, members []cluster.Member) {
	for i := range old {
		m := &old[i]
		again := find(members, m.ID)
		if again == nil || again.Started != m.Started {
			l.gone(m)
		}
	}
	for i := range members {
		m := &members[i]
		before := find(old, m.ID)
		if before == nil || before.Started != m.Started {
			l.joined(m, find(members, l.node))
			continue
		}
		l.member(before, m)
	}
}

// joined notes that a member is there, unless it was before this node, self, was.
func (l *Log) joined(m, self *cluster.Member) {
	known := len(l.departed)
	l.departed = slices.DeleteFunc(l.departed, func(d cluster.Departed) bool {
		return d.ID == m.ID
	})
	if self != nil && m.Started < self.Started && len(l.departed) == known {
		return
	}
	l.add(cluster.Joined, m.ID, "%s has joined", m.ID)
}

// member notes the change of a member that stays.
func (l *Log) member(before, m *cluster.Member) {
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

// gone notes that a member is not one any more.
func (l *Log) gone(m *cluster.Member) {
	why := cluster.Crashed
	if m.State == cluster.Leaving {
		why = cluster.Left
		l.add(why, m.ID, "%s has left", m.ID)
	} else {
		l.add(why, m.ID, "%s is gone without having said so: it crashed, or can't be reached", m.ID)
	}
	l.departed = slices.DeleteFunc(l.departed, func(d cluster.Departed) bool {
		return d.ID == m.ID
	})
	if len(l.departed) == MaxDeparted {
		l.departed = slices.Delete(l.departed, 0, 1)
	}
	l.departed = append(l.departed, cluster.Departed{ID: m.ID, Address: m.Address,
		Started: m.Started, At: l.now(), Why: why})
}

// settings notes what somebody has changed.
func (l *Log) settings(s *State) {
	if s.Mode != l.last.Mode {
		l.add(cluster.ModeChanged, "", "the mode is %s in place of %s", s.Mode, l.last.Mode)
	}
	if s.Rules != l.last.Rules && s.Rules > 0 {
		l.add(cluster.RulesChanged, "", "version %d of the rules is in force, by %s", s.Rules,
			cmp.Or(s.RulesBy, "somebody without a name"))
	}
}

// store notes what has become of the store and its clock.
func (l *Log) store(s *State) {
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

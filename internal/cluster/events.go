package cluster

import "time"

// EventKind is the kind of an [Event].
type EventKind string

// The kinds of events. Events that begin or end a condition come in pairs.
const (
	// Started: the event is about the node that saw it.
	Started EventKind = "started"
	Joined  EventKind = "joined"
	// Draining: a member has announced its departure. Left follows; Crashed is a member that
	// disappeared without an announcement.
	Draining EventKind = "draining"
	Left     EventKind = "left"
	Crashed  EventKind = "crashed"
	// Silent: a member does not answer this node. It has not been declared dead.
	Silent    EventKind = "silent"
	Answering EventKind = "answering"

	ModeChanged  EventKind = "mode"
	RulesChanged EventKind = "rules"

	StoreLost EventKind = "redis-lost"
	StoreBack EventKind = "redis-back"
	// DataLost: the store had lost counts, which were restored from memory.
	DataLost EventKind = "redis-data-lost"

	ClockDoubted EventKind = "clock-doubted"
	ClockTrusted EventKind = "clock-trusted"

	// Overload: Member has reached its own limits and refuses requests, or makes writes wait
	// because the store is too far behind. Text gives the reason, and in OverloadOver the number of
	// refusals.
	Overload     EventKind = "overload"
	OverloadOver EventKind = "overload-over"
)

// Event is a change of state that nodes have seen.
type Event struct {
	// At is when the first of Nodes saw it, in unix milliseconds.
	At   int64     `json:"at"`
	Kind EventKind `json:"kind"`
	// Member is the ID of the member concerned, empty if the event is not about one.
	Member string `json:"member,omitempty"`
	// Text describes the event in words.
	Text string `json:"text"`
	// Nodes are the IDs of the nodes that saw the event, sorted.
	Nodes []string `json:"nodes"`
}

// Departed is a former member.
type Departed struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	// Started is when its process began, and At when it disappeared, in unix milliseconds.
	Started int64 `json:"started,omitempty"`
	At      int64 `json:"at"`
	// Why is Left or Crashed.
	Why EventKind `json:"why"`
	// Missing marks a member that crashed within [MissingFor], and that no new member replaces.
	Missing bool `json:"missing,omitempty"`
}

// MissingFor is how long a member that crashed is missing, unless it comes back or a member with
// another ID takes its place.
const MissingFor = 24 * time.Hour

// Events is the recent history of the cluster as its nodes saw it.
type Events struct {
	// Events are sorted, the newest first.
	Events []Event `json:"events"`
	// Departed are the former members, the last to leave first.
	Departed []Departed `json:"departed"`
	// Missing are the members that did not report their events.
	Missing []string `json:"missing,omitempty"`
}

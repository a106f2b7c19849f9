package cluster

// EventKind says what an [Event] is about.
type EventKind string

// The kinds of events. Those that begin and end something come in pairs.
const (
	// Started: the node that saw the event is the one that it is about.
	Started EventKind = "started"
	Joined  EventKind = "joined"
	// Draining: a member has announced that it leaves. Left follows; Crashed is a member that is
	// gone without having announced it.
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

	// Overload: Member refuses requests because of limits of its own, or has writes wait because
	// the store is too far behind. Text says why, and that of OverloadOver how many were refused.
	Overload     EventKind = "overload"
	OverloadOver EventKind = "overload-over"
)

// Event is a change of state that nodes have seen.
type Event struct {
	// At is when the first of Nodes saw it, in unix milliseconds.
	At   int64     `json:"at"`
	Kind EventKind `json:"kind"`
	// Member is the ID of the member that it is about, empty if it is not about one.
	Member string `json:"member,omitempty"`
	// Text says it in words.
	Text string `json:"text"`
	// Nodes are the IDs of those that saw it, sorted.
	Nodes []string `json:"nodes"`
}

// Departed is a member that is not one any more.
type Departed struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	// Started is when its process began, and At when it was gone, in unix milliseconds.
	Started int64 `json:"started,omitempty"`
	At      int64 `json:"at"`
	// Why is Left or Crashed.
	Why EventKind `json:"why"`
}

// Events is what nodes remember of the cluster.
type Events struct {
	// Events are the newest first.
	Events []Event `json:"events"`
	// Departed are the members that are gone, the last one first.
	Departed []Departed `json:"departed"`
	// Missing are the members that did not say what they have seen.
	Missing []string `json:"missing,omitempty"`
}

package modes

import (
	"strconv"
	"strings"
)

// Mode is the way in which a node counts.
type Mode string

// The modes.
const (
	// TwoTier counts in memory and flushes to the store.
	TwoTier Mode = "two-tier"
	// Redis runs every operation as a script in Redis.
	Redis Mode = "redis"
)

// term is a mode and the number of times the cluster has changed it. Of two terms, the later one
// wins.
type term struct {
	mode   Mode
	number uint64
}

func (t *term) tag() string { return string(t.mode) + " " + strconv.FormatUint(t.number, 10) }

// Tag returns the tag that a node in this mode starts with in the ring.
func Tag(mode Mode) string { return (&term{mode: mode}).tag() }

// FromTag returns the mode in a member's tag, if there is one.
func FromTag(tag string) (mode Mode, ok bool) {
	t, ok := parseTag(tag)
	return t.mode, ok
}

// parseTag is the inverse of tag.
func parseTag(tag string) (t term, ok bool) {
	mode, number, found := strings.Cut(tag, " ")
	n, err := strconv.ParseUint(number, 10, 64)
	t = term{Mode(mode), n}
	return t, found && err == nil && (t.mode == TwoTier || t.mode == Redis)
}

// Request asks a node for one step of a change.
type Request struct {
	By    string // the name of the member that changes the mode
	Mode  Mode
	Term  uint64
	Phase Phase
}

// Phase is a step of a change.
type Phase uint8

// The steps of a change. Their numbers are part of the wire format.
const (
	// Prepare: stop deciding, and flush everything to the store.
	Prepare Phase = iota
	// Commit: continue in the new mode.
	Commit
	// Abort: continue in the old mode.
	Abort
)

package mirror

// Reason is why the old limiter and twotier differ.
type Reason string

// The reasons. The first ones are about the comparison, the others about the old limiter.
const (
	// Lost means that twotier lacks earlier events of the key: the mirror has dropped them, or
	// twotier has answered with an error.
	Lost Reason = "lost"
	// Unseen means that the old limiter refused what twotier has room for, less than a window after
	// the mirror began: it has counts from before.
	Unseen Reason = "unseen"
	// Banned means that a rule of twotier bans the key.
	Banned Reason = "banned"
	// FixedWindow means that the old limiter counts in windows that begin at multiples of their
	// length, such as full minutes.
	FixedWindow Reason = "fixed-window"
	// FirstEventWindow means that its windows begin with the first event, as with INCR and EXPIRE.
	FirstEventWindow Reason = "first-event-window"
	// WeightedWindow means that it estimates the sliding window from two fixed ones.
	WeightedWindow Reason = "weighted-window"
	// TokenBucket means that it refills continuously: a token bucket, GCRA, redis-cell.
	TokenBucket Reason = "token-bucket"
	// CountsRefused means that it counts refused events, too.
	CountsRefused Reason = "counts-refused"
	// OtherLimit means that its limit is another number.
	OtherLimit Reason = "other-limit"
	// Edge means that events at the edge of the window made the difference.
	Edge Reason = "edge"
	// Unexplained is none of these.
	Unexplained Reason = "unexplained"
)

// The reasons by index. If several reasons explain a difference equally well, the first one is
// reported.
const (
	isLost = iota
	isUnseen
	isBanned
	isFixedWindow
	isFirstEventWindow
	isWeightedWindow
	isTokenBucket
	isCountsRefused
	isOtherLimit
	isEdge
	reasonCount
)

var reasons = [reasonCount]struct {
	name Reason
	text string
}{
	isLost: {Lost, "twotier lacks earlier events of the key, because of drops or errors"},
	isUnseen: {Unseen, "the old limiter has counts from before the mirror began (twotier " +
		"import), or a lower limit: ask again after a whole window"},
	isBanned: {Banned, "a rule of twotier bans the key"},
	isFixedWindow: {FixedWindow, "the old limiter counts in fixed windows: around the boundary " +
		"up to twice the limit passes"},
	isFirstEventWindow: {FirstEventWindow, "the old limiter's window begins with the first event " +
		"and then starts again from 0 (INCR and EXPIRE): up to twice the limit passes"},
	isWeightedWindow: {WeightedWindow, "the old limiter estimates the sliding window from two " +
		"fixed ones"},
	isTokenBucket: {TokenBucket, "the old limiter refills continuously (token bucket, GCRA): " +
		"after a pause up to twice the limit passes within a window"},
	isCountsRefused: {CountsRefused, "the old limiter counts refused events, too; with " +
		"count_denied twotier does the same (--count-denied of the mirror)"},
	isOtherLimit: {OtherLimit, "the old limiter has another limit"},
	isEdge: {Edge, "events at the edge of the window: different clocks, another order of " +
		"arrival, whole seconds in the old limiter, or buckets of twotier under a limit above 64"},
}

const unexplainedText = "none of the known kinds of limiters decides like this"

// model describes the kind of limiter, after the word model.
func (r Reason) model() string {
	switch r {
	case FixedWindow:
		return "with windows that begin at multiples of their length"
	case FirstEventWindow:
		return "with windows that begin with their first event"
	case WeightedWindow:
		return "that estimates the sliding window from two fixed ones"
	case TokenBucket:
		return "that refills continuously"
	}
	return "that counts refused requests"
}

// mask is a set of reasons by index.
type mask uint16

func (m mask) has(i int) bool { return m>>i&1 != 0 }

func (m *mask) set(i int, is bool) {
	if is {
		*m |= 1 << i
	}
}

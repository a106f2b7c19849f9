package mirror

// Reason is why the old limiter and twotier differ.
type Reason string

// The reasons: the first three are about the comparison, the others about the old limiter. Their
// texts are below.
const (
	Lost             Reason = "lost"
	Unseen           Reason = "unseen"
	Banned           Reason = "banned"
	FixedWindow      Reason = "fixed-window"
	FirstEventWindow Reason = "first-event-window"
	WeightedWindow   Reason = "weighted-window"
	TokenBucket      Reason = "token-bucket"
	CountsRefused    Reason = "counts-refused"
	OtherLimit       Reason = "other-limit"
	Edge             Reason = "edge"
	Unexplained      Reason = "unexplained"
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
	isUnexplained

	reasonCount = isUnexplained // of those that explain something
)

// reasons describe differences, and kinds of limiter after the word model.
var reasons = [...]struct {
	name        Reason
	text, model string
}{
	isLost: {name: Lost,
		text: "twotier lacks earlier events of the key, because of drops or errors"},
	isUnseen: {name: Unseen, text: "the old limiter has counts from before the mirror began " +
		"(twotier import), or a lower limit: ask again after a whole window"},
	isBanned: {name: Banned, text: "a rule of twotier bans the key"},
	isFixedWindow: {FixedWindow, "the old limiter counts in fixed windows: around the boundary " +
		"up to twice the limit passes", "with windows that begin at multiples of their length"},
	isFirstEventWindow: {FirstEventWindow, "the old limiter's window begins with the first event " +
		"and then starts again from 0 (INCR and EXPIRE): up to twice the limit passes",
		"with windows that begin with their first event"},
	isWeightedWindow: {WeightedWindow, "the old limiter estimates the sliding window from two " +
		"fixed ones", "that estimates the sliding window from two fixed ones"},
	isTokenBucket: {TokenBucket, "the old limiter refills continuously (token bucket, GCRA): " +
		"after a pause up to twice the limit passes within a window", "that refills continuously"},
	isCountsRefused: {CountsRefused, "the old limiter counts refused events, too; with " +
		"count_denied twotier does the same (--count-denied of the mirror)",
		"that counts refused requests"},
	isOtherLimit: {name: OtherLimit, text: "the old limiter has another limit"},
	isEdge: {name: Edge, text: "events at the edge of the window: different clocks, another " +
		"order of arrival, whole seconds in the old limiter, or buckets of twotier under a limit " +
		"above 64"},
	isUnexplained: {name: Unexplained,
		text: "none of the known kinds of limiters decides like this"},
}

// model describes the kind of limiter, after the word model.
func (r Reason) model() string {
	for i := range reasons {
		if reasons[i].name == r {
			return reasons[i].model
		}
	}
	return ""
}

// mask is a set of reasons by index.
type mask uint16

func (m mask) has(i int) bool { return m>>i&1 != 0 }

func (m *mask) set(i int, is bool) {
	if is {
		*m |= 1 << i
	}
}

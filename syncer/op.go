package syncer

// Kind says what an [Op] does.
type Kind uint8

// The kinds of operation.
const (
	// Add counts first and compares afterwards.
	Add Kind = iota
	// Count only reads.
	Count
	// Acquire compares first and counts only if every limit of every check holds.
	Acquire
)

// Ack says what must have happened before an operation that counts returns.
type Ack uint8

// The acknowledgements that a caller can wait for.
const (
	// AckDefault is what the node is configured for.
	AckDefault Ack = iota
	// AckMemory returns once the count is in this process's memory.
	AckMemory
	// AckStore returns once the store (Redis) has acknowledged the count.
	AckStore
	// AckReplica returns once a replica of the store has the count as well: it survives a failover
	// to that replica. See [Keeper].
	AckReplica
	// AckDisk returns once the count is on the store's disk, so that it survives a restart. See
	// [Keeper].
	AckDisk
)

// Source says where an answer came from. Its values are those of the HTTP API.
type Source string

// The sources of an answer.
const (
	// SourceMemory is an answer from the memory of the node that owns the key.
	SourceMemory Source = "memory"
	// SourceOwner is an answer that was forwarded to the key's owner.
	SourceOwner Source = "owner"
	// SourceShared is an answer from this node's memory about a key so hot that several nodes count
	// it. It may miss what the others admitted within StaleAfter.
	SourceShared Source = "shared"
	// SourceNear is a refusal by the key's owner that the node remembered.
	SourceNear Source = "near"
	// SourceRedis is an answer computed by a script in Redis.
	SourceRedis Source = "redis"
	// SourceFallback is an answer given in place of an owner that can't be reached.
	SourceFallback Source = "fallback"
	// SourceDegraded is an answer from memory alone while the store can't be reached.
	SourceDegraded Source = "degraded"
)

// Limit is one rule: at most Max events in any Window. A Count only uses Window.
type Limit struct {
	// Window is the length of the sliding window in milliseconds, at least 1.
	Window int64
	// Max is the largest sum that the window may reach.
	Max int64
}

// Check is one key with its limits. NS and Key are views into the caller's memory. They are not
// kept after the operation returns, except for one copy of a new key.
type Check struct {
	// NS is the namespace; empty means "default".
	NS []byte
	// Key is 1 to 256 bytes of UTF-8 without control characters.
	Key []byte
	// N is the number of events, 1 to 2^31-1; in an Add, negative values take events back.
	N int64
	// Limits are compared in order; an Add may have none.
	Limits []Limit
}

// AppendName appends a name that is unique to the key: its namespace (the same for an empty one and
// for "default"), a zero byte, and the key.
func (c *Check) AppendName(b []byte) []byte {
	if !isDefault(c.NS) {
		b = append(b, c.NS...)
	}
	return append(append(b, 0), c.Key...)
}

// Op is one operation. Add and Count have exactly one check, Acquire has one or more.
type Op struct {
	Kind Kind
	// TS is the time of the event (Add, Acquire) or the end of the window (Count) in unix
	// milliseconds; 0 means now.
	TS  int64
	Ack Ack
	// CountDenied makes an Acquire count even if it is refused.
	CountDenied bool
	// AllowNonOwner executes the operation here although another counter owns the key's partition:
	// in its place, or along with it for a key that is shared. The decision is based on what the
	// store and this counter know.
	AllowNonOwner bool
	// RequireStore refuses an operation with AllowNonOwner, with ErrNotOwner, while the store does
	// not answer: the two counters could not see each other's counts, and the owner can still be
	// asked.
	RequireStore bool
	Checks       []Check
}

// LimitResult is the state of one limit. Results are in the order of the limits.
type LimitResult struct {
	Window, Max int64
	// Count estimates the events in the window; the true number is in [Lo, Hi]. An Acquire sets all
	// three to the number its decision was based on, including n if it was admitted.
	Count, Lo, Hi int64
	// BucketMS is the width of the buckets that were read: the window's edge is uncertain by at
	// most that.
	BucketMS int64
	// Refused is set where this limit stood in the way (Acquire) or is exceeded (Add).
	Refused bool
}

// CheckResult is the outcome of one check.
type CheckResult struct {
	// Refused is set if any limit of this check refused.
	Refused bool
	// RetryAfter is how long to wait, in milliseconds, until this check alone could pass: 0 if it
	// did, -1 if it never can because n exceeds a limit by itself.
	RetryAfter int64
	Limits     []LimitResult
}

// Result is the outcome of an [Op]. Its slices are reused by the next Do with the same Result.
type Result struct {
	// Err is set by DoAll only; Do returns it.
	Err error
	// Allowed is true for an Acquire that was admitted and an Add that exceeds none of its limits.
	Allowed bool
	// RetryAfter is the longest of the checks' in milliseconds, -1 if the operation can never pass.
	RetryAfter int64
	Source     Source
	// AgeMS bounds how old this node's knowledge of other writers' counts is, in milliseconds.
	AgeMS    int64
	Degraded bool
	Checks   []CheckResult
}

// Reset empties r, keeping the memory of its slices.
func (r *Result) Reset() {
	*r = Result{Checks: r.Checks[:0]}
}

// AddCheck appends an empty check result, reusing memory from an earlier use of r, and returns it.
func (r *Result) AddCheck() *CheckResult {
	if len(r.Checks) < cap(r.Checks) {
		r.Checks = r.Checks[:len(r.Checks)+1]
	} else {
		r.Checks = append(r.Checks, CheckResult{})
	}
	c := &r.Checks[len(r.Checks)-1]
	*c = CheckResult{Limits: c.Limits[:0]}
	return c
}

// Point is one bucket of a series: its start in unix milliseconds and its count.
type Point struct {
	Start, Count int64
}

// KeyCount is one row of a list of busiest keys. NS and Key are copies.
type KeyCount struct {
	NS, Key string
	Count   int64
}

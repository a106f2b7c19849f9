package twotier

import (
	"fmt"
	"slices"

	"twotier.dev/twotier/leaparray"
)

// Kind is the type of an [Op].
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

// Ack is the durability that a count must reach before its operation returns.
type Ack uint8

// The acknowledgements that a caller can wait for.
const (
	// AckDefault is the configured level of the node.
	AckDefault Ack = iota
	// AckMemory returns once the count is in this process's memory.
	AckMemory
	// AckStore returns once the store (Redis) has acknowledged the count.
	AckStore
	// AckReplica returns once a replica of the store has the count as well: it survives a failover
	// to that replica. See Keeper in package syncer.
	AckReplica
	// AckDisk returns once the count is on the store's disk, so that it survives a restart. See
	// Keeper in package syncer.
	AckDisk
)

// Source is the origin of an answer, with the values of the HTTP API.
type Source string

// The sources of an answer.
const (
	// SourceMemory is an answer from the memory of the node that owns the key.
	SourceMemory Source = "memory"
	// SourceOwner is an answer that was forwarded to the key's owner.
	SourceOwner Source = "owner"
	// SourceNear is an answer that the node gave for the key's owner: it remembered a refusal, or
	// has borrowed some of the room left in the key's limits. Reads may miss others' counts from
	// within MaxStaleness.
	SourceNear Source = "near"
	// SourceRedis is an answer computed by a script in Redis.
	SourceRedis Source = "redis"
	// SourceFallback is an answer given in place of an owner that can't be reached.
	SourceFallback Source = "fallback"
	// SourceDegraded is an answer from memory alone while the store can't be reached.
	SourceDegraded Source = "degraded"
)

// Limit is one rule: at most Max events in any Window, or in each Period. A Count only uses the
// window or the period.
type Limit struct {
	// Window is the length of the sliding window in milliseconds, at least 1; 0 if there is a
	// period.
	Window int64
	// Max is the largest sum that the window may reach. A Max above MaxBound means MaxBound.
	Max int64
	// Period, if not nil, is the calendar period in place of a sliding window: a decision compares
	// all events of the period around the operation's time, and other operations count its events
	// up to that time.
	Period *Period
}

// MaxBound is the largest sum that is compared exactly in every mode: scripts in Redis calculate
// with numbers of 53 bits.
const MaxBound = 1<<53 - 1

// Bound returns the sum that decisions compare with.
func (l *Limit) Bound() int64 { return min(l.Max, MaxBound) }

// WindowAt returns the length in milliseconds of the window that ends at a moment: for a limit with
// a period, the time since the period's start.
func (l *Limit) WindowAt(ts int64) int64 {
	if l.Period == nil {
		return l.Window
	}
	return l.Period.elapsed(ts)
}

// Longest returns the length of the longest window of the limit, in milliseconds.
func (l *Limit) Longest() int64 {
	if l.Period == nil {
		return l.Window
	}
	return l.Period.longest
}

// CheckKind is the type of a [Check].
type CheckKind uint8

// The kinds of check.
const (
	// EventCheck compares N events with the limits, and counts them.
	EventCheck CheckKind = iota
	// BanCheck, in an Acquire, is a [Ban]. Its N is 0.
	BanCheck
	// LeaseCheck, in an Acquire, takes or returns leases, see LeaseKey.
	LeaseCheck
	// ValuesCheck compares the different values of a key with the limits, and adds Values, see
	// ValuesKey.
	ValuesCheck
)

// Check is one key with its limits. NS and Key are views into the caller's memory. They are not
// kept after the operation returns, except for one copy of a new key.
type Check struct {
	Kind CheckKind
	// NS is the namespace; empty means "default".
	NS []byte
	// Key is 1 to 256 bytes of UTF-8 without control characters.
	Key []byte
	// N is the number of events, 1 to 2^31-1. A negative N takes events back: from the buckets of
	// its time or, if an Add has none, from the newest buckets that are not empty, and never more
	// than a bucket holds. In an Acquire, only the first check may do so, all keys must then have
	// one partition, and 0 counts nothing and needs room for one event.
	N int64
	// Limits are compared in order; an Add may have none.
	Limits []Limit
	// Ban determines what starts the ban of a BanCheck.
	Ban Ban
	// Until is the end of the leases of a LeaseCheck, in unix milliseconds.
	Until int64
	// Values are the hashes of the values of a ValuesCheck, in order, each once, see
	// leaparray.CleanHash. N is their number.
	Values []uint64
	// InPlace is Op.AllowNonOwner for this check alone.
	InPlace bool
}

// AppendName appends a name that is unique to the key: its namespace (the same for an empty one and
// for "default"), a zero byte, and the key.
func (c *Check) AppendName(b []byte) []byte {
	if !isDefault(c.NS) {
		b = append(b, c.NS...)
	}
	return append(append(b, 0), c.Key...)
}

// Needed returns how many events the limits of an Acquire must leave room for: N, and the extra
// ones of other checks of the same key, but at least one.
func (c *Check) Needed(extra int64) int64 { return max(1, c.N+extra) }

// IsBan reports whether the check is a [Ban].
func (c *Check) IsBan() bool { return c.Kind == BanCheck }

// IsLease reports whether the check takes or returns leases, see [LeaseKey].
func (c *Check) IsLease() bool { return c.Kind == LeaseCheck }

// IsValues reports whether the check is about different values, see [ValuesKey].
func (c *Check) IsValues() bool { return c.Kind == ValuesCheck }

// Op is one operation. Add and Count have exactly one check, Acquire has one or more.
type Op struct {
	Kind Kind
	// TS is the time of the event (Add, Acquire) or the end of the window (Count) in unix
	// milliseconds; 0 means now.
	TS  int64
	Ack Ack
	// CountDenied makes an Acquire count even if it is refused, unless a ban is active.
	CountDenied bool
	// Charge makes an Acquire count whatever the decision is, even while a ban is active: what it
	// pays for has happened.
	Charge bool
	// DryRun makes an Acquire count nothing. Its answer is the same as without DryRun. Other kinds
	// ignore it.
	DryRun bool
	// AllowNonOwner executes the operation here although another counter owns the key's partition:
	// in its place. The decision is based on the counts in the store and in this counter's memory.
	// Check.InPlace does so for a single key.
	AllowNonOwner bool
	// Recalled means, for an Add that takes back, that this counter sees all counts that others had
	// of the key when the operation was requested: either it was not lent then, or all others have
	// caught up since, and this one after them, see Counter.CatchUp in package syncer. Without it,
	// such an Add is refused with syncer.ErrLent while the key is lent, see Counter.IsLent.
	Recalled bool
	// Reserve, if not empty, makes an admitted Acquire reserve its events under this id instead of
	// counting them, until Counter.Confirm or Counter.Undo is called. That must happen soon,
	// because a partition can't be handed over meanwhile. CountDenied and Charge then have no
	// effect, and nothing waits for the store. Other kinds ignore it.
	Reserve string
	Checks  []Check
	// Hold is how long, in milliseconds, what an Acquire counts can be settled: until Until. A
	// counter ignores both.
	Hold, Until int64
	// Release makes a hold that nobody has settled count nothing from its end on. A counter ignores
	// it.
	Release bool
	// Rules are the rules with a ban that apply to some of the checks, Leases the leases that some
	// of them take, and Values the different values that some of them add, for
	// internal/companions. A counter ignores all three.
	Rules  []BanRule
	Leases []Lease
	Values []ValuesOf
}

// Reads reports whether the operation counts nothing, regardless of its result.
func (op *Op) Reads() bool { return op.Kind == Count || op.Kind == Acquire && op.DryRun }

// Counts reports whether the keys of the operation, which had this result and no error, were
// counted.
func (op *Op) Counts(res *Result) bool {
	return !op.Reads() && (op.Kind == Add || res.Allowed || op.CountsRefused(res))
}

// CountsRefused reports whether an Acquire counts although it has this result, a refusal.
func (op *Op) CountsRefused(res *Result) bool {
	return op.Charge || op.CountDenied && !op.Banned(res)
}

// NeededBeyond returns how many events check j of an Acquire needed room for in addition to the
// counts in this result, which include its events if they were counted, or would be without DryRun.
func (op *Op) NeededBeyond(j int, res *Result) int64 {
	c := &op.Checks[j]
	if res.Allowed || op.CountsRefused(res) {
		return c.Needed(0) - c.N
	}
	return c.Needed(0)
}

// Changes reports whether the operation, which had this result and no error, was counted or started
// a ban.
func (op *Op) Changes(res *Result) bool { return op.Counts(res) || op.startedBan(res) }

// TakesNewest reports whether the operation takes events back from the newest buckets that are not
// empty, because it names no time.
func (op *Op) TakesNewest() bool {
	return op.Kind == Add && op.TS == 0 && op.Checks[0].N < 0
}

// TakesBack reports whether the operation takes back earlier counts: those of its first check.
func (op *Op) TakesBack() bool {
	return op.Kind != Count && len(op.Checks) > 0 && op.Checks[0].N < 0 &&
		op.Checks[0].Kind == EventCheck
}

// MayBorrow reports whether a counter may execute the operation on borrowed keys, although another
// counter owns them: it happens now, counts no more than the allowance, starts no ban, compares no
// calendar period, because loans are parts of sliding windows, and needs no further knowledge of
// the keys.
func (op *Op) MayBorrow() bool {
	return op.TS == 0 && !op.CountDenied && !op.Charge && !op.needsOwner() &&
		(op.Kind != Add || len(op.Checks[0].Limits) == 0 && op.Checks[0].N >= 0) &&
		(op.Kind != Acquire || !op.hasPeriod())
}

// hasPeriod reports whether a limit is on calendar periods.
func (op *Op) hasPeriod() bool {
	for i := range op.Checks {
		for j := range op.Checks[i].Limits {
			if op.Checks[i].Limits[j].Period != nil {
				return true
			}
		}
	}
	return false
}

// Reserves reports whether an operation reserves instead of counting.
func (op *Op) Reserves() bool { return op.Reserve != "" && op.Kind == Acquire }

// Validate refuses an operation that a ladder can't answer, before anything is done with it, and
// returns the operation's time. ladder returns the ladder of a namespace; now is in unix
// milliseconds. The error is an *InvalidError.
func Validate(op *Op, ladder func(ns []byte) *leaparray.Ladder, now int64) (ts int64, err error) {
	ts = now
	for i := range op.Checks {
		check := &op.Checks[i]
		l := ladder(check.NS)
		if ts, err = op.Moment(l, now); err != nil {
			return 0, err
		}
		pos := i
		if len(op.Checks) == 1 {
			pos = -1
		}
		if check.IsLease() {
			if err := check.checkLease(pos, now); err != nil {
				return 0, err
			}
			continue
		}
		for j := range check.Limits {
			limit := &check.Limits[j]
			if w := limit.Longest(); w < 1 || w > l.Span() {
				return 0, &InvalidError{Check: pos, Limit: j, Field: "window",
					Detail: limit.tooLong(l, check.NS)}
			}
		}
	}
	return ts, nil
}

// Moment returns the time of an operation in a namespace with this ladder, in unix milliseconds.
// The error is an *InvalidError.
func (op *Op) Moment(l *leaparray.Ladder, now int64) (int64, error) {
	if op.TS == 0 {
		return now, nil
	}
	if ahead := leaparray.MaxAhead.Milliseconds(); op.TS > now+ahead {
		return 0, &InvalidError{Check: -1, Limit: -1, Field: op.timeField(), Detail: fmt.Sprintf(
			"%d is %d ms in the future (it is %d now), want at most %d ms", op.TS, op.TS-now,
			now, ahead)}
	}
	if op.TS <= now-l.Span() || op.TS < 0 {
		return 0, &InvalidError{Check: -1, Limit: -1, Field: op.timeField(), Detail: fmt.Sprintf(
			"%d is %v ago, farther back than the namespace covers (%v)", op.TS,
			FormatMillis(now-op.TS),
			FormatMillis(l.Span()))}
	}
	return op.TS, nil
}

// timeField returns the name of the operation's time in the HTTP API.
func (op *Op) timeField() string {
	if op.Kind == Count {
		return "at"
	}
	return "ts"
}

// ValuesNamespace begins the name of the namespace that has the different values of the keys of
// another one, whose name follows a slash. It has the settings of that namespace, and the
// partition of its key, so that both are decided, flushed, handed over and lost together.
const ValuesNamespace = "@values"

// IsValues reports whether a namespace holds different values, see [ValuesNamespace].
func IsValues(ns []byte) bool { return Companion(ns) == ValuesNamespace }

// ValuesKey returns the namespace and the key that hold the different values of a key.
func ValuesKey(ns, key []byte) (valuesNS, valuesKey []byte) {
	return companionKey(ValuesNamespace, ns, "", key)
}

// ValuesOf are different values that a check of an operation has beside its events: an Acquire adds
// them to the check's key if its limits, and all others of the operation, allow it.
type ValuesOf struct {
	// Check is the position of the check.
	Check  int
	Values [][]byte
	Limits []Limit
	// Shadow lists the positions of limits that are compared but refuse nothing.
	Shadow []int
}

// ImportedNamespace begins the name of the namespace that has the marks of the keys of another one,
// whose name follows a slash: a mark counts the events of one key that one source has contributed.
// It has the ladder and the other settings of that namespace, and the partition of its key, so that
// both are decided, flushed, handed over and lost together. Clients write marks like other keys.
const ImportedNamespace = "@imported"

// Imports reports whether an operation counts what another limiter has counted: it counts a mark
// beside the keys.
func (op *Op) Imports() bool {
	return len(op.Checks) > 1 && slices.ContainsFunc(op.Checks, func(c Check) bool {
		return IsImported(c.NS)
	})
}

// IsImported reports whether a namespace holds marks, see [ImportedNamespace].
func IsImported(ns []byte) bool { return Companion(ns) == ImportedNamespace }

// ImportedKey returns the namespace and the key of the mark of a source of that name on a key. The
// name has no slash.
func ImportedKey(ns, name, key string) (markNS, markKey string) {
	if ns == "" {
		ns = DefaultNamespace
	}
	return ImportedNamespace + "/" + ns, name + "/" + key
}

// ResetKey returns the namespace and the key of the mark that counts the resets of a key: that of a
// source without a name.
func ResetKey(ns, key []byte) (markNS, markKey []byte) {
	return companionKey(ImportedNamespace, ns, "", key)
}

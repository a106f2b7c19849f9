package syncer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/rounds"
	"twotier.dev/twotier/syncer/store"
)

// OnCold determines the answer to an Acquire of a key that is not in memory while the store is
// known to be down, which means unreachable. It applies to nothing else. While the store is late or
// answers with an error, or if it refuses this key, the error is ErrUnavailable.
type OnCold string

// The answers for a key whose past is out of reach.
const (
	// OnColdAllow decides by this process's counts.
	OnColdAllow OnCold = "allow"
	// OnColdDeny refuses.
	OnColdDeny OnCold = "deny"
)

// Namespace is the configuration of a namespace.
type Namespace struct {
	// Ladder defaults to leaparray.DefaultLevels.
	Ladder *leaparray.Ladder
	// OnCold defaults to OnColdAllow.
	OnCold OnCold
	// MaxKeys bounds the keys in memory. A new key takes the place of one in the same namespace
	// that the store has and that was not used in the last seconds; if there is none, the new key
	// is refused with ErrMaxKeys. Without a store, it takes the place of a key whose counts have
	// left every window. Namespaces that are not configured share the bound of the default
	// one. 0 means that only memory bounds them.
	MaxKeys int64
	// Unlisted excludes its keys from [Counter.Top].
	Unlisted bool
	// MostValues is how many different values of a key are counted exactly, 1 to MostValues.
	// Default: leaparray.DefaultMostValues. A key with more has a sample of them.
	MostValues int
}

// MostValues is the largest number of values of a key that can be counted exactly.
const MostValues = 65_536

// Options configure a [Counter]. The zero value of a field means its default.
type Options struct {
	// Store keeps the counts of record. Without one, memory alone has the counts: nothing is
	// flushed or loaded, and a full counter forgets the keys that have counted least.
	Store store.Store
	// Now returns the time, in unix milliseconds, for events without one. It must never go back.
	// Default: the wall clock at start, advanced by the monotonic clock.
	Now func() int64
	// Placement maps keys to partitions. Default: DefaultPartitions, seed 0.
	Placement twotier.Placement
	// Namespaces by name. A namespace that is not in the map is counted like DefaultNamespace.
	Namespaces map[string]Namespace
	// Ack is the meaning of AckDefault. Default: AckMemory.
	Ack twotier.Ack
	// Writer identifies this incarnation of the process to the store. Default: 12 random
	// characters.
	Writer string
	// FlushInterval is how long a count that nobody waits for stays only in memory, plus or minus a
	// tenth. Under load it is longer, up to a quarter of MaxLag, so that more events of a key share
	// a write. Default: 200 ms.
	FlushInterval time.Duration
	// MaxLag bounds the age of the oldest unacknowledged count, as long as the store answers. A key
	// that is not yet waiting for the store needs room before it is counted, see ErrBehind. Room
	// follows the pace at which the store last accepted keys, with enough margin for the store to
	// become ten times slower at once; if it becomes k times slower than that, the oldest count may
	// be k times as old. Counts made while the store did not answer are older. MaxLag must not be
	// shorter than two flush intervals, because counts wait for the next flush anyway. 0 means that
	// only memory is bounded.
	MaxLag time.Duration
	// LoadTimeout bounds how long an operation without a deadline waits for a key to be loaded.
	// Default: 5 s.
	LoadTimeout time.Duration
	// RoundTimeout bounds one exchange with the store. After that its outcome is unknown. Default:
	// 1 s.
	RoundTimeout time.Duration
	// VerifyInterval is how often an idle partition verifies that the store still holds all
	// acknowledged counts, and learns of changes by others. Default: 5 s.
	VerifyInterval time.Duration
	// Exchanges is the number of concurrent exchanges with the store that flush; as many more may
	// load. Default: 4.
	Exchanges int
	// MaxMemory bounds the memory for keys and buckets, in bytes; buckets of known keys may exceed
	// it by a quarter. Any partition may use memory that the others leave free; one below an even
	// share gets room from the largest. Default: 1 GiB.
	MaxMemory int64
	// MaxRoundKeys bounds the keys in one round. Default: 512.
	MaxRoundKeys int
	// NotOwner means that another counter decides about every partition until StartOwning or
	// ImportHandoff is called for it. Default: this counter decides about all of them.
	NotOwner bool
	// Pulse detects that the process stood still, during which another counter may have begun to
	// decide about its partitions. While Pulse does not cover the present, the counter refuses
	// decisions with ErrNotOwner. Default: this counter decides alone.
	Pulse Pulse
	// Logger receives changes of state. Default: none.
	Logger *slog.Logger
}

// Pulse detects that the process stood still. elapsed.Pulse implements it.
type Pulse interface {
	// Covers reports whether the process has not stood still up to a time from Options.Now.
	Covers(now int64) bool
	// Stops returns how often the process stood still. HasRunSince reports whether it has not since
	// Stops returned this number.
	Stops() uint64
	HasRunSince(stops uint64) bool
}

func (o *Options) fill() error {
	if o.Store == nil {
		o.MaxLag = 0 // no count waits for the store
	}
	o.Placement.Partitions = cmp.Or(o.Placement.Partitions, twotier.DefaultPartitions)
	if o.Now == nil {
		start := time.Now()
		o.Now = func() int64 { return start.UnixMilli() + time.Since(start).Milliseconds() }
	}
	o.Writer = cmp.Or(o.Writer, rounds.NewWriter())
	o.Ack = cmp.Or(o.Ack, twotier.AckMemory)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.FlushInterval = cmp.Or(o.FlushInterval, 200*time.Millisecond)
	o.LoadTimeout = cmp.Or(o.LoadTimeout, 5*time.Second)
	o.RoundTimeout = cmp.Or(o.RoundTimeout, time.Second)
	o.VerifyInterval = cmp.Or(o.VerifyInterval, 5*time.Second)
	o.Exchanges = cmp.Or(o.Exchanges, 4)
	o.MaxMemory = cmp.Or(o.MaxMemory, 1<<30)
	o.MaxRoundKeys = cmp.Or(o.MaxRoundKeys, 512)
	return o.check()
}

func (o *Options) check() error {
	switch {
	case o.Placement.Partitions < 1 || o.Placement.Partitions > 1<<16:
		return fmt.Errorf("syncer: %d partitions, want 1 to %d", o.Placement.Partitions, 1<<16)
	case o.FlushInterval < time.Millisecond || o.LoadTimeout < 0 || o.RoundTimeout < 0 ||
		o.VerifyInterval < 0 || o.MaxLag < 0:
		return errors.New("syncer: intervals and timeouts must be positive")
	case o.Exchanges < 1 || o.MaxRoundKeys < 1:
		return errors.New("syncer: Exchanges and MaxRoundKeys must be positive")
	case o.MaxMemory/int64(o.Placement.Partitions) < 8<<10:
		return fmt.Errorf("syncer: %d bytes of memory for %d partitions, want at least 8 KiB each",
			o.MaxMemory, o.Placement.Partitions)
	}
	return nil
}

// longestLinger is how long dirty keys linger at most: with one flush interval more, plus a tenth,
// they wait for a quarter of the lag.
func (o *Options) longestLinger() time.Duration {
	return max(0, o.MaxLag/overduePart-o.FlushInterval*11/10)
}

// maxReportAge is the maximum age of the store's last report, if a decision relies on it.
func (o *Options) maxReportAge() time.Duration { return 2 * o.FlushInterval }

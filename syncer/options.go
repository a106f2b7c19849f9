package syncer

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"twotier.dev/twotier/leaparray"
)

// OnCold says how an Acquire of a key that is not in memory is answered while the store is known to
// be down: not while it is late, nor because it refuses to write.
type OnCold string

// The answers for a key whose past is out of reach.
const (
	// OnColdAllow decides on what this process knows.
	OnColdAllow OnCold = "allow"
	// OnColdDeny refuses.
	OnColdDeny OnCold = "deny"
)

// Namespace is how the keys of a namespace are counted.
type Namespace struct {
	// Ladder defaults to leaparray.DefaultLevels.
	Ladder *leaparray.Ladder
	// OnCold defaults to OnColdAllow.
	OnCold OnCold
	// MaxKeys bounds the keys in memory: a new one takes the place of another of the namespace that
	// the store has and that was not used in the last seconds, or is refused with ErrMaxKeys.
	// Namespaces that are not listed share that of the default one. 0 is no bound but that of
	// memory.
	MaxKeys int64
}

// Options configure a [Counter]. The zero value of a field means its default.
type Options struct {
	// Store keeps the counts of record. Required.
	Store Store
	// Now returns the time that events without one are counted at, in unix milliseconds. It must
	// never go backwards. Default: the wall clock at start plus the monotonic clock.
	Now func() int64
	// Placement maps keys to partitions. Default: DefaultPartitions, seed 0.
	Placement Placement
	// Namespaces by name. A namespace that is not listed is counted like DefaultNamespace.
	Namespaces map[string]Namespace
	// Ack is what AckDefault means. Default: AckMemory.
	Ack Ack
	// Writer identifies this incarnation of the process to the store. Default: 12 random
	// characters.
	Writer string
	// FlushInterval is how long a count stays in memory alone if nobody waits for it, give or take
	// a tenth. Default: 200 ms.
	FlushInterval time.Duration
	// MaxLag bounds the age of the oldest count that the store has not acknowledged, as long as the
	// store answers: before a key that the store would have to be told about anew is counted there
	// must be room, see ErrBehind. Room is measured by how fast the store took what it was sent
	// last, and small enough for the store to become ten times slower at once; if it becomes k
	// times slower than that, the oldest count may be k times as old. What was counted while the
	// store did not answer is older. It is not to be shorter than two flush intervals, as counts
	// wait for the next flush anyway. 0 is no bound but that of memory.
	MaxLag time.Duration
	// LoadTimeout bounds how long an operation whose context has no deadline waits for a cold key.
	// Default: 5 s.
	LoadTimeout time.Duration
	// RoundTimeout bounds one exchange with the store, after which its outcome is unknown. Default:
	// 1 s.
	RoundTimeout time.Duration
	// VerifyInterval is how often an idle partition asks the store whether it still holds what it
	// acknowledged, and what others have counted. Default: 5 s.
	VerifyInterval time.Duration
	// Exchanges is the number of exchanges with the store at a time that flush, and of those beside
	// them that load. Default: 4.
	Exchanges int
	// MaxMemory bounds the memory for keys and buckets, in bytes; those of keys that are known may
	// exceed it by a quarter. Any partition may use what the others don't; a partition that uses
	// less than an even share gets room from the largest. Default: 1 GiB.
	MaxMemory int64
	// MaxRoundKeys bounds the keys in one round. Default: 512.
	MaxRoundKeys int
	// NotOwner says that another counter decides about every partition until StartOwning or
	// ImportHandoff is called for it. Default: this one decides about all.
	NotOwner bool
	// Logger is told of changes of state. Default: none.
	Logger *slog.Logger
}

func (o *Options) fill() error {
	if o.Store == nil {
		return errors.New("syncer: Options.Store is missing")
	}
	if o.Placement.Partitions == 0 {
		o.Placement.Partitions = DefaultPartitions
	}
	if o.Now == nil {
		start := time.Now()
		o.Now = func() int64 { return start.UnixMilli() + time.Since(start).Milliseconds() }
	}
	if o.Writer == "" {
		o.Writer = newWriter()
	}
	if o.Ack == AckDefault {
		o.Ack = AckMemory
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	defaultTo(&o.FlushInterval, 200*time.Millisecond)
	defaultTo(&o.LoadTimeout, 5*time.Second)
	defaultTo(&o.RoundTimeout, time.Second)
	defaultTo(&o.VerifyInterval, 5*time.Second)
	defaultTo(&o.Exchanges, 4)
	defaultTo(&o.MaxMemory, 1<<30)
	defaultTo(&o.MaxRoundKeys, 512)
	return o.check()
}

func defaultTo[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
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
	case len(o.Namespaces) > 255:
		return fmt.Errorf("syncer: %d namespaces, want at most 255", len(o.Namespaces))
	}
	return nil
}

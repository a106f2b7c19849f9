package store

import (
	"context"
	"errors"
	"fmt"

	"twotier.dev/twotier"
)

// ErrNotApplied is wrapped by a round's error when the store certainly did not apply it. Every
// other error leaves the outcome unknown.
var ErrNotApplied = errors.New("not applied")

// ErrRefused is an ErrNotApplied: the store answered but refuses the round, like a full store that
// can still be read, or one that is loading its data. It is not unreachable.
var ErrRefused = fmt.Errorf("refused: %w", ErrNotApplied)

// ErrLate is wrapped by a round's error when the store did not answer the round in time although it
// can be reached: meanwhile it sent a part of the answer, or answered another round. The round may
// or may not have been applied.
var ErrLate = errors.New("the store is late")

// Store keeps the counts of record. Packages redisstore and internal/embedded implement it, and
// package storetest checks that an implementation behaves as described here.
type Store interface {
	// Exchange applies the rounds, in any order, and sets the outcome of each. It returns once all
	// are answered or ctx is done, and keeps no reference to them. Calls may overlap. At most one
	// round of a partition is in flight at a time, plus at most one that is Aside.
	//
	// A round is atomic, and a round with a sequence is applied at most once: if the store already
	// has that sequence or a later one, it only reads. If the store has less than the state in the
	// round (Acked, Version, Quieted), or other data (Epoch), it has lost data: it changes nothing
	// and reports Lost.
	Exchange(ctx context.Context, rounds []*Round)
}

// Mark is the last round with a sequence that a store acknowledged to a counter for one partition.
// A store with that round has all earlier ones. Seq is 0 if there was none.
type Mark struct {
	Partition int
	Writer    string
	Seq       uint64
}

// Keeper is a Store that can determine when acknowledged counts would survive its loss. ack is
// AckReplica or AckDisk.
type Keeper interface {
	// Keeps returns nil if ack is available for counts in the partitions, in all partitions if none
	// is named. It returns an *InvalidError if the store or its configuration can't provide ack, or
	// an error that wraps ErrUnavailable if it can't at the moment.
	Keeps(ctx context.Context, ack twotier.Ack, partitions ...int) error
	// Keep waits until everything up to the marks is kept at the level of ack. It returns an error
	// for each mark, in their order, or nil if all are kept. A non-nil error wraps
	// ErrUnknownOutcome: the mark is not kept yet when ctx is done, or the store has lost it
	// already.
	Keep(ctx context.Context, ack twotier.Ack, marks []Mark) []error
}

package syncer

import "twotier.dev/twotier/syncer/store"

// The contract of a store, see package store.
type (
	// Store keeps the counts of record.
	Store = store.Store
	// Keeper is a Store that can determine when acknowledged counts would survive its loss.
	Keeper = store.Keeper
	// Round is one exchange with the store about one partition.
	Round = store.Round
	// KeyRound is one key's part of a round.
	KeyRound = store.KeyRound
	// Bucket is one bucket of a key, with a number.
	Bucket = store.Bucket
	// Mark is the last round that a store acknowledged for one partition.
	Mark = store.Mark
)

// WholeLog is the ContentLog of a key that nobody else changes in Quiet rounds.
const WholeLog = store.WholeLog

// The errors of a round, see package store.
var (
	// ErrNotApplied means that the store certainly did not apply a round.
	ErrNotApplied = store.ErrNotApplied
	// ErrRefused is an ErrNotApplied of a store that answered.
	ErrRefused = store.ErrRefused
	// ErrLate means that a store that can be reached did not answer a round in time.
	ErrLate = store.ErrLate
)

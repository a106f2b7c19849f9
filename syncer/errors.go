package syncer

import (
	"fmt"

	"twotier.dev/twotier"
)

// Errors that the operations of a [Counter] return. The text of each says when.
var (
	errLate = fmt.Errorf("%w: the store has not sent the key's counts in time",
		twotier.ErrUnavailable)
	errKeyRefused = fmt.Errorf("%w: the store refuses to read this key (another type under its "+
		"name?)", twotier.ErrUnavailable)
	errExpired = fmt.Errorf("%w: the time of the request was up before its turn",
		twotier.ErrUnavailable)
	// errUnread is an ErrUnavailable for a query whose answer can't be marked as coming from memory
	// alone.
	errUnread = fmt.Errorf("%w: the store can't be asked for the key's counts, or they "+
		"can't be read", twotier.ErrUnavailable)
	errRefusedKey = fmt.Errorf(
		"%w: counted in memory, but the store refuses this key (another type under its name?)",
		twotier.ErrUnknownOutcome)
	errStoreDown = fmt.Errorf("%w: without the store it is unknown how much can be taken back",
		twotier.ErrUnavailable)
	errMarkUnknown = fmt.Errorf("%w: without the store it is unknown whether the hold was settled "+
		"or renewed before", twotier.ErrUnavailable)
	errNotStored = fmt.Errorf("%w: what the hold counted has not arrived in the store yet",
		twotier.ErrUnavailable)
	errTakesReserved = fmt.Errorf("%w: only an operation on keys of one owner can take counts back",
		twotier.ErrUnavailable)
	errStopped = fmt.Errorf("%w: counted in memory, but closed before the store acknowledged it",
		twotier.ErrUnknownOutcome)
	// errFailing means that the caller doesn't wait for a count while the store can't accept it.
	errFailing  = fmt.Errorf("%w: the store does not accept it", twotier.ErrUnknownOutcome)
	errOnTheWay = fmt.Errorf("%w: counts of the key, or an earlier reset, are on their way to "+
		"the store", twotier.ErrUnknownOutcome)
	errStoodStill = fmt.Errorf("%w: counted, but this process stood still before it could answer, "+
		"and another one may have decided meanwhile", twotier.ErrUnknownOutcome)
	errHandedOff = fmt.Errorf("%w: counted, and handed over to another node before the store "+
		"acknowledged it", twotier.ErrUnknownOutcome)
)

// ErrLent refuses to take counts back while others may have counted some of them. It is an
// ErrUnavailable.
var ErrLent = fmt.Errorf("%w: other nodes count this key for its owner, which does not know yet "+
	"what there is to take back", twotier.ErrUnavailable)

package syncer

import (
	"fmt"

	"twotier.dev/twotier"
)

// Errors that the operations of a [Counter] wrap.
var (
	// errLate is an ErrUnavailable: the store can be reached but has not answered in time.
	errLate = fmt.Errorf("%w: the store has not sent the key's counts in time",
		twotier.ErrUnavailable)
	// errKeyRefused is an ErrUnavailable of an Acquire: the store can be reached, but sends no
	// counts of this key.
	errKeyRefused = fmt.Errorf("%w: the store refuses to read this key (another type under its "+
		"name?)", twotier.ErrUnavailable)
	// errExpired is an ErrUnavailable of an operation in a batch whose request ran out of time
	// first.
	errExpired = fmt.Errorf("%w: the time of the request was up before its turn",
		twotier.ErrUnavailable)
	// errUnread is an ErrUnavailable for a query whose answer can't be marked as coming from memory
	// alone.
	errUnread = fmt.Errorf("%w: the store can't be asked for the key's counts, or they "+
		"can't be read", twotier.ErrUnavailable)
	// errRefusedKey is the ErrUnknownOutcome of an operation that waits for the store.
	errRefusedKey = fmt.Errorf(
		"%w: counted in memory, but the store refuses this key (another type under its name?)",
		twotier.ErrUnknownOutcome)
	// errStoreDown is an ErrUnavailable of an operation that is impossible without the store.
	errStoreDown = fmt.Errorf("%w: without the store it is unknown how much can be taken back",
		twotier.ErrUnavailable)
	// errMarkUnknown is an ErrUnavailable of the settlement of a hold.
	errMarkUnknown = fmt.Errorf("%w: without the store it is unknown whether the hold was settled "+
		"or renewed before", twotier.ErrUnavailable)
	// errNotStored is an ErrUnavailable of the settlement of a hold.
	errNotStored = fmt.Errorf("%w: what the hold counted has not arrived in the store yet",
		twotier.ErrUnavailable)
	// errTakesReserved refuses to reserve what an operation takes back.
	errTakesReserved = fmt.Errorf("%w: only an operation on keys of one owner can take counts back",
		twotier.ErrUnavailable)
	// errStopped is the ErrUnknownOutcome of an operation that was waiting for the store when the
	// counter closed.
	errStopped = fmt.Errorf("%w: counted in memory, but closed before the store acknowledged it",
		twotier.ErrUnknownOutcome)
	// errFailing means that the caller doesn't wait for a count while the store can't accept it.
	errFailing = fmt.Errorf("%w: the store does not accept it", twotier.ErrUnknownOutcome)
	// errOnTheWay is the ErrUnknownOutcome of DropKey.
	errOnTheWay = fmt.Errorf("%w: counts of the key, or an earlier reset, are on their way to "+
		"the store", twotier.ErrUnknownOutcome)
	// errStoodStill is the ErrUnknownOutcome of an Acquire.
	errStoodStill = fmt.Errorf("%w: counted, but this process stood still before it could answer, "+
		"and another one may have decided meanwhile", twotier.ErrUnknownOutcome)
	// errHandedOff is the ErrUnknownOutcome of an operation that waited for the store.
	errHandedOff = fmt.Errorf("%w: counted, and handed over to another node before the store "+
		"acknowledged it", twotier.ErrUnknownOutcome)
)

// ErrLent refuses to take counts back while others may have counted some of them. It is an
// ErrUnavailable.
var ErrLent = fmt.Errorf("%w: other nodes count this key for its owner, which does not know yet "+
	"what there is to take back", twotier.ErrUnavailable)

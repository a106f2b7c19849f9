package distinct

import (
	"context"
	"fmt"
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// ErrForeign is a syncer.ErrRefused: under the name of the key the store has something of another
// program. Nothing of the key can be written until somebody removes it.
var ErrForeign = fmt.Errorf("%w: under this name Redis has what is not distinct values",
	syncer.ErrRefused)

// Bucket is an encoded sketch.Set.
type Bucket struct {
	// Stretch is the time that it counts. Another node's may have a width that is not on this one's
	// ladder.
	leaparray.Stretch
	Data []byte
}

// Exchange compares one key with the store and, if the store has what is expected, writes.
type Exchange struct {
	Partition int
	NS, Key   []byte
	// Expect is the version that the sender has merged; "" if it knows of none.
	Expect string
	// Version is that of what is written; "" only compares.
	Version string
	// Sets are the buckets to write. Deletes are those to delete first, without data.
	Sets, Deletes []Bucket
	// Mark is that of the last reset that the sender knows of, "" if none. It is written too.
	// Reset says that it is to be made now: what is written is the mark alone, by which others know
	// that what they have is void, and everything else of the key is deleted.
	Mark  string
	Reset bool
	// TTL is the time to live to set with a write, in milliseconds.
	TTL int64

	// Found is the version that the store has: if it is not Expect, nothing was written, and
	// Buckets are all of the key's, and FoundMark is the mark that it has.
	Found     string
	FoundMark string
	Buckets   []Bucket
	// Err says why the key could not be compared. It may or may not have been written then.
	Err error

	cut       time.Time // when Sets were read
	suspected int       // how many resets of unknown outcome the sender knew of then
}

// Matched reports whether the store had what was expected, and so has what was to be written.
func (x *Exchange) Matched() bool { return x.Err == nil && x.Found == x.Expect }

// Store keeps what engines have seen. It is declared here, by its only user; redisstore implements
// it.
type Store interface {
	// Compare makes the exchanges, each of which is atomic, and sets their outcomes.
	Compare(ctx context.Context, list []*Exchange)
}

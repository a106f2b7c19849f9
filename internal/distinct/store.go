package distinct

import (
	"context"
	"fmt"
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// ErrForeign wraps syncer.ErrRefused: the store holds another program's data under the name of the
// key. Nothing of the key can be written until that data is removed.
var ErrForeign = fmt.Errorf("%w: under this name Redis has what is not distinct values",
	syncer.ErrRefused)

// Bucket is an encoded sketch.Set.
type Bucket struct {
	// Stretch is the time that the bucket counts. Another node's bucket may have a width that is
	// not on this node's ladder.
	leaparray.Stretch
	Data []byte
}

// Exchange compares one key with the store and, if the version is the expected one, writes.
type Exchange struct {
	Partition int
	NS, Key   []byte
	// Expect is the version that the sender has merged; "" if there is none.
	Expect string
	// Version is the version to write; "" only compares.
	Version string
	// Sets are the buckets to write. Deletes are the buckets to delete first, without data.
	Sets, Deletes []Bucket
	// Mark is the mark of the last reset known to the sender, "" if none. It is written too. Reset
	// makes that reset now: the store keeps the mark alone, which voids other nodes' values, and
	// deletes everything else of the key.
	Mark  string
	Reset bool
	// TTL is the time to live to set with a write, in milliseconds.
	TTL int64

	// Found is the store's version. If it is not Expect, nothing was written, Buckets are all
	// buckets of the key, and FoundMark is the key's mark.
	Found     string
	FoundMark string
	Buckets   []Bucket
	// Err is why the key could not be compared. The write may or may not have happened then.
	Err error

	cut       time.Time // when Sets were read
	suspected int       // the sender's doubts so far, at that time
}

// Matched reports whether the store had the expected version, and so has executed the write.
func (x *Exchange) Matched() bool { return x.Err == nil && x.Found == x.Expect }

// Store keeps the values that engines count. It is declared here, by its only user; redisstore
// implements it.
type Store interface {
	// Compare makes the exchanges, each of which is atomic, and sets their outcomes.
	Compare(ctx context.Context, list []*Exchange)
}

package distinct

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// ErrForeign wraps syncer.ErrRefused: the store holds another program's data under the name of the
// key. Nothing of the key can be written until that data is removed.
var ErrForeign = fmt.Errorf("%w: under this name Redis has what is not distinct values",
	syncer.ErrRefused)

// Chunk is an encoded chunk of a leaparray.Values.
type Chunk struct {
	Index int
	// Data is empty if there are no values in the chunk: a store then deletes it.
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
	// Head and Chunks are to be written. Head is always that of the whole key.
	Head   []byte
	Chunks []Chunk
	// TTL is the time to live to set with a write, in milliseconds.
	TTL int64

	// Found is the store's version. If it is not Expect, nothing was written, and Head and Chunks
	// are what the store has.
	Found string
	// Err is why the key could not be compared. The write may or may not have happened then.
	Err error

	cut time.Time // when Chunks were read
}

// Matched reports whether the store had the expected version, and so has executed the write.
func (x *Exchange) Matched() bool { return x.Err == nil && x.Found == x.Expect }

// write makes the exchange write the changed chunks of the values.
func (x *Exchange) write(version string, v *leaparray.Values) {
	x.Version, x.Head = version, v.AppendHead(nil)
	for i := range leaparray.ValueChunks {
		if v.Changed()>>i&1 == 1 {
			x.Chunks = append(x.Chunks, Chunk{i, v.AppendChunk(nil, i)})
		}
	}
}

// stored returns the values in the store, without chunks that another program has written there.
func (x *Exchange) stored() (v leaparray.Values) {
	_ = v.MergeHead(x.Head)
	slices.SortFunc(x.Chunks, func(a, b Chunk) int { return a.Index - b.Index })
	for _, c := range x.Chunks {
		_ = v.MergeChunk(c.Data, math.MaxInt)
	}
	return v
}

// Store keeps the values that engines count. It is declared here, by its only user; redisstore
// implements it.
type Store interface {
	// Compare makes the exchanges, each of which is atomic, and sets their outcomes.
	Compare(ctx context.Context, list []*Exchange)
}

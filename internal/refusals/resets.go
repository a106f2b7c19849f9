package refusals

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// resetTime is longer than a reset takes plus the time that a refusal noted during it is
// remembered.
const resetTime = 5 * time.Second

// resets records which keys are being reset. Keys that share a slot are not distinguished.
type resets struct {
	seed  maphash.Seed
	until [1024]atomic.Int64 // in Unix nanoseconds
}

func (r *resets) slot(name []byte) *atomic.Int64 {
	return &r.until[maphash.Bytes(r.seed, name)%uint64(len(r.until))]
}

// record records that a key is being reset.
func (r *resets) record(name []byte) { r.slot(name).Store(time.Now().Add(resetTime).UnixNano()) }

// isRecent reports whether a key may have been reset within resetTime.
func (r *resets) isRecent(name []byte) bool {
	return time.Now().UnixNano() < r.slot(name).Load()
}

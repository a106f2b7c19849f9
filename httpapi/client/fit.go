package client

import (
	"errors"
	"net/http"
	"sync/atomic"
)

// sizeLimit is the number of bytes of operations that a node accepts in a request. It begins with a
// server's maximum, shrinks when the node finds a request too large, and grows again slowly.
type sizeLimit struct{ less atomic.Int64 }

// leastFit is the number of bytes that a request may always have.
const leastFit = 8 << 10

// maxBytes returns the number of bytes.
func (f *sizeLimit) maxBytes() int { return maxBody - int(f.less.Load()) }

// shrink records that a request of so many bytes was too large.
func (f *sizeLimit) shrink(bytes int) {
	f.less.Store(int64(maxBody - min(max(bytes/2, leastFit), maxBody)))
}

// grow records that a request of so many bytes was accepted. Only a nearly full one is evidence
// that more would fit.
func (f *sizeLimit) grow(bytes int) {
	less := f.less.Load()
	if most := maxBody - less; less > 0 && int64(bytes) > most*3/4 {
		f.less.CompareAndSwap(less, max(0, less-most/16))
	}
}

// isTooLarge reports whether a node has found a request too large, and done nothing.
func isTooLarge(err error) bool {
	p, ok := errors.AsType[*Problem](err)
	return ok && p.Status == http.StatusRequestEntityTooLarge && p.isFromTwotier()
}

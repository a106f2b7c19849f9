package load

import (
	"math/rand/v2"
	"strconv"
	"sync/atomic"
)

// bodies makes the bodies of requests for one worker.
type bodies struct {
	options *Options
	next    func() uint64
	prefix  string
	buf     []byte
}

// newBodies returns the bodies of worker w. With distinct keys, serial numbers them across workers,
// and run distinguishes them from the keys of other runs.
func newBodies(o *Options, w int, run int64, serial *atomic.Uint64) *bodies {
	rng := rand.New(rand.NewPCG(o.Seed, uint64(w)))
	b := &bodies{options: o, prefix: "bench:"}
	fresh := func() uint64 { return serial.Add(1) }
	if o.Dist == "distinct" {
		b.prefix += strconv.FormatInt(run, 36) + ":"
	}
	b.next, _ = Keys(o.Dist, rng, uint64(o.Keys), fresh) // fill has checked Dist
	return b
}

// body returns the next body. It is valid until the next call.
func (b *bodies) body() []byte {
	b.buf = append(b.buf[:0], '{')
	if b.options.Op != "batch" {
		b.appendOp()
		return b.buf
	}
	b.buf = append(b.buf, `"quiet":true,"ops":[`...)
	for i := range b.options.Batch {
		if i > 0 {
			b.buf = append(b.buf, ',')
		}
		b.buf = append(b.buf, `{"op":"add",`...)
		b.appendOp()
	}
	b.buf = append(b.buf, "]}"...)
	return b.buf
}

// appendOp appends the fields of one operation and closes its object.
func (b *bodies) appendOp() {
	if b.options.NS != "" {
		b.buf = append(b.buf, `"ns":`...)
		b.buf = strconv.AppendQuote(b.buf, b.options.NS)
		b.buf = append(b.buf, ',')
	}
	b.buf = append(b.buf, `"key":"`...)
	b.buf = append(b.buf, b.prefix...)
	b.buf = strconv.AppendUint(b.buf, b.next(), 10)
	b.buf = append(b.buf, '"')
	if b.options.Op == "acquire" {
		b.buf = append(b.buf, `,"limits":`...)
		b.buf = append(b.buf, b.options.Limits...)
	}
	b.buf = append(b.buf, '}')
}

package resp

import (
	"math"
	"math/bits"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/request"
)

// parseThrottle adds the operation of CL.THROTTLE key max_burst count period [quantity], in which
// count events may pass every period seconds, and max_burst more at once.
//
// redis-cell's generic cell rate algorithm lets max_burst+1 through at once, and count in a period
// after that. The sliding window of max_burst+1 in period*(max_burst+1)/count seconds exceeds
// neither; it is stricter after a burst, since it lets nothing through before the burst leaves the
// window. A quantity of 0 only reads. Gateways derive keys from client input: an invalid key is
// hashed.
func (w *work) parseThrottle(args [][]byte) errorReply {
	if len(args) < 5 || len(args) > 6 {
		return wrongArguments("cl.throttle")
	}
	numbers := [...]int64{0, 0, 0, 1} // max_burst, count, period, quantity
	for i, arg := range args[2:] {
		v, ok := parseInteger(arg)
		if least := [...]int64{0, 1, 1, 0}[i]; !ok || v < least || v > request.MaxN {
			field := [...]string{"max_burst", "count", "period", "quantity"}[i]
			return fieldError(field, [...]string{"want 0 to 2147483647", request.WantN}[least])
		}
		numbers[i] = v
	}
	most, quantity := numbers[0]+1, numbers[3]
	kind := twotier.Acquire
	if quantity == 0 {
		kind = twotier.Count
	}
	d := w.beginOp(args)
	w.AddLimit(twotier.Limit{Max: most, Window: throttleWindow(numbers[2], most, numbers[1])}, nil)
	d.op.Kind = kind
	d.check = twotier.Check{Key: request.KeyOf(args[1]), N: max(1, quantity)}
	if e := d.endCheck(); e != "" {
		w.DropOp()
		return e
	}
	w.EndOp(&d.op, uint8(shapeThrottle))
	return ""
}

// throttleWindow returns period*most/count seconds in milliseconds, rounded up.
func throttleWindow(period, most, count int64) int64 {
	hi, lo := bits.Mul64(uint64(period)*1000, uint64(most)) // both positive, below 2^42
	lo, carry := bits.Add64(lo, uint64(count)-1, 0)
	if hi += carry; hi >= uint64(count) {
		return math.MaxInt64 // longer than any window
	}
	ms, _ := bits.Div64(hi, lo, uint64(count))
	return int64(min(ms, math.MaxInt64))
}

// appendThrottle appends the five integers of redis-cell: whether the action was refused, the
// limit, most, the remaining room, the seconds until a retry (-1 if the action was not refused, or
// can never pass), and an upper bound on the seconds until the whole limit is free.
func appendThrottle(b []byte, op *twotier.Op, res *twotier.Result, most int64) []byte {
	window := op.Checks[0].Limits[0].Window
	used, bucket := int64(0), int64(0)
	if limits := limitsOf(res); len(limits) > 0 {
		used, bucket = limits[0].Hi, limits[0].BucketMS
	}
	refused := op.Kind == twotier.Acquire && !res.Allowed
	retry, reset := int64(-1), int64(0)
	if refused && res.RetryAfter >= 0 {
		retry = ceilSeconds(res.RetryAfter)
	}
	if used > 0 {
		// An event leaves the window with the last millisecond of its bucket.
		reset = max(retry, ceilSeconds(window+max(1, bucket)-1))
	}
	b = appendArray(b, 5)
	for _, v := range [...]int64{
		boolInt(refused), most, max(0, most-used), retry, reset,
	} {
		b = appendInt(b, v)
	}
	return b
}

// ceilSeconds rounds milliseconds up to whole seconds.
func ceilSeconds(ms int64) int64 { return ms/1000 + boolInt(ms%1000 > 0) }

package peer

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// Bounds of namespaces and keys: those of companions are longer than the clients', see
// twotier.Companion.
const (
	maxNS  = len("@settled25h") + 1 + 64
	maxKey = 64 + 1 + 256
)

// limitBytes is the minimum size of a limit and its result where they are spelled out, and
// maxLimits is the number that fits into the body of a message that spells out all of them.
// Operations like the previous one could demand many more: the reader of a message bounds them by
// maxLimits, and the writer counts limitBytes for each.
const (
	limitBytes = 5
	maxLimits  = 2 * (maxBody + maxMessage) / limitBytes
)

// sameExceptKeys reports whether two operations differ in their keys only.
func sameExceptKeys(a, b *twotier.Op) bool {
	if headOf(a) != headOf(b) || a.TS != b.TS || len(a.Checks) != len(b.Checks) {
		return false
	}
	for i := range a.Checks {
		x, y := &a.Checks[i], &b.Checks[i]
		if x.Kind != y.Kind || x.N != y.N || x.Ban != y.Ban || x.Until != y.Until ||
			!bytes.Equal(x.NS, y.NS) || !slices.Equal(x.Values, y.Values) ||
			!slices.Equal(x.Limits, y.Limits) {
			return false
		}
	}
	return true
}

// appendKeys appends the keys of an operation like the previous one.
func appendKeys(b []byte, op *twotier.Op) []byte {
	for i := range op.Checks {
		b = appendBytes(b, op.Checks[i].Key)
	}
	return b
}

// checkKindBits is how many bits of a check's N hold its kind.
const checkKindBits = 2

// appendChecks appends the checks of an operation.
func appendChecks(b []byte, op *twotier.Op) []byte {
	b = appendUint(b, uint64(len(op.Checks)))
	for i := range op.Checks {
		c := &op.Checks[i]
		b = appendBytes(appendBytes(b, c.NS), c.Key)
		b = appendInt(b, c.N<<checkKindBits|int64(c.Kind))
		switch c.Kind {
		case twotier.BanCheck:
			b = appendUint(appendUint(b, uint64(c.Ban.From)), uint64(c.Ban.To))
		case twotier.LeaseCheck:
			b = appendInt(b, c.Until)
		case twotier.ValuesCheck:
			for _, hash := range c.Values { // c.N of them
				b = binary.LittleEndian.AppendUint64(b, hash)
			}
		}
		b = appendUint(b, uint64(len(c.Limits)))
		for j := range c.Limits {
			b = appendLimit(b, &c.Limits[j])
		}
	}
	return b
}

// appendLimit appends a limit. In place of a window, a period has 0 and its short form.
func appendLimit(b []byte, l *twotier.Limit) []byte {
	if l.Period == nil {
		return appendInt(appendInt(b, l.Window), l.Max)
	}
	return appendInt(appendBytes(appendInt(b, 0), l.Period.String()), l.Max)
}

// readLimit reads a limit. A period that this node does not have, because its time zones are older,
// leaves the limit empty: its operation is then refused, see twotier.Validate, and the others of
// the message are not.
func readLimit(r *reader) twotier.Limit {
	l := twotier.Limit{Window: r.int()}
	if l.Window == 0 {
		l.Period, _ = twotier.ParsePeriod(r.string())
	}
	l.Max = r.int()
	return l
}

// indexRange is a part of a list.
type indexRange struct{ from, to int }

// readChecks reads the checks of an operation. Their keys are views into the message.
func (l *taskList) readChecks(r *reader, kind twotier.Kind) {
	for range r.itemCount() {
		c := twotier.Check{NS: r.bytes(), Key: r.bytes()}
		packed := r.int()
		c.Kind, c.N = twotier.CheckKind(packed&(1<<checkKindBits-1)), packed>>checkKindBits
		if kind != twotier.Acquire && (c.IsBan() || c.IsLease()) {
			r.fail()
		}
		if len(c.NS) > maxNS || !validKey(c.Key) || c.N > math.MaxInt32 || c.N < -math.MaxInt32 {
			r.fail()
		}
		switch c.Kind {
		case twotier.BanCheck:
			c.Ban = twotier.Ban{From: r.uint16(), To: r.uint16()}
		case twotier.LeaseCheck:
			c.Until = r.int()
		case twotier.ValuesCheck:
			c.Values = r.values(c.N)
		}
		from := len(l.limits)
		for range r.itemCount() {
			l.limits = append(l.limits, readLimit(r))
		}
		l.addCheck(r, &c, indexRange{from, len(l.limits)})
	}
}

// values reads the hashes of n values, which are in order.
func (r *reader) values(n int64) []uint64 {
	if n < 0 || n > int64(len(r.b)/8) {
		r.fail()
		return nil
	}
	list := make([]uint64, n)
	for i := range list {
		list[i] = binary.LittleEndian.Uint64(r.b)
		r.b = r.b[8:]
		if leaparray.CleanHash(list[i]) != list[i] || i > 0 && list[i] <= list[i-1] {
			r.fail()
			return nil
		}
	}
	return list
}

// readKeysOnly reads the keys of an operation like the previous one, and adds its checks.
func (l *taskList) readKeysOnly(r *reader) {
	from, to := l.firsts[len(l.firsts)-1], len(l.checks)
	for i := from; i < to; i++ {
		c := l.checks[i]
		if c.Key = r.bytes(); !validKey(c.Key) {
			r.fail()
		}
		l.addCheck(r, &c, l.limitsOf[i])
	}
}

func validKey(key []byte) bool { return len(key) > 0 && len(key) <= maxKey }

// addCheck adds a check with the limits in a part of the list.
func (l *taskList) addCheck(r *reader, c *twotier.Check, limits indexRange) {
	if l.asked += limits.to - limits.from; l.asked > maxLimits {
		r.fail()
	}
	l.checks, l.limitsOf = append(l.checks, *c), append(l.limitsOf, limits)
}

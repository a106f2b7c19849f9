package layout

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// Events that keep their millisecond are listed in fields of a Hash, several moments in each, as
// cells.lua describes them.
const (
	// OpenField is the field that moments are added to.
	OpenField = "o"
	// momentsName is the length of the name of another field that lists moments: the base and one
	// more byte follow the mark.
	momentsName = 1 + baseBytes + 1
	baseBytes   = 6
	openHead    = baseBytes + 2
	momentBytes = 4
	mostMoments = 13 // in a field, so that its value has at most 64 bytes and the Hash is compact
	middle      = 1 << 23
	maxListed   = 255 // events of a moment
	maxTotal    = 1<<16 - 1
)

// Moments is the content of a field that lists moments.
type Moments struct {
	Base int64
	list string
}

// ParseMoments returns the moments in a field, if it lists any. It matches listOf in Lua.
func ParseMoments(name, value string) (m Moments, ok bool) {
	switch {
	case name == OpenField && len(value) >= openHead:
		m = Moments{parseBase(value), value[openHead:]}
	case len(name) == momentsName && name[:1] == OpenField:
		m = Moments{parseBase(name[1:]), value}
	default:
		return m, false
	}
	return m, len(m.list)%momentBytes == 0
}

func parseBase(text string) (base int64) {
	for i := range baseBytes {
		base = base<<8 | int64(text[i])
	}
	return base
}

// Each calls fn with each moment that is listed, and the number of its events.
func (m Moments) Each(fn func(t, n int64)) {
	for list := m.list; len(list) >= momentBytes; list = list[momentBytes:] {
		after := int64(list[0])<<16 | int64(list[1])<<8 | int64(list[2])
		fn(m.Base+after-middle, int64(list[3]))
	}
}

// isListed reports whether an add is counted in a list of moments. It matches isPushed in Lua.
func isListed(b *syncer.Bucket) bool { return b.Width == 1 && b.N > 0 && b.N <= maxListed }

// appendMoment appends a moment to a list.
func appendMoment(list []byte, after, n int64) []byte {
	after += middle
	return append(list, byte(after>>16), byte(after>>8), byte(after), byte(n))
}

// appendHead appends what the value of the open field begins with.
func appendHead(b []byte, base int64, total int) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(base)<<16)[:len(b)+baseBytes]
	return binary.BigEndian.AppendUint16(b, uint16(min(total, maxTotal)))
}

// MergeMoments sums the buckets of each moment, in place, and leaves out those without events.
func MergeMoments(list []syncer.Bucket) []syncer.Bucket {
	slices.SortStableFunc(list, func(a, b syncer.Bucket) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Width, b.Width))
	})
	merged := list[:0]
	for _, b := range list {
		last := len(merged) - 1
		if last < 0 || merged[last].Stretch != b.Stretch || b.Width != 1 {
			merged = append(merged, b)
			continue
		}
		if m := &merged[last]; m.N == syncer.NoCount || b.N == syncer.NoCount {
			m.N = syncer.NoCount
		} else if m.N += b.N; m.N == 0 {
			merged = merged[:last]
		}
	}
	return merged
}

// Lists are the fields of a Hash that list moments, by name.
type Lists map[string]string

// sealed returns how many moments the fields list besides the open one.
func (l Lists) sealed() (n int) {
	for name, value := range l {
		if m, ok := ParseMoments(name, value); ok && name != OpenField {
			n += len(m.list) / momentBytes
		}
	}
	return n
}

// Remove removes the moments that gone reports. It calls changed with each field that changes.
func (l Lists) Remove(gone func(t int64) bool, changed func(name string)) {
	for name, value := range l {
		m, ok := ParseMoments(name, value)
		if !ok {
			continue
		}
		kept := make([]byte, 0, len(value))
		m.Each(func(t, n int64) {
			if !gone(t) {
				kept = appendMoment(kept, t-m.Base, n)
			}
		})
		if len(kept) == len(m.list) {
			continue
		}
		changed(name)
		switch {
		case name == OpenField:
			l[name] = value[:openHead] + string(kept)
		case len(kept) > 0:
			l[name] = string(kept)
		default:
			delete(l, name)
		}
	}
}

// Push adds events of a moment, as push in Lua does. It calls changed with each field that changes.
func (l Lists) Push(t, n int64, changed func(name string)) {
	value := []byte(l[OpenField])
	if len(value) < openHead {
		value = appendHead(nil, t, 0)
	}
	base := parseBase(string(value))
	if after := t - base; len(value) >= openHead+momentBytes*mostMoments ||
		after < -middle || after >= middle {
		l.seal(value, changed)
		value, base = appendHead(nil, t, 0), t
	}
	l[OpenField] = string(appendMoment(value, t-base, n))
	changed(OpenField)
}

// seal moves the moments in the value of the open field to the first field of the same base that
// has room for them. It matches seal in Lua.
func (l Lists) seal(value []byte, changed func(name string)) {
	name, list := append([]byte(OpenField), value[:baseBytes]...), value[openHead:]
	for last := 0; ; last++ {
		full := string(append(name, byte(last)))
		if last == math.MaxUint8 || len(l[full])+len(list) <= momentBytes*mostMoments {
			l[full] += string(list)
			changed(full)
			return
		}
	}
}

// Finish writes into the open field how many moments the others list. It is removed if there are
// none.
func (l Lists) Finish(changed func(name string)) {
	value, ok := l[OpenField]
	if !ok {
		return
	}
	if total := l.sealed(); total == 0 && len(value) == openHead {
		delete(l, OpenField)
	} else {
		l[OpenField] = value[:baseBytes] + string(appendHead(nil, 0, total)[baseBytes:]) +
			value[openHead:]
	}
	changed(OpenField)
}

// IsListed reports whether n events of a cell can be listed.
func IsListed(at leaparray.Stretch, n int64) bool {
	return isListed(&syncer.Bucket{Stretch: at, N: n})
}

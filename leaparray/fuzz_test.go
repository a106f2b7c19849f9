package leaparray_test

import (
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
)

// FuzzCounter reads operations from the input, three bytes each: add (ahead, late, taking back,
// large), grow, compact and expire, and compares every bucket with a map after each.
func FuzzCounter(f *testing.F) {
	f.Add([]byte{0, 1, 1, 0, 200, 3, 1, 7, 1, 4, 0, 0, 5, 90, 0, 0, 1, 1})
	f.Add([]byte{2, 0, 9, 2, 0, 9, 3, 0, 9, 6, 0, 1, 0, 255, 255, 5, 255, 0, 4, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 600 {
			return
		}
		l := ladder(t, leaparray.Level{Width: 100 * time.Millisecond, Count: 10},
			leaparray.Level{Width: time.Second, Count: 7})
		m := &model{l: l, buckets: map[[2]int64]int64{}, head: map[int64]int64{}}
		var c leaparray.Counter
		now := int64(1_763_000_000_000)
		for ; len(in) >= 3; in = in[3:] {
			x, n := int64(in[1]), int64(in[2])
			switch in[0] % 7 {
			case 0:
				now += 10 * x
				c, _ = count(l, c, now, n)
				m.add(now, n)
			case 1: // late
				c, _ = count(l, c, now-30*x, n)
				m.add(now-30*x, n)
			case 2: // taking back
				c, _ = count(l, c, now, -n)
				m.add(now, -n)
			case 3: // more than a sparse bucket holds
				c, _ = count(l, c, now, n<<30)
				m.add(now, n<<30)
			case 4:
				c = l.Compact(c, leaparray.Heap{}, func(int, int64) bool { return true })
				m.follow(c)
			case 5:
				level := int(n) % l.Len()
				head := m.head[int64(level)] + x%20
				l.Expire(c, level, head, func(int64) {})
				m.expire(int64(level), head)
				m.follow(c)
			case 6:
				c = l.Grow(c, leaparray.Heap{}, int(n)%l.Len(), l.Stamp(now)[int(n)%l.Len()], x<<20)
			}
			m.compare(t, c)
		}
	})
}

// follow takes the heads over from the counter, which forgets them with their buckets.
func (m *model) follow(c leaparray.Counter) {
	for level := range m.l.Len() {
		m.head[int64(level)] = m.l.Head(c, level)
	}
}

func (m *model) expire(level, head int64) {
	for b := range m.buckets {
		if b[0] == level && b[1] < head-m.l.Keep(int(level)) {
			delete(m.buckets, b)
		}
	}
}

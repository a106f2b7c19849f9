package leaparray_test

import (
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
)

const benchNow = 1_763_000_000_000

// dense returns a counter whose every bucket lives.
func dense(b *testing.B, levels ...leaparray.Level) (*leaparray.Ladder, leaparray.Counter) {
	l := ladder(b, levels...)
	var c leaparray.Counter
	for at := benchNow - l.Span(); at <= benchNow; at += l.Width(0) {
		c, _ = count(l, c, at, 1)
	}
	return l, c
}

func BenchmarkAdd(b *testing.B) {
	for _, bc := range []struct {
		name   string
		levels []leaparray.Level
	}{
		{"1level", []leaparray.Level{{Width: time.Second, Count: 60}}},
		{"3levels", leaparray.DefaultLevels()},
	} {
		b.Run(bc.name+"/dense", func(b *testing.B) {
			l, c := dense(b, bc.levels...)
			b.ReportAllocs()
			for i := range b.N {
				now := benchNow + int64(i)/1000
				for level := range l.Len() {
					l.Add(c, level, l.Index(level, now), 1)
				}
			}
		})
		b.Run(bc.name+"/sparse", func(b *testing.B) {
			l := ladder(b, bc.levels...)
			c, _ := count(l, nil, benchNow, 1)
			b.ReportAllocs()
			for i := range b.N {
				n := int64(1 - i%2*2)
				s := l.Stamp(benchNow)
				for level := range l.Len() {
					l.Add(c, level, s[level], 1+n)
				}
				if i%1000 == 0 {
					c, _ = count(l, nil, benchNow, 1)
				}
			}
		})
	}
}

var sink int64

func BenchmarkCount60(b *testing.B) {
	l, c := dense(b, leaparray.Level{Width: time.Second, Count: 60})
	v := leaparray.View{Ladder: l, A: c}
	b.ReportAllocs()
	for i := range b.N {
		e, _ := v.Count(60_000, benchNow+int64(i&511), true)
		sink += e.Hi
	}
}

// BenchmarkSum60Plain is what reading the same window costs as a loop over 60 plain buckets: the
// reason for running totals.
func BenchmarkSum60Plain(b *testing.B) {
	type bucket struct{ idx, n int64 }
	ring := make([]bucket, 61)
	for i := range int64(61) {
		at := benchNow/1000 - i
		ring[at%61] = bucket{at, 1}
	}
	for i := range b.N {
		hi := (benchNow + int64(i&511)) / 1000
		for j := hi - 60; j <= hi; j++ {
			if s := &ring[j%61]; s.idx == j {
				sink += s.n
			}
		}
	}
}

func BenchmarkPeak24h(b *testing.B) {
	l, c := dense(b)
	v := leaparray.View{Ladder: l, A: c}
	for range b.N {
		p, _, _ := v.Peak(86_400_000, benchNow)
		sink += p
	}
}

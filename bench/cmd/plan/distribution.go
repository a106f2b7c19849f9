package main

import (
	"fmt"
	"math"

	"twotier/bench/trace"
)

// different is how many different keys n draws meet on average.
func different(distribution string, keys, n float64) (float64, error) {
	switch distribution {
	case "hot":
		return min(n, 1), nil
	case "distinct":
		return n, nil
	case "uniform":
		return keys * -math.Expm1(-n/keys), nil
	case "zipf":
		return zipfDifferent(keys, n), nil
	}
	return 0, fmt.Errorf("distribution %q: not one of hot, uniform, zipf, distinct", distribution)
}

// rest is the share of draws that meet other keys than those that are drawn most, if memory holds such a part of all.
func rest(distribution string, keys, part float64) float64 {
	if part >= 1 {
		return 0
	}
	switch distribution {
	case "uniform":
		return 1 - part
	case "zipf":
		total, beyond := 0.0, 0.0
		eachRange(keys, func(from, to, mid float64) {
			p := (to - from) * math.Pow(mid, -trace.ZipfExponent)
			if total += p; mid > part*keys {
				beyond += p
			}
		})
		return beyond / total
	}
	return 0 // one key, or none that ever comes back
}

// zipfDifferent sums, over the keys, the probability that n draws meet one; keys of about the same probability are taken
// together.
func zipfDifferent(keys, n float64) (sum float64) {
	total := 0.0
	eachRange(keys, func(from, to, mid float64) { total += (to - from) * math.Pow(mid, -trace.ZipfExponent) })
	eachRange(keys, func(from, to, mid float64) {
		p := math.Pow(mid, -trace.ZipfExponent) / total
		sum += (to - from) * -math.Expm1(-n*p)
	})
	return sum
}

// eachRange cuts the ranks 1 to keys into pieces that are at most a hundredth as long as they lie far out.
func eachRange(keys float64, fn func(from, to, mid float64)) {
	for from := 1.0; from <= keys; {
		to := min(math.Floor(from*1.01)+1, keys+1)
		fn(from, to, math.Sqrt(from*(to-1)))
		from = to
	}
}

package ask

import (
	"bytes"
	"fmt"
	"slices"

	"twotier.dev/twotier/internal/holds"
	"twotier.dev/twotier/internal/request"
)

// finalNumbers are the final numbers of events of the checks of a hold.
type finalNumbers struct {
	n     []int64
	named []bool // by the request; the others stay as they are
}

// finalOf returns the final numbers of a hold. The number of a key that several of its checks have
// is the sum of the request's entries for it, of which there is one for each check at most.
func finalOf(h *holds.Hold, q *Settling) (final finalNumbers, f *request.Failure) {
	if q.All < 0 || q.All > request.MaxN {
		return final, request.FieldFailure("n", request.WantAcquireN)
	}
	entries := make([]int, len(h.Checks)) // for the key of each check
	left := make([]int64, len(h.Checks))  // of the key's number, at its first check
	final = finalNumbers{make([]int64, len(h.Checks)), make([]bool, len(h.Checks))}
	for i := range h.Checks {
		left[i], final.named[i] = q.All, len(q.Checks) == 0
	}
	for k := range q.Checks {
		c, known := &q.Checks[k], false
		if c.N < 0 || c.N > request.MaxN {
			return final, request.FieldFailure(fmt.Sprintf("checks[%d].n", k), request.WantAcquireN)
		}
		for i := range h.Checks {
			if !sameKey(&h.Checks[i], c) {
				continue
			}
			known, final.named[i] = true, true
			left[i], entries[i] = left[i]+c.N, entries[i]+1
			if entries[i] > checksOf(h, i) {
				return final, request.FieldFailure(fmt.Sprintf("checks[%d].key", k), "given before")
			}
		}
		if !known {
			return final, request.FieldFailure(fmt.Sprintf("checks[%d].key", k),
				"the hold is not of this key")
		}
	}
	final.spread(h, left)
	return final, nil
}

// spread spreads the number of each key over its checks: each gets as much as it holds, and the
// last one the rest. So no count grows on the way if it does not in the end.
func (final *finalNumbers) spread(h *holds.Hold, left []int64) {
	for i := range h.Checks {
		c := &h.Checks[i]
		first := slices.IndexFunc(h.Checks, c.HasKeyOf)
		switch last := !slices.ContainsFunc(h.Checks[i+1:], c.HasKeyOf); {
		case !final.named[i]:
			final.n[i] = c.N
		case last:
			final.n[i] = left[first]
		default:
			final.n[i] = min(c.N, left[first])
			left[first] -= final.n[i]
		}
	}
}

// checksOf returns how many checks of a hold have the key of check i.
func checksOf(h *holds.Hold, i int) (n int) {
	for j := range h.Checks {
		if h.Checks[i].HasKeyOf(h.Checks[j]) {
			n++
		}
	}
	return n
}

// sameKey reports whether a check of a hold has a key. The namespace of a rule need not be given.
func sameKey(h *holds.Check, c *SettledCheck) bool {
	return bytes.Equal(h.Key, c.Key) && (len(c.NS) == 0 ||
		holds.SpaceOf(h.NS) == holds.SpaceOf(c.NS))
}

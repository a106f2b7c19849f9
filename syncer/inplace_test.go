package syncer_test

import (
	"errors"
	"fmt"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer"
)

// TestInPlaceOfOneOwner acquires two keys, of which another counter owns one or both. The acquire
// runs if the operation marks each such key as in place.
func TestInPlaceOfOneOwner(t *testing.T) {
	const partitions = 8
	placement := twotier.Placement{Partitions: partitions}
	c := open(t, syncer.Options{Placement: placement})
	keys := make([]string, 2)
	for i := 0; keys[0] == "" || keys[1] == ""; i++ {
		key := fmt.Sprint(i)
		if p := placement.Of(nil, []byte(key)); p < 2 {
			keys[p] = key
		}
	}
	for own := range 4 { // as bits
		for p := range 2 {
			if c.StopOwning(p); own>>p&1 == 1 {
				c.StartOwning(p)
			}
		}
		for inPlace := range 4 {
			for _, reserve := range []string{"", "id"} {
				op := acquireOp(keys[0], 1, 100)
				op.Reserve = reserve
				op.Checks = append(op.Checks, acquireOp(keys[1], 1, 100).Checks...)
				for p := range op.Checks {
					op.Checks[p].InPlace = inPlace>>p&1 == 1
				}
				var res twotier.Result
				err := c.Do(t.Context(), op, &res)
				if ok := own|inPlace == 3; ok != (err == nil) ||
					!ok && !errors.Is(err, twotier.ErrNotOwner) {
					t.Errorf("owns %b, in place %b: %v", own, inPlace, err)
				}
				if err == nil && (res.Source == twotier.SourceFallback) != (own < 3) {
					t.Errorf("owns %b, in place %b: source %s", own, inPlace, res.Source)
				}
				c.Undo(op)
			}
		}
	}
}

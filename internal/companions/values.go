package companions

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// HashValue returns the hash of a value. All nodes agree on it. Who does not know the seed can't
// find values that collide.
func HashValue(seed uint64, value []byte) uint64 {
	var short [128]byte // so that the hash of a short value needs no memory
	b := append(binary.LittleEndian.AppendUint64(short[:0], seed), value...)
	sum := sha256.Sum256(b)
	return leaparray.CleanHash(binary.LittleEndian.Uint64(sum[:8]))
}

// valuesOf returns the check of the values of a check. Its limits in shadow refuse nothing.
func valuesOf(of *twotier.Check, v *twotier.ValuesOf, seed uint64) twotier.Check {
	c := twotier.Check{Kind: twotier.ValuesCheck, Limits: slices.Clone(v.Limits)}
	c.NS, c.Key = twotier.ValuesKey(of.NS, of.Key)
	for _, value := range v.Values {
		c.Values = append(c.Values, HashValue(seed, value))
	}
	slices.Sort(c.Values)
	c.Values = slices.Compact(c.Values)
	c.N = int64(len(c.Values))
	for _, i := range v.Shadow {
		c.Limits[i].Max = twotier.MaxBound
	}
	return c
}

package sketch

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"slices"
)

const (
	// indexBits of a hash choose a register; the others are for its rank.
	indexBits = 12
	registers = 1 << indexBits
	maxRank   = 64 - indexBits + 1

	// MaxExact is how many hashes a set holds before registers take no more memory.
	MaxExact = registers / 8
	// MaxUnion is how many hashes a union holds before it switches to registers.
	MaxUnion = 8 * MaxExact
	// Error is the relative standard error of a count that is not exact.
	Error = 1.04 / 64 // the square root of registers
)

// Hash returns the hash of a value. The seed must be the same for as long as hashes are compared.
func Hash(seed uint64, value []byte) uint64 {
	var short [128]byte // so that the hash of a short value needs no memory
	b := append(binary.LittleEndian.AppendUint64(short[:0], seed), value...)
	sum := sha256.Sum256(b)
	return binary.LittleEndian.Uint64(sum[:8])
}

// Set holds the hashes that one bucket has seen. The zero value is empty.
type Set struct {
	exact []uint64          // sorted; nil if there are registers
	dense *[registers]uint8 // the largest rank of each register
}

// Add adds a hash and reports whether that changed the set.
func (s *Set) Add(hash uint64) bool {
	if s.dense != nil {
		return raiseRegister(s.dense, hash)
	}
	at, found := slices.BinarySearch(s.exact, hash)
	if found {
		return false
	}
	if len(s.exact) < MaxExact {
		s.exact = slices.Insert(s.exact, at, hash)
		return true
	}
	s.densify()
	raiseRegister(s.dense, hash)
	return true
}

// densify switches to registers.
func (s *Set) densify() {
	s.dense = new([registers]uint8)
	for _, h := range s.exact {
		raiseRegister(s.dense, h)
	}
	s.exact = nil
}

// raiseRegister adds a hash to registers and reports whether that changed one.
func raiseRegister(dense *[registers]uint8, hash uint64) bool {
	at, rank := hash>>(64-indexBits), rankOf(hash)
	if rank <= dense[at] {
		return false
	}
	dense[at] = rank
	return true
}

// rankOf returns the rank of a hash. The bit set at the end stops the search where the hash has no
// more bits.
func rankOf(hash uint64) uint8 {
	return uint8(bits.LeadingZeros64(hash<<indexBits|1<<(indexBits-1)) + 1)
}

// Merge adds the values of another set, and reports whether that changed the set.
func (s *Set) Merge(from *Set) (changed bool) {
	if from.dense == nil {
		for _, h := range from.exact {
			changed = s.Add(h) || changed
		}
		return changed
	}
	if s.dense == nil {
		s.densify()
		changed = true
	}
	return mergeRanks(s.dense, from.dense) || changed
}

// mergeRanks raises ranks to the ranks of another set, eight registers at a time: a rank is less
// than 128, so the top bit of a byte can hold the result of a comparison.
func mergeRanks(into, from *[registers]uint8) (changed bool) {
	const top, low = 0x8080808080808080, 0x0101010101010101
	differ := uint64(0)
	for i := 0; i < registers; i += 8 {
		a := binary.LittleEndian.Uint64(into[i : i+8])
		b := binary.LittleEndian.Uint64(from[i : i+8])
		keep := ((a | top) - b) >> 7 & low * 0xff // all bits of the bytes of a that are not less
		merged := a&keep | b&^keep
		differ |= merged ^ a
		binary.LittleEndian.PutUint64(into[i:i+8], merged)
	}
	return differ != 0
}

// Clone returns a copy.
func (s *Set) Clone() Set {
	c := Set{exact: slices.Clone(s.exact)}
	if s.dense != nil {
		dense := *s.dense
		c.dense = &dense
	}
	return c
}

// Bytes is the memory that the set takes.
func (s *Set) Bytes() int64 {
	if s.dense != nil {
		return registers
	}
	return int64(8 * cap(s.exact))
}

// The first byte of an encoded set is its format: hashes in ascending order, each in 8 bytes,
// big-endian; or the rank of each register, in a byte.
const (
	formatExact byte = 'e'
	formatDense byte = 'd'
)

var errFormat = errors.New("not an encoded set")

// Append appends the encoded set.
func (s *Set) Append(b []byte) []byte {
	if s.dense != nil {
		return append(append(b, formatDense), s.dense[:]...)
	}
	b = append(b, formatExact)
	for _, h := range s.exact {
		b = binary.BigEndian.AppendUint64(b, h)
	}
	return b
}

// Decode reads an encoded set.
func Decode(b []byte) (s Set, err error) {
	switch {
	case len(b) > 0 && b[0] == formatExact && len(b)%8 == 1 && len(b) <= 8*MaxExact+1:
		s.exact = make([]uint64, 0, len(b)/8)
		for b = b[1:]; len(b) > 0; b = b[8:] {
			h := binary.BigEndian.Uint64(b)
			if n := len(s.exact); n > 0 && s.exact[n-1] >= h {
				return Set{}, errFormat
			}
			s.exact = append(s.exact, h)
		}
		return s, nil
	case len(b) == registers+1 && b[0] == formatDense:
		s.dense = new([registers]uint8)
		copy(s.dense[:], b[1:])
		for _, rank := range s.dense {
			if rank > maxRank {
				return Set{}, errFormat
			}
		}
		return s, nil
	}
	return Set{}, errFormat
}

// estimate returns how many hashes raised the registers.
func estimate(with *ranks) int64 {
	const m = float64(registers)
	z := m * tau(1-float64(with[maxRank])/m)
	for k := maxRank - 1; k >= 1; k-- {
		z = (z + float64(with[k])) / 2
	}
	z += m * sigma(float64(with[0])/m)
	return int64(math.Round(m * m / (2 * math.Ln2) / z))
}

// sigma is x plus the sum of x^(2^k) 2^(k-1) for k from 1.
func sigma(x float64) float64 {
	if x == 1 {
		return math.Inf(1)
	}
	for y, z := 1.0, x; ; y += y {
		x *= x
		before := z
		if z += x * y; z == before {
			return z
		}
	}
}

// tau is a third of 1-x minus the sum of (1-x^(2^-k))^2 2^-k for k from 1.
func tau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	for y, z := 1.0, 1-x; ; {
		x = math.Sqrt(x)
		before := z
		y /= 2
		if z -= (1 - x) * (1 - x) * y; z == before {
			return z / 3
		}
	}
}

package fields

import (
	"iter"
	"math/bits"
	"strings"
)

// All iterates over the fields of a set, each as a set, in their order.
func (s Set) All() iter.Seq[Set] {
	return func(yield func(Set) bool) {
		for ; s != 0; s &= s - 1 {
			if !yield(s & -s) {
				return
			}
		}
	}
}

// row returns the row of the first field.
func (s Set) row() row { return table[bits.TrailingZeros32(uint32(s))] }

// Name returns the name of the first field in JSON, in files of tests and in error messages.
func (s Set) Name() string { return table[bits.TrailingZeros32(uint32(s))].name }

// Allows reports whether a number is within the bounds of the first field.
func (s Set) Allows(v int64) bool {
	i := bits.TrailingZeros32(uint32(s))
	return v >= table[i].least && v <= table[i].most
}

// Want returns the error about a number that Allows refuses.
func (s Set) Want() string { return s.row().want }

// Flag returns the name and the help of a boolean's flag.
func (s Set) Flag() (name, help string) { return s.row().flag, s.row().help }

// Bit returns the bit of a boolean in the head of an operation between nodes.
func (s Set) Bit() uint16 { return table[bits.TrailingZeros32(uint32(s))].bit }

// Names returns the names of the fields.
func (s Set) Names() (names []string) {
	for f := range s.All() {
		names = append(names, f.Name())
	}
	return names
}

// List writes the names of the fields as in a sentence: "hold and for".
func (s Set) List() string { return Join(s.Names(), "and") }

// Words lists the words of the options: "NS, N, TS or ACK".
func (s Set) Words() string {
	var words, parts []string
	for f := range s.All() {
		if r := f.row(); r.part {
			parts = append(parts, r.word)
		} else {
			words = append(words, r.word)
		}
	}
	return Join(append(words, parts...), "or")
}

// Join writes a list as in a sentence, with a word before its last item.
func Join(items []string, before string) string {
	last := len(items) - 1
	if last < 1 {
		return strings.Join(items, "")
	}
	return strings.Join(items[:last], ", ") + " " + before + " " + items[last]
}

// Steps returns the booleans that steps in files of tests have.
func Steps() (s Set) {
	for f := range Booleans.All() {
		if f.row().step {
			s |= f
		}
	}
	return s
}

package fields

import (
	"encoding/binary"
	"iter"
	"math"
	"math/bits"
	"strings"

	"twotier.dev/twotier"
)

// Set is a set of fields. Lists of fields are in the order of their bits.
type Set uint32

// The fields. 0 is an unknown field.
const (
	Op Set = 1 << iota
	NS
	Key
	Values
	N
	TS
	Ack
	Limits
	ValueLimits
	Concurrent
	Rules
	Window
	Max
	Zone
	Anchor
	At
	Bounds
	By
	Checks
	CountDenied
	Charge
	DryRun
	Hold
	OnExpiry
	For
)

// The fields of each operation, and of each part of one, in JSON.
const (
	// Booleans are fields of an acquire, which nodes send each other.
	Booleans        = CountDenied | Charge | DryRun
	OfAdd           = NS | Key | N | TS | Ack | Limits | Rules
	OfCount         = NS | Key | Window | At
	OfAcquire       = OfCheck | TS | Ack | Checks | Booleans | Hold | OnExpiry
	OfDistinct      = NS | Key | Values | TS | Ack | Limits | Rules | Window
	OfBatchDistinct = OfDistinct | At
	OfCheck         = NS | Key | Values | N | Limits | ValueLimits | Rules
	OfLimit         = Window | Max | Zone | Anchor | Concurrent
	OfValueLimit    = Window | Max
	OfSettle        = Hold | N | Checks
	OfSettledCheck  = NS | Key | N
	OfRenew         = Hold | For
	OfReset         = NS | Key
)

// The options of the commands in RESP.
const (
	OptionsOfAdd      = NS | N | TS | Ack
	OptionsOfCount    = NS | At | Bounds
	OptionsOfDistinct = NS | TS | Values | Limits | Rules | Window
	OptionsOfAcquire  = OptionsOfAdd | Booleans | Hold | OnExpiry | Values | Limits | ValueLimits |
		Concurrent | Rules | Checks
)

// row has the names of a field.
type row struct {
	name string // in JSON, in files of tests and in errors
	word string // of the option in RESP
	part bool   // the option begins a part of a check, or a check, and is listed last
	// Numbers with the same bounds everywhere have them here, and the error about others.
	least, most int64
	want        string
	// The rest is about booleans.
	flag, help string // on the command line
	step       bool   // steps in files of tests have it
	bit        uint16 // in the head of an operation between nodes
}

const wantTime = "want unix milliseconds, at least 1"

// table has a row for each field, in the order of their bits.
var table = [...]row{
	{name: "op"},
	{name: "ns", word: "NS"},
	{name: "key"},
	{name: "values", word: "VALUES", part: true},
	{name: "n", word: "N"},
	{name: "ts", word: "TS", least: 1, most: math.MaxInt64, want: wantTime},
	{name: "ack", word: "ACK"},
	{name: "limits", word: "LIMIT", part: true},
	{name: "value_limits", word: "VLIMIT", part: true},
	{name: "concurrent", word: "CONCURRENT", part: true, least: 1, most: math.MaxInt32,
		want: "want 1 to 2147483647"},
	{name: "rules", word: "RULE", part: true},
	{name: "window", word: "WINDOW"},
	{name: "max", most: math.MaxInt64, want: "want 0 or more"},
	{name: "zone"},
	{name: "anchor"},
	{name: "at", word: "AT", least: 1, most: math.MaxInt64, want: wantTime},
	{name: "bounds", word: "BOUNDS"},
	{name: "by", word: "BY"},
	{name: "checks", word: "KEY", part: true},
	{name: "count_denied", word: "COUNTDENIED", flag: "count-denied", bit: 1 << 4,
		help: "count the events even if they are refused, unless a ban is active"},
	{name: "charge", word: "CHARGE", flag: "charge", step: true, bit: 1 << 11,
		help: "count the events in any case"},
	{name: "dry_run", word: "DRYRUN", flag: "dry-run", bit: 1 << 7,
		help: "only ask, count nothing"},
	{name: "hold", word: "HOLD"},
	{name: "on_expiry", word: "ONEXPIRY"},
	{name: "for"},
}

// Value returns where an operation has a boolean, or nil for another field.
func (s Set) Value(op *twotier.Op) *bool {
	switch s {
	case CountDenied:
		return &op.CountDenied
	case Charge:
		return &op.Charge
	case DryRun:
		return &op.DryRun
	}
	return nil
}

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

// Named returns the field of that name in JSON, or 0.
func Named(name []byte) Set { return lookups.names.find(name) }

// Worded returns the field with the option of that word in RESP, in capital letters, or 0.
func Worded(word []byte) Set { return lookups.words.find(word) }

var lookups = func() (x struct{ names, words index }) {
	for i, r := range table {
		x.names.add(r.name, 1<<i)
		x.words.add(r.word, 1<<i)
	}
	return x
}()

// packed is a name of at most 16 bytes, as numbers: they are compared and hashed faster than text,
// about as fast as in a switch of all names.
type packed struct {
	first, last uint64
	length      int
}

// pack packs a name of 1 to 16 bytes.
func pack(name []byte) packed {
	n := len(name)
	switch {
	case n >= 8:
		return packed{binary.LittleEndian.Uint64(name), binary.LittleEndian.Uint64(name[n-8:]), n}
	case n >= 4:
		return packed{uint64(binary.LittleEndian.Uint32(name)),
			uint64(binary.LittleEndian.Uint32(name[n-4:])), n}
	}
	return packed{uint64(name[0]) | uint64(name[n/2])<<8, uint64(name[n-1]), n}
}

// place returns where a name is in an index, unless another one is there.
func (p packed) place() uint8 { return uint8((p.first + p.last<<1) * 0x9e3779b97f4a7c15 >> 57) }

// index is a hash table of fields by name. A field is in the place of its name, or in the next one
// that is free.
type index [128]struct {
	name  packed
	field Set
}

// add adds a field, unless it has no name.
func (x *index) add(name string, f Set) {
	if name == "" {
		return
	}
	p := pack([]byte(name))
	i := p.place()
	for x[i].field != 0 {
		i = (i + 1) % uint8(len(x))
	}
	x[i].name, x[i].field = p, f
}

// find returns the field of that name, or 0.
func (x *index) find(name []byte) Set {
	if len(name) == 0 || len(name) > 16 {
		return 0
	}
	p := pack(name)
	for i := p.place(); ; i = (i + 1) % uint8(len(x)) {
		if e := &x[i]; e.name == p || e.field == 0 {
			return e.field
		}
	}
}

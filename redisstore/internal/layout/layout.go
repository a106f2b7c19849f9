package layout

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// Version is the version of the layout. Layouts before 4 counted every event in all levels.
const Version = "5"

// Prefix is the first part of all keys of one service in Redis, and its methods name them. Keys of
// different prefixes are never equal, because a colon follows the prefix and no prefix has one.
type Prefix string

// DefaultPrefix is the prefix of a service that names none.
const DefaultPrefix Prefix = "tt"

// maxPrefix bounds the bytes of a prefix, which every key in Redis pays for.
const maxPrefix = 32

// ParsePrefix returns the prefix that text spells: 1 to 32 ASCII letters, digits, dots, dashes and
// underscores. Braces would move the hash tag of Redis Cluster, and a colon ends the prefix.
func ParsePrefix(text string) (Prefix, error) {
	ok := len(text) >= 1 && len(text) <= maxPrefix
	for i := range len(text) {
		c := text[i]
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '.' || c == '-' || c == '_')
	}
	if !ok {
		return "", fmt.Errorf("%q is not 1 to %d letters, digits, dots, dashes and underscores",
			text, maxPrefix)
	}
	return Prefix(text), nil
}

// Start returns the text that all keys begin with.
func (p Prefix) Start() string { return string(p) + ":" }

// MetaKey returns the name of the Hash of the values that all users of the data must agree on.
func (p Prefix) MetaKey() string { return string(p) + ":meta" }

// RulesKey returns the name of the Hash of the versions of the rules.
func (p Prefix) RulesKey() string { return string(p) + ":rules" }

// NodesKey returns the name of the Hash of the living processes.
func (p Prefix) NodesKey() string { return string(p) + ":nodes" }

// DeadlinesKey returns the name of the Hash of the holds to release after a time in unix
// milliseconds.
func (p Prefix) DeadlinesKey(slot int64) string {
	return string(strconv.AppendInt([]byte(string(p)+":due:"), slot, 10))
}

// ProbeKey returns the key for trying out commands. It has the hash tag of a partition, so that a
// cluster's client can route it.
func (p Prefix) ProbeKey() string { return string(append(p.appendTag(nil, 0), "!probe"...)) }

// BatchKey returns the key of the sequence of a sender in pure-Redis mode, whose batches have keys
// of any partitions.
func (p Prefix) BatchKey(sender string) string { return string(p) + ":!d:" + sender }

func (p Prefix) appendTag(b []byte, partition int) []byte {
	b = append(append(b, p...), ":{p"...)
	b = strconv.AppendInt(b, int64(partition), 10)
	return append(b, '}')
}

// Key returns the name of the Hash that holds a key's counts.
func (p Prefix) Key(partition int, ns, key []byte) string {
	return string(p.AppendKey(nil, partition, ns, key))
}

// AppendKey appends the name of the Hash that holds a key's counts.
func (p Prefix) AppendKey(b []byte, partition int, ns, key []byte) []byte {
	return appendName(append(p.appendTag(b, partition), ':'), ns, key)
}

// appendName appends a namespace and a key.
func appendName(b, ns, key []byte) []byte {
	if len(ns) == 0 {
		b = append(b, twotier.DefaultNamespace...)
	} else {
		b = append(b, ns...)
	}
	b = append(b, ':')
	return append(b, key...)
}

// StateKey returns the name of the Hash with a partition's state.
func (p Prefix) StateKey(partition int) string { return string(p.AppendStateKey(nil, partition)) }

// AppendStateKey appends the name of the Hash with a partition's state.
func (p Prefix) AppendStateKey(b []byte, partition int) []byte {
	return append(p.appendTag(b, partition), "!s"...)
}

// RecordKey returns the name of the Hash that records how much of a key was restored.
func (p Prefix) RecordKey(partition int, ns, key []byte) string {
	return string(appendName(append(p.appendTag(nil, partition), "!r:"...), ns, key))
}

// WriterKey returns the key of a writer's sequence.
func (p Prefix) WriterKey(partition int, writer string) string {
	return string(p.appendWriterKey(nil, partition, writer))
}

func (p Prefix) appendWriterKey(b []byte, partition int, writer string) []byte {
	return append(append(p.appendTag(b, partition), "!w:"...), writer...)
}

// maxField bounds the numbers in fields: all have at most 15 digits, and so are exact in Lua too.
const maxField = 1e15

// The field of a value: the mark and the eight bytes of its hash. The mark alone is the field of a
// key's version. What the field has is when the value was last seen, in decimal digits: six bytes
// would take a seventh less memory in a key of thousands, and no less in one of thirty.
const (
	valueMark  = 'v'
	valueField = 1 + 8
)

// Field returns the name of a cell in its key's Hash. For an event that keeps its millisecond it is
// the time. For a bucket it is a negative number: its index, its width in milliseconds, and the
// last digit of the number of the width's digits.
func Field(s leaparray.Stretch) string {
	switch s.Width {
	case 1:
		return strconv.FormatInt(s.Start, 10)
	case leaparray.ValueWidth:
		buf := [valueField]byte{valueMark}
		binary.BigEndian.PutUint64(buf[1:], s.ValueHash())
		return string(buf[:])
	}
	digits, scale := int64(1), int64(10)
	for s.Width >= scale {
		digits, scale = digits+1, scale*10
	}
	return strconv.FormatInt(-((s.Start/s.Width*scale+s.Width)*10 + digits%10), 10)
}

// ParseField is the inverse of Field. It matches cell and isValue in Lua.
func ParseField(text string) (s leaparray.Stretch, ok bool) {
	if len(text) == valueField && text[0] == valueMark {
		return leaparray.ValueAt(binary.BigEndian.Uint64([]byte(text[1:]))), true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n >= maxField || n <= -maxField {
		return s, false
	}
	if n >= 0 {
		return leaparray.Moment(n), true
	}
	n = -n
	digits := n % 10
	if digits < 2 { // the narrowest bucket has two digits, the widest eleven
		digits += 10
	}
	scale := int64(1)
	for range digits {
		scale *= 10
	}
	n /= 10
	s.Width = n % scale
	s.Start = n / scale * s.Width
	return s, s.Width >= scale/10
}

// Fields caches the field made last: most keys of a batch are counted in the same bucket, or have
// the same first one.
type Fields struct {
	of   leaparray.Stretch
	name string
}

// Field returns the field of a cell, as the function Field does.
func (f *Fields) Field(s leaparray.Stretch) string {
	if s.Width == 1 {
		return strconv.FormatInt(s.Start, 10)
	}
	if f.of != s {
		f.of, f.name = s, Field(s)
	}
	return f.name
}

// smallNumbers has the decimal digits of small numbers.
var smallNumbers = func() (s [256]string) {
	for i := range s {
		s[i] = strconv.Itoa(i)
	}
	return s
}()

// Number returns the decimal digits of a number.
func Number(n int64) string {
	if n >= 0 && n < int64(len(smallNumbers)) {
		return smallNumbers[n]
	}
	return strconv.FormatInt(n, 10)
}

// ParseBuckets appends the buckets in the flat reply of HGETALL. It skips fields that are not
// buckets: they are foreign.
func ParseBuckets(reply []any, into []syncer.Bucket) []syncer.Bucket {
	first := len(into)
	var lists bool
	for i := 0; i+1 < len(reply); i += 2 {
		name, _ := reply[i].(string)
		value, _ := reply[i+1].(string)
		if list, ok := ParseMoments(name, value); ok {
			lists = true
			list.Each(func(t, n int64) {
				into = append(into, syncer.Bucket{Stretch: leaparray.Moment(t), N: n})
			})
			continue
		}
		cell, ok := ParseField(name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			n = syncer.NoCount
		}
		into = append(into, syncer.Bucket{Stretch: cell, N: n})
	}
	if lists {
		into = append(into[:first], MergeMoments(into[first:])...)
	}
	return into
}

// HashBytes is the size of a key's hash in the list of a partition's keys.
const HashBytes = 4

// AppendHash appends a key's hash as the list has it.
func AppendHash(b []byte, hash uint32) []byte { return binary.LittleEndian.AppendUint32(b, hash) }

// ParseHashes appends the hashes in a part of a list.
func ParseHashes(text string, into []uint32) []uint32 {
	for ; len(text) >= HashBytes; text = text[HashBytes:] {
		into = append(into, binary.LittleEndian.Uint32([]byte(text[:HashBytes])))
	}
	return into
}

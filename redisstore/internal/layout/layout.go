package layout

import (
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"strconv"
	"strings"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer"
)

// Version is the version of the layout. Layouts before 4 counted every event in all levels.
const Version = "6"

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
func (p Prefix) StateKey(partition int) string {
	return string(append(p.appendTag(nil, partition), "!s"...))
}

// ListKey returns the name of a part of the list of a partition's keys.
func (p Prefix) ListKey(partition int, part uint64) string {
	return string(strconv.AppendUint(append(p.appendTag(nil, partition), "!k:"...), part, 10))
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

// The field of a value: the mark and the eight bytes of its hash. The mark alone is the field of a
// key's version. What the field has is when the value was last seen, in decimal digits: six bytes
// would take a seventh less memory in a key of thousands, and no less in one of thirty.
const (
	valueMark  = 'v'
	valueField = 1 + 8
)

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

// Change is the decoded form of syncer.Round.LastChange: a round's sequence, the second in which it
// was cut, and the key under which its writer's sequence is stored.
type Change struct {
	// Seq is the round's sequence.
	Seq uint64
	// Second is when the round was cut, in unix seconds.
	Second uint64
	// Writer is the key of the writer's sequence.
	Writer string
}

// FormatChange formats the change that a round makes now.
func (p Prefix) FormatChange(r *syncer.Round) string {
	b := strconv.AppendUint(make([]byte, 0, 64), r.Seq, 10)
	b = strconv.AppendInt(append(b, ' '), time.Now().Unix(), 10)
	return string(p.appendWriterKey(append(b, ' '), r.Partition, r.Writer))
}

// ParseChange decodes a change.
func ParseChange(s string) (c Change, ok bool) {
	seq, rest, _ := strings.Cut(s, " ")
	second, writer, ok := strings.Cut(rest, " ")
	if !ok {
		return c, false
	}
	var err, errSecond error
	c.Seq, err = strconv.ParseUint(seq, 10, 64)
	c.Second, errSecond = strconv.ParseUint(second, 10, 64)
	c.Writer = writer
	return c, err == nil && errSecond == nil
}

// Payload is the payload of RESTORE that makes a Hash of some pages: this one command makes a new
// key with its time to live if the key does not exist, and otherwise reports that it does. The zero
// value has no pages.
type Payload struct {
	list    []byte
	entries uint16
	tooLong bool
}

// The parts of a payload, as defined by "Redis RDB file format" and by the file listpack.md of the
// listpack specification.
const (
	payloadVersion = 10   // of Redis 7.0; later ones read it
	payloadHash    = 16   // a Hash in one listpack
	listpackHeader = 6    // its length in bytes, 4, and in entries, 2
	listpackText   = 0x80 // the type of a text of less than 64 bytes, plus its length
	listpackEnd    = 0xff
	mostText       = 63
	mostList       = 63 // so that the length fits in six bits
)

// jones has the remainders of every byte by the polynomial of the checksum, which is written in
// reverse.
var jones = func() [256]uint64 { return *crc64.MakeTable(0x95ac9329ac4bc9b5) }()

// Reset empties a payload, keeping its memory.
func (p *Payload) Reset() { p.list, p.entries, p.tooLong = p.list[:0], 0, false }

// Add adds a page.
func (p *Payload) Add(name, value []byte) {
	for _, text := range [][]byte{name, value} {
		if len(text) > mostText {
			p.tooLong = true
			return
		}
		p.list = append(p.list, listpackText+byte(len(text)))
		p.list = append(append(p.list, text...), byte(1+len(text)))
		p.entries++
	}
}

// Text returns the payload. It reports false if RESTORE can't be told of the pages in a short one.
func (p *Payload) Text() (text string, ok bool) {
	size := listpackHeader + len(p.list) + 1
	if p.tooLong || p.entries == 0 || size > mostList {
		return "", false
	}
	buf := make([]byte, 0, 2+mostList+10)
	buf = append(buf, payloadHash, byte(size))
	buf = binary.LittleEndian.AppendUint32(buf, uint32(size))
	buf = binary.LittleEndian.AppendUint16(buf, p.entries)
	buf = append(append(buf, p.list...), listpackEnd)
	buf = binary.LittleEndian.AppendUint16(buf, payloadVersion)
	// In contrast to hash/crc64, Redis's checksum starts from 0 and is not inverted at the end.
	sum := uint64(0)
	for _, b := range buf {
		sum = jones[byte(sum)^b] ^ sum>>8
	}
	return string(binary.LittleEndian.AppendUint64(buf, sum)), true
}

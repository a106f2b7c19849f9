package layout

import (
	"encoding/binary"
	"hash/crc64"
)

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

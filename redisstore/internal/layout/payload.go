package layout

import (
	"encoding/binary"
	"hash/crc64"

	"twotier.dev/twotier/syncer"
)

// A key that is believed to be new is sent as the payload of RESTORE. This one command makes a Hash
// with its time to live if the key does not exist, and otherwise reports that it does.

// MaxPayloadAdds is how many events a payload may have, so that its length fits in one byte.
const MaxPayloadAdds = 10

// The parts of a payload, as defined by "Redis RDB file format" and by the file listpack.md of the
// listpack specification.
const (
	payloadVersion  = 10   // of Redis 7.0; later ones read it
	payloadHash     = 16   // a Hash in one listpack
	listpackHeader  = 6    // its length in bytes, 4, and in entries, 2
	listpackText    = 0x80 // the type of a text of less than 64 bytes, plus its length
	listpackEnd     = 0xff
	payloadSizeMost = 2 + listpackHeader + 3 + 2 + openHead + MaxPayloadAdds*momentBytes + 1 + 10
)

// jones has the remainders of every byte by the polynomial of the checksum, which is written in
// reverse.
var jones = func() [256]uint64 { return *crc64.MakeTable(0x95ac9329ac4bc9b5) }()

// HasPayload reports whether a new key with these counts can be sent as a payload.
func HasPayload(adds []syncer.Bucket) bool {
	if len(adds) == 0 || len(adds) > MaxPayloadAdds {
		return false
	}
	for i := range adds {
		b := &adds[i]
		if after := b.Start - adds[0].Start; !isListed(b) || after < -middle || after >= middle {
			return false
		}
	}
	return true
}

// Payload returns the payload of a key with events that keep their millisecond. It matches
// eventsOf in Lua.
func Payload(events []syncer.Bucket) string {
	buf := make([]byte, 0, payloadSizeMost)
	text := openHead + len(events)*momentBytes
	size := listpackHeader + 3 + 2 + text + 1
	buf = append(buf, payloadHash, byte(size))
	buf = binary.LittleEndian.AppendUint32(buf, uint32(size))
	buf = binary.LittleEndian.AppendUint16(buf, 2)
	buf = append(buf, listpackText+byte(len(OpenField)))
	buf = append(append(buf, OpenField...), byte(1+len(OpenField)), listpackText+byte(text))
	base := events[0].Start
	buf = appendHead(buf, base, 0)
	for i := range events {
		buf = appendMoment(buf, events[i].Start-base, events[i].N)
	}
	buf = append(buf, byte(1+text))
	buf = binary.LittleEndian.AppendUint16(append(buf, listpackEnd), payloadVersion)
	// In contrast to hash/crc64, Redis's checksum starts from 0 and is not inverted at the end.
	sum := uint64(0)
	for _, b := range buf {
		sum = jones[byte(sum)^b] ^ sum>>8
	}
	return string(binary.LittleEndian.AppendUint64(buf, sum))
}

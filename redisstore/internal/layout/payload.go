package layout

import (
	"encoding/binary"
	"hash/crc64"
	"math"

	"twotier.dev/twotier/syncer"
)

// A key that is believed to be new is sent as the payload of RESTORE. This one command makes a Hash
// with its time to live if the key does not exist, and otherwise reports that it does.

// MaxPayloadAdds is how many events a payload may have, so that its length fits in one byte.
const MaxPayloadAdds = 4

// The parts of a payload, as defined by "Redis RDB file format" and by the file listpack.md of the
// listpack specification.
const (
	payloadVersion  = 10   // of Redis 7.0; later ones read it
	payloadHash     = 16   // a Hash in one listpack
	listpackHeader  = 6    // its length in bytes, 4, and in entries, 2
	listpackEvent   = 12   // a time, with type and length 10, and a count, 2
	listpackInt64   = 0xf4 // the type of a time
	listpackEnd     = 0xff
	maxPayloadCount = math.MaxInt8 // a count is in one byte, without a type
	payloadSizeMost = 2 + listpackHeader + MaxPayloadAdds*listpackEvent + 1 + 10
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
		if b := &adds[i]; b.Width != 1 || b.N <= 0 || b.N > maxPayloadCount {
			return false
		}
	}
	return true
}

// Payload returns the payload of a key with events that keep their millisecond. It matches
// eventsOf in Lua.
func Payload(events []syncer.Bucket) string {
	buf := make([]byte, 0, payloadSizeMost)
	size := listpackHeader + len(events)*listpackEvent + 1
	buf = append(buf, payloadHash, byte(size))
	buf = binary.LittleEndian.AppendUint32(buf, uint32(size))
	buf = binary.LittleEndian.AppendUint16(buf, uint16(2*len(events)))
	for i := range events {
		buf = binary.LittleEndian.AppendUint64(append(buf, listpackInt64), uint64(events[i].Start))
		buf = append(buf, 9, byte(events[i].N), 1)
	}
	buf = binary.LittleEndian.AppendUint16(append(buf, listpackEnd), payloadVersion)
	// In contrast to hash/crc64, Redis's checksum starts from 0 and is not inverted at the end.
	sum := uint64(0)
	for _, b := range buf {
		sum = jones[byte(sum)^b] ^ sum>>8
	}
	return string(binary.LittleEndian.AppendUint64(buf, sum))
}

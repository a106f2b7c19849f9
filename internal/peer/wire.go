package peer

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/ownership"
)

// errFormat means that a message is malformed.
var errFormat = errors.New("malformed message")

// appendUint appends an unsigned number. Most numbers take one byte.
func appendUint(to []byte, v uint64) []byte {
	if v < 0x80 {
		return append(to, byte(v))
	}
	return binary.AppendUvarint(to, v)
}

// appendInt appends a signed number. Numbers near zero take one byte.
func appendInt(to []byte, v int64) []byte {
	return appendUint(to, uint64(v)<<1^uint64(v>>63))
}

// appendBytes appends b, preceded by its length.
func appendBytes[T ~[]byte | ~string](to []byte, b T) []byte {
	return append(appendUint(to, uint64(len(b))), b...)
}

// reader parses a message. After the first error it returns only zero values, and err is set.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail() {
	if r.err == nil {
		r.err = errFormat
	}
	r.b = nil
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) uint() uint64 {
	if len(r.b) > 0 && r.b[0] < 0x80 {
		v := r.b[0]
		r.b = r.b[1:]
		return uint64(v)
	}
	return r.longUint()
}

// longUint reads a number of more than one byte.
func (r *reader) longUint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int64 {
	v := r.uint()
	return int64(v>>1) ^ -int64(v&1)
}

// itemCount reads a number of items that take at least one byte each.
func (r *reader) itemCount() int {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	return int(n)
}

// bytes returns a view into the message.
func (r *reader) bytes() []byte {
	n := r.itemCount()
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

// lengthBytes is the size of a fixed-size length, which can be filled in after the content.
const lengthBytes = 4

// lengthPrefixed returns the content that follows a fixed-size length, as a view into the message.
func (r *reader) lengthPrefixed() []byte {
	if len(r.b) < lengthBytes {
		r.fail()
		return nil
	}
	n := uint64(binary.LittleEndian.Uint32(r.b))
	if r.b = r.b[lengthBytes:]; n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) string() string { return string(r.bytes()) }

// checkEnd returns an error unless everything has been read.
func (r *reader) checkEnd() error {
	if r.err == nil && len(r.b) > 0 {
		r.err = errFormat
	}
	return r.err
}

// uint16 reads a number below 65,536.
func (r *reader) uint16() uint16 {
	v := r.uint()
	if v > math.MaxUint16 {
		r.fail()
		return 0
	}
	return uint16(v)
}

// appendRequest appends the code of the request's kind, and the request as JSON, which is fast
// enough because requests are rare.
func appendRequest(b []byte, request any) ([]byte, error) {
	kind, ok := node.KindOf(request)
	if !ok {
		return b, fmt.Errorf("%T is not a request", request)
	}
	text, err := json.Marshal(request)
	return append(append(b, kind.Code), text...), err
}

// readRequest parses a request.
func readRequest(b []byte) (request any, err error) {
	if len(b) == 0 {
		return nil, errFormat
	}
	kind, ok := node.KindByCode(b[0])
	if !ok {
		return nil, errFormat
	}
	request = kind.New()
	return request, json.Unmarshal(b[1:], request)
}

// appendResponse appends the answer to a request, or the error in place of it. Answers are JSON,
// except a claim response, which holds the counts of a partition.
func appendResponse(b []byte, answer any, err error) []byte {
	if err == nil {
		switch a := answer.(type) {
		case nil:
			return append(b, resultOK)
		case *ownership.ClaimResponse:
			return appendClaim(append(b, resultOK), a)
		default:
			var text []byte
			if text, err = json.Marshal(a); err == nil {
				return append(append(b, resultOK), text...)
			}
		}
	}
	return appendError(b, err)
}

// readResponse reads the answer to a request into answer.
func readResponse(b []byte, answer any) error {
	r := reader{b: b}
	if code := r.byte(); r.err == nil && code != resultOK {
		err := readError(&r, code)
		if r.err == nil {
			return err
		}
	}
	if r.err != nil || answer == nil {
		return r.err
	}
	if a, ok := answer.(*ownership.ClaimResponse); ok {
		readClaim(&r, a)
		return r.checkEnd()
	}
	return json.Unmarshal(r.b, answer)
}

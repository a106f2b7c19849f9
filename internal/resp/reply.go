package resp

import "strconv"

// The replies of RESP. Functions append to b and return it.

func appendInt(b []byte, v int64) []byte {
	if 0 <= v && v < 10 {
		return append(b, ':', byte('0'+v), '\r', '\n')
	}
	b = append(b, ':')
	b = strconv.AppendInt(b, v, 10)
	return append(b, '\r', '\n')
}

func appendArray(b []byte, n int) []byte { return appendHeader(b, '*', n) }

func appendHeader(b []byte, kind byte, n int) []byte {
	b = append(b, kind)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, '\r', '\n')
}

func appendBulk[T string | []byte](b []byte, text T) []byte {
	b = appendHeader(b, '$', len(text))
	b = append(b, text...)
	return append(b, '\r', '\n')
}

func appendSimple(b []byte, text string) []byte {
	b = append(b, '+')
	b = append(b, text...)
	return append(b, '\r', '\n')
}

// appendError appends an error, whose text must not have line breaks.
func appendError(b []byte, e errorReply) []byte {
	b = append(b, '-')
	b = append(b, e...)
	return append(b, '\r', '\n')
}

// appendMap appends the header of a map of n pairs, which RESP2 shows as an array.
func (v version) appendMap(b []byte, n int) []byte {
	if v == resp3 {
		return appendHeader(b, '%', n)
	}
	return appendArray(b, 2*n)
}

// appendNull appends the absence of a value.
func (v version) appendNull(b []byte) []byte {
	if v == resp3 {
		return append(b, "_\r\n"...)
	}
	return append(b, "$-1\r\n"...)
}

// version is the version of the protocol that a connection speaks.
type version uint8

const (
	resp2 version = 2
	resp3 version = 3
)

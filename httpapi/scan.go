package httpapi

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"

	"twotier.dev/twotier/internal/request"
)

// scanner reads JSON (RFC 8259) in one pass without building a tree. Strings without escapes are
// views into src. Strings with escapes are written to scratch, which may be reallocated as it
// grows; earlier views keep the old memory.
//
// It exists because general-purpose readers cost more than the counting: see BenchmarkParseBatch.
type scanner struct {
	src     []byte
	pos     int
	scratch []byte
}

// reset starts reading src.
func (s *scanner) reset(src []byte) {
	s.src, s.pos, s.scratch = src, 0, s.scratch[:0]
}

// peek skips white space and returns the next byte, or 0 at the end (and for a NUL, which is
// malformed anywhere).
func (s *scanner) peek() byte {
	for s.pos < len(s.src) {
		c := s.src[s.pos]
		if c > ' ' {
			return c
		}
		if c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return c
		}
		s.pos++
	}
	return 0
}

// malformed is the problem of text at pos that is not JSON.
func (s *scanner) malformed(want string) *problem { return s.malformedAt(s.pos, want) }

func (s *scanner) malformedAt(at int, want string) *problem {
	got := "the end"
	if at < len(s.src) {
		r, _ := utf8.DecodeRune(s.src[at:])
		got = fmt.Sprintf("%q", r)
	}
	if r := s.src[min(at, len(s.src)):]; len(r) > 0 && !utf8.FullRune(r) {
		got = fmt.Sprintf("0x%02x", r[0])
	}
	return &problem{kind: kindMalformed,
		detail: fmt.Sprintf("malformed JSON at byte %d: want %s, got %s", at, want, got)}
}

// unexpected is the problem of a value of the wrong type, or of malformed text at pos.
func (s *scanner) unexpected(want string) *problem {
	got := ""
	switch c := s.peek(); {
	case c == '"':
		got = "a string"
	case c == '{':
		got = "an object"
	case c == '[':
		got = "an array"
	case c == 't' || c == 'f':
		got = "a boolean"
	case c == 'n':
		got = "null"
	case c == '-' || request.IsDigit(c):
		got = "a number"
	default:
		return s.malformed("a value")
	}
	return refused("", "want "+want+", got "+got)
}

// enter reads the bracket that opens an object or an array.
func (s *scanner) enter(bracket byte, want string) *problem {
	if s.peek() != bracket {
		return s.unexpected(want)
	}
	s.pos++
	return nil
}

// member reads up to the value of the next member of an object and returns its name, or nil after
// the last one.
func (s *scanner) member(first bool) ([]byte, *problem) {
	c := s.peek()
	if c == '}' {
		s.pos++
		return nil, nil
	}
	if !first {
		if c != ',' {
			return nil, s.malformed("',' or '}'")
		}
		s.pos++
		c = s.peek()
	}
	if c != '"' {
		return nil, s.malformed("a field name in quotes")
	}
	name, p := s.str()
	if p != nil {
		return nil, p
	}
	if s.peek() != ':' {
		return nil, s.malformed("':'")
	}
	s.pos++
	return name, nil
}

// element reads up to the next element of an array and reports whether there is one.
func (s *scanner) element(first bool) (bool, *problem) {
	c := s.peek()
	if c == ']' {
		s.pos++
		return false, nil
	}
	if first {
		return true, nil
	}
	if c != ',' {
		return false, s.malformed("',' or ']'")
	}
	s.pos++
	if s.peek() == ']' {
		return false, s.malformed("a value")
	}
	return true, nil
}

// end checks that nothing follows the value.
func (s *scanner) end() *problem {
	if s.peek(); s.pos < len(s.src) {
		return s.malformed("nothing more")
	}
	return nil
}

// text reads a string value.
func (s *scanner) text() ([]byte, *problem) {
	if s.peek() != '"' {
		return nil, s.unexpected("a string")
	}
	return s.str()
}

// boolean reads true or false.
func (s *scanner) boolean() (bool, *problem) {
	s.peek()
	switch rest := s.src[s.pos:]; {
	case bytes.HasPrefix(rest, []byte("true")):
		s.pos += 4
		return true, nil
	case bytes.HasPrefix(rest, []byte("false")):
		s.pos += 5
		return false, nil
	}
	if c := s.peek(); c == 't' || c == 'f' {
		return false, s.malformed("true or false")
	}
	return false, s.unexpected("true or false")
}

// integer reads a whole number.
func (s *scanner) integer() (int64, *problem) {
	c := s.peek()
	if c != '-' && !request.IsDigit(c) {
		return 0, s.unexpected("a whole number")
	}
	start := s.pos
	i := start
	if c == '-' {
		i++
	}
	v, end, fits := request.Digits(s.src, i)
	plain := end == len(s.src) || (s.src[end] != '.' && s.src[end]|0x20 != 'e')
	if end == i || (s.src[i] == '0' && end > i+1) || !plain {
		if p := s.number(); p != nil {
			return 0, p
		}
		return 0, refused("", "want a whole number, got "+clip(s.src[start:s.pos]))
	}
	s.pos = end
	if !fits {
		return 0, refused("", "want a whole number, got one that is too large")
	}
	if c == '-' {
		v = -v
	}
	return v, nil
}

// clip shortens a client's text so that it fits in a message.
func clip(b []byte) string {
	const most = 64
	if len(b) <= most {
		return string(b)
	}
	b = b[:most]
	for len(b) > 0 && !utf8.Valid(b) {
		b = b[:len(b)-1]
	}
	return string(b) + "..."
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// plain returns the index, at or after i, of the first byte that ends or complicates a string: a
// quote, a backslash, a control character or a non-ASCII byte. It looks at eight bytes at a time;
// only the position of the first hit is exact, and only that is used.
func plain(b []byte, i int) int {
	for i+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^(ones*'"'), x^(ones*'\\')
		hit := (x | (x - ones*0x20) | (quote - ones) | (slash - ones)) & highs
		if hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
		i += 8
	}
	for i < len(b) && b[i] >= 0x20 && b[i] < 0x80 && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// str reads the string whose opening quote is at pos.
func (s *scanner) str() ([]byte, *problem) {
	start := s.pos + 1
	i := start
	for {
		i = plain(s.src, i)
		if i >= len(s.src) {
			return nil, s.malformedAt(len(s.src), "the closing quote of a string")
		}
		switch c := s.src[i]; {
		case c == '"':
			s.pos = i + 1
			return s.src[start:i], nil
		case c == '\\':
			return s.escaped(start, i)
		case c < 0x20:
			return nil, s.malformedAt(i, "no control character in a string")
		default:
			size, p := s.rune(i)
			if p != nil {
				return nil, p
			}
			i += size
		}
	}
}

package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf8"

	"twotier.dev/twotier/internal/request"
)

// Scanner reads JSON (RFC 8259) in one pass without building a tree. Strings without escapes are
// views into Src. Strings with escapes are written to scratch, which may be reallocated as it
// grows; earlier views keep the old memory.
//
// It exists because general-purpose readers cost more than the counting: see BenchmarkParseBatch.
type Scanner struct {
	// Src is the text, and Pos the position in it. Pos may be set to an earlier one.
	Src []byte
	Pos int

	scratch []byte
}

// Reset starts reading src.
func (s *Scanner) Reset(src []byte) {
	s.Src, s.Pos, s.scratch = src, 0, s.scratch[:0]
}

// Peek skips white space and returns the next byte, or 0 at the end (and for a NUL, which is
// malformed anywhere).
func (s *Scanner) Peek() byte {
	for s.Pos < len(s.Src) {
		c := s.Src[s.Pos]
		if c > ' ' {
			return c
		}
		if c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return c
		}
		s.Pos++
	}
	return 0
}

// malformedProblem is the problem of text at pos that is not JSON.
func (s *Scanner) malformedProblem(want string) *Problem {
	return s.malformedProblemAt(s.Pos, want)
}

func (s *Scanner) malformedProblemAt(at int, want string) *Problem {
	got := "the end"
	if at < len(s.Src) {
		r, _ := utf8.DecodeRune(s.Src[at:])
		got = fmt.Sprintf("%q", r)
	}
	if r := s.Src[min(at, len(s.Src)):]; len(r) > 0 && !utf8.FullRune(r) {
		got = fmt.Sprintf("0x%02x", r[0])
	}
	return malformedAt(at, "want "+want+", got "+got)
}

// malformedAt is the problem of text that is not JSON: wrong describes the mistake at a byte.
func malformedAt(at int, wrong string) *Problem {
	return &Problem{Kind: Malformed,
		Detail: fmt.Sprintf("malformed JSON at byte %d: %s", at, wrong)}
}

// UnexpectedProblem is the problem of a value of the wrong type, or of malformed text at pos.
func (s *Scanner) UnexpectedProblem(want string) *Problem {
	got := ""
	switch c := s.Peek(); {
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
		return s.malformedProblem("a value")
	}
	return FieldProblem("", "want "+want+", got "+got)
}

// ReadBracket reads the bracket that opens an object or an array.
func (s *Scanner) ReadBracket(bracket byte, want string) *Problem {
	if s.Peek() != bracket {
		return s.UnexpectedProblem(want)
	}
	s.Pos++
	return nil
}

// NextMember reads up to the value of the next member of an object and returns its name, or nil
// after the last one.
func (s *Scanner) NextMember(first bool) ([]byte, *Problem) {
	c := s.Peek()
	if c == '}' {
		s.Pos++
		return nil, nil
	}
	if !first {
		if c != ',' {
			return nil, s.malformedProblem("',' or '}'")
		}
		s.Pos++
		c = s.Peek()
	}
	if c != '"' {
		return nil, s.malformedProblem("a field name in quotes")
	}
	name, p := s.Str()
	if p != nil {
		return nil, p
	}
	if s.Peek() != ':' {
		return nil, s.malformedProblem("':'")
	}
	s.Pos++
	return name, nil
}

// NextElement reads up to the next element of an array and reports whether there is one.
func (s *Scanner) NextElement(first bool) (bool, *Problem) {
	c := s.Peek()
	if c == ']' {
		s.Pos++
		return false, nil
	}
	if first {
		return true, nil
	}
	if c != ',' {
		return false, s.malformedProblem("',' or ']'")
	}
	s.Pos++
	if s.Peek() == ']' {
		return false, s.malformedProblem("a value")
	}
	return true, nil
}

// ReadObject reads an object, and calls read at the value of each member.
func (s *Scanner) ReadObject(want string, read func(name []byte) *Problem) *Problem {
	if p := s.ReadBracket('{', want); p != nil {
		return p
	}
	for first := true; ; first = false {
		name, p := s.NextMember(first)
		if p != nil || name == nil {
			return p
		}
		if p := read(name); p != nil {
			return p
		}
	}
}

// ReadList reads a list of at most most elements, which are called units, and calls read at each.
func (s *Scanner) ReadList(want string, most int, units string,
	read func(i int) *Problem) *Problem {
	if p := s.ReadBracket('[', want); p != nil {
		return p
	}
	for i := 0; ; i++ {
		more, p := s.NextElement(i == 0)
		if p != nil || !more {
			return p
		}
		if i == most {
			return FieldProblem("", fmt.Sprintf("want at most %d %s", most, units))
		}
		if p := read(i); p != nil {
			return p.PrefixField("[" + strconv.Itoa(i) + "]")
		}
	}
}

// ExpectEnd checks that nothing follows the value.
func (s *Scanner) ExpectEnd() *Problem {
	if s.Peek(); s.Pos < len(s.Src) {
		return s.malformedProblem("nothing more")
	}
	return nil
}

// ReadText reads a string value.
func (s *Scanner) ReadText() ([]byte, *Problem) {
	if s.Peek() != '"' {
		return nil, s.UnexpectedProblem("a string")
	}
	return s.Str()
}

// ReadBool reads true or false.
func (s *Scanner) ReadBool() (bool, *Problem) {
	s.Peek()
	switch rest := s.Src[s.Pos:]; {
	case bytes.HasPrefix(rest, []byte("true")):
		s.Pos += 4
		return true, nil
	case bytes.HasPrefix(rest, []byte("false")):
		s.Pos += 5
		return false, nil
	}
	if c := s.Peek(); c == 't' || c == 'f' {
		return false, s.malformedProblem("true or false")
	}
	return false, s.UnexpectedProblem("true or false")
}

// ReadInteger reads a whole number.
func (s *Scanner) ReadInteger() (int64, *Problem) {
	c := s.Peek()
	if c != '-' && !request.IsDigit(c) {
		return 0, s.UnexpectedProblem("a whole number")
	}
	start := s.Pos
	i := start
	if c == '-' {
		i++
	}
	v, end, fits := request.ParseDigits(s.Src, i)
	plain := end == len(s.Src) || (s.Src[end] != '.' && s.Src[end]|0x20 != 'e')
	if end == i || (s.Src[i] == '0' && end > i+1) || !plain {
		if p := s.skipNumber(); p != nil {
			return 0, p
		}
		return 0, FieldProblem("", "want a whole number, got "+request.Clip(s.Src[start:s.Pos]))
	}
	s.Pos = end
	if !fits {
		return 0, FieldProblem("", "want a whole number, got one that is too large")
	}
	if c == '-' {
		v = -v
	}
	return v, nil
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// plainEnd returns the index, at or after i, of the first byte that ends or complicates a string: a
// quote, a backslash, a control character or a non-ASCII byte. It looks at eight bytes at a time;
// only the position of the first hit is exact, and only that is used.
func plainEnd(b []byte, i int) int {
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

// Str reads the string whose opening quote is at pos.
func (s *Scanner) Str() ([]byte, *Problem) {
	start := s.Pos + 1
	i := start
	for {
		i = plainEnd(s.Src, i)
		if i >= len(s.Src) {
			return nil, s.malformedProblemAt(len(s.Src), "the closing quote of a string")
		}
		switch c := s.Src[i]; {
		case c == '"':
			s.Pos = i + 1
			return s.Src[start:i], nil
		case c == '\\':
			return s.readEscaped(start, i)
		case c < 0x20:
			return nil, s.malformedProblemAt(i, "no control character in a string")
		default:
			size, p := s.runeLen(i)
			if p != nil {
				return nil, p
			}
			i += size
		}
	}
}

// text is a type that can be appended as a JSON string.
type text interface{ ~string | ~[]byte }

// AppendString appends s as a JSON string. Like encoding/json it replaces invalid UTF-8 with
// U+FFFD.
func AppendString[T text](b []byte, s T) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			if r == utf8.RuneError && size == 1 {
				b = append(append(b, s[start:i]...), `\ufffd`...)
				start = i + 1
			}
			i += size
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\t':
			b = append(b, '\\', 't')
		case '\r':
			b = append(b, '\\', 'r')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

// AppendField appends ,"name":v; the name must not need escaping.
func AppendField(b []byte, name string, v int64) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return strconv.AppendInt(b, v, 10)
}

// AppendComma appends a comma unless a list has just begun.
func AppendComma(b []byte) []byte {
	if b[len(b)-1] == '[' {
		return b
	}
	return append(b, ',')
}

// AppendKey appends {"key":k; the caller closes the object.
func AppendKey(b, key []byte) []byte {
	return AppendString(append(b, `{"key":`...), key)
}

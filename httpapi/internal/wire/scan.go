package wire

import (
	"bytes"
	"math"
	"unicode/utf16"
	"unicode/utf8"

	"twotier.dev/twotier/internal/request"
)

// runeLen checks the multi-byte character at i and returns its length.
func (s *Scanner) runeLen(i int) (int, *Problem) {
	r, size := utf8.DecodeRune(s.Src[i:])
	if r == utf8.RuneError && size == 1 {
		return 0, malformedAt(i, "invalid UTF-8")
	}
	return size, nil
}

// readEscaped reads the rest of a string into scratch, from the backslash at i; src[start:i] has
// been read already.
func (s *Scanner) readEscaped(start, i int) ([]byte, *Problem) {
	mark := len(s.scratch)
	s.scratch = append(s.scratch, s.Src[start:i]...)
	for {
		next := plainEnd(s.Src, i)
		s.scratch = append(s.scratch, s.Src[i:next]...)
		i = next
		if i >= len(s.Src) {
			return nil, s.malformedProblemAt(len(s.Src), "the closing quote of a string")
		}
		size, p := 0, (*Problem)(nil)
		switch c := s.Src[i]; {
		case c == '"':
			s.Pos = i + 1
			return s.scratch[mark:len(s.scratch):len(s.scratch)], nil
		case c == '\\':
			size, p = s.appendEscape(i)
		case c < 0x20:
			p = s.malformedProblemAt(i, "no control character in a string")
		default:
			if size, p = s.runeLen(i); p == nil {
				s.scratch = append(s.scratch, s.Src[i:i+size]...)
			}
		}
		if p != nil {
			return nil, p
		}
		i += size
	}
}

// appendEscape appends the character of the escape sequence at i and returns the sequence's length.
func (s *Scanner) appendEscape(i int) (int, *Problem) {
	const want = `one of "\/bfnrtu`
	if i+1 >= len(s.Src) {
		return 0, s.malformedProblemAt(i+1, want)
	}
	c := s.Src[i+1]
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		return s.appendUnicodeEscape(i)
	default:
		return 0, s.malformedProblemAt(i+1, want)
	}
	s.scratch = append(s.scratch, c)
	return 2, nil
}

// appendUnicodeEscape appends the character of the \uXXXX at i, or of the surrogate pair that
// begins there.
func (s *Scanner) appendUnicodeEscape(i int) (int, *Problem) {
	r, p := s.readHex4(i + 2)
	if p != nil {
		return 0, p
	}
	if !utf16.IsSurrogate(r) {
		s.scratch = utf8.AppendRune(s.scratch, r)
		return 6, nil
	}
	if i+8 <= len(s.Src) && s.Src[i+6] == '\\' && s.Src[i+7] == 'u' {
		low, p := s.readHex4(i + 8)
		if p != nil {
			return 0, p
		}
		if full := utf16.DecodeRune(r, low); full != utf8.RuneError {
			s.scratch = utf8.AppendRune(s.scratch, full)
			return 12, nil
		}
	}
	// encoding/json would put U+FFFD here, which could turn two different keys into one.
	return 0, malformedAt(i, "half a surrogate pair")
}

// readHex4 reads four hexadecimal digits.
func (s *Scanner) readHex4(i int) (rune, *Problem) {
	var r rune
	for end := i + 4; i < end; i++ {
		if i >= len(s.Src) {
			return 0, s.malformedProblemAt(i, "a hexadecimal digit")
		}
		switch c := s.Src[i]; {
		case request.IsDigit(c):
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, s.malformedProblemAt(i, "a hexadecimal digit")
		}
	}
	return r, nil
}

// maxDepth bounds how deeply a skipped value may nest: Skip is recursive.
const maxDepth = 200

// Skip reads any value and only checks that it is JSON. It is used after an error, to find out
// whether the rest is well-formed and where the next operation of a batch begins.
func (s *Scanner) Skip(depth int) *Problem {
	switch c := s.Peek(); {
	case c == '{' || c == '[':
		if depth >= maxDepth {
			return malformedAt(s.Pos, "nested too deeply")
		}
		if c == '[' {
			return s.ReadList("", math.MaxInt, "", func(int) *Problem { return s.Skip(depth + 1) })
		}
		return s.ReadObject("", func([]byte) *Problem { return s.Skip(depth + 1) })
	case c == '"':
		_, p := s.Str()
		return p
	case c == '-' || request.IsDigit(c):
		return s.skipNumber()
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(s.Src[s.Pos:], []byte(word)) {
			s.Pos += len(word)
			return nil
		}
	}
	return s.malformedProblem("a value")
}

// skipNumber reads a number in any notation.
func (s *Scanner) skipNumber() *Problem {
	i := s.Pos
	if i < len(s.Src) && s.Src[i] == '-' {
		i++
	}
	_, end, _ := request.ParseDigits(s.Src, i)
	if end == i {
		return s.malformedProblemAt(end, "a digit")
	}
	if s.Src[i] == '0' && end > i+1 {
		return s.malformedProblemAt(i+1, "no digit after a leading zero")
	}
	i = end
	if i < len(s.Src) && s.Src[i] == '.' {
		_, end, _ = request.ParseDigits(s.Src, i+1)
		if end == i+1 {
			return s.malformedProblemAt(end, "a digit")
		}
		i = end
	}
	if i < len(s.Src) && s.Src[i]|0x20 == 'e' {
		i++
		if i < len(s.Src) && (s.Src[i] == '+' || s.Src[i] == '-') {
			i++
		}
		_, end, _ = request.ParseDigits(s.Src, i)
		if end == i {
			return s.malformedProblemAt(end, "a digit")
		}
		i = end
	}
	s.Pos = i
	return nil
}

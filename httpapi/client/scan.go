package client

import (
	"encoding/json"
	"math"
)

// maxDepth bounds the nesting of what is passed over.
const maxDepth = 32

// scanner reads JSON from the front of b. The first thing that is not as expected sets bad, and nothing is read from then on.
type scanner struct {
	b   []byte
	i   int
	bad bool
}

func (s *scanner) fail() { s.bad, s.i = true, len(s.b) }

// peek returns the next byte that is not space, 0 at the end.
func (s *scanner) peek() byte {
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// eat reads one byte.
func (s *scanner) eat(c byte) {
	if s.peek() != c || s.bad {
		s.fail()
		return
	}
	s.i++
}

// more begins a list or object if first is set, and reports whether there is another element to read.
func (s *scanner) more(first bool, open, end byte) bool {
	if first {
		s.eat(open)
	}
	if s.peek() == end && !s.bad {
		s.i++
		return false
	}
	if !first {
		s.eat(',')
	}
	return !s.bad
}

// name reads the name of a member and the colon.
func (s *scanner) name() []byte {
	name := s.text()
	s.eat(':')
	return name
}

// raw reads a string and returns it with its quotes, and whether there are escapes in it.
func (s *scanner) raw() (text []byte, escaped bool) {
	start := s.i
	if s.eat('"'); s.bad {
		return nil, false
	}
	start = max(start, s.i-1)
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return s.b[start:s.i], escaped
		case c == '\\':
			escaped = true
			s.i++
			if !s.escape() {
				s.fail()
				return nil, false
			}
		case c < ' ':
			s.fail()
			return nil, false
		}
	}
	s.fail()
	return nil, false
}

// escape passes over what follows a backslash, but for its last byte.
func (s *scanner) escape() bool {
	if s.i >= len(s.b) {
		return false
	}
	switch s.b[s.i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		if s.i+4 >= len(s.b) {
			return false
		}
		for _, c := range s.b[s.i+1 : s.i+5] {
			if (c < '0' || c > '9') && (c|32 < 'a' || c|32 > 'f') {
				return false
			}
		}
		s.i += 4
		return true
	}
	return false
}

// text reads a string. It is valid as long as what is being read is.
func (s *scanner) text() []byte {
	text, escaped := s.raw()
	if s.bad {
		return nil
	}
	if !escaped {
		return text[1 : len(text)-1]
	}
	var plain string
	if err := json.Unmarshal(text, &plain); err != nil {
		s.fail()
	}
	return []byte(plain)
}

// unsigned reads a whole number without a sign.
func (s *scanner) unsigned() uint64 {
	if c := s.peek(); c < '0' || c > '9' {
		s.fail()
		return 0
	}
	n, start := uint64(0), s.i
	for ; s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9'; s.i++ {
		d := uint64(s.b[s.i] - '0')
		if n > (math.MaxUint64-d)/10 {
			s.fail()
			return 0
		}
		n = n*10 + d
	}
	if s.i-start > 1 && s.b[start] == '0' || s.i < len(s.b) && (s.b[s.i] == '.' || s.b[s.i]|32 == 'e') {
		s.fail()
	}
	return n
}

// integer reads a whole number.
func (s *scanner) integer() int64 {
	negative := s.peek() == '-' && !s.bad
	if negative {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] < '0' || s.b[s.i] > '9') {
			s.fail()
		}
	}
	n := s.unsigned()
	if n > math.MaxInt64 {
		s.fail()
		return 0
	}
	if negative {
		return -int64(n)
	}
	return int64(n)
}

// boolean reads true or false.
func (s *scanner) boolean() bool {
	if s.peek() == 't' {
		s.word("true")
		return !s.bad
	}
	s.word("false")
	return false
}

func (s *scanner) word(w string) {
	if s.bad || len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		s.fail()
		return
	}
	s.i += len(w)
}

// value reads any value and returns it as it stands.
func (s *scanner) value() []byte {
	s.peek()
	start := s.i
	s.skip(0)
	if s.bad {
		return nil
	}
	return s.b[start:s.i]
}

// skip passes over any value.
func (s *scanner) skip(depth int) {
	c := s.peek()
	switch {
	case depth > maxDepth:
		s.fail()
	case c == '{':
		for first := true; s.more(first, '{', '}'); first = false {
			s.raw()
			s.eat(':')
			s.skip(depth + 1)
		}
	case c == '[':
		for first := true; s.more(first, '[', ']'); first = false {
			s.skip(depth + 1)
		}
	case c == '"':
		s.raw()
	case c == 't':
		s.word("true")
	case c == 'f':
		s.word("false")
	case c == 'n':
		s.word("null")
	default:
		s.number()
	}
}

// number passes over a number.
func (s *scanner) number() {
	start := s.i
	for ; s.i < len(s.b); s.i++ {
		c := s.b[s.i]
		if (c < '0' || c > '9') && c != '-' && c != '+' && c != '.' && c|32 != 'e' {
			break
		}
	}
	if !json.Valid(s.b[start:s.i]) {
		s.fail()
	}
}

// end reports whether everything was read as expected and nothing follows.
func (s *scanner) end() bool { return s.peek() == 0 && s.i == len(s.b) && !s.bad }

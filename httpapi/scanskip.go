package httpapi

import (
	"bytes"

	"twotier.dev/twotier/internal/request"
)

// maxDepth bounds how deeply a skipped value may nest: skip is recursive.
const maxDepth = 200

// skip reads any value and only checks that it is JSON. It is used after an error, to find out
// whether the rest is well-formed and where the next operation of a batch begins.
func (s *scanner) skip(depth int) *problem {
	switch c := s.peek(); {
	case c == '{' || c == '[':
		if depth >= maxDepth {
			return &problem{kind: kindMalformed, detail: "malformed JSON at byte " + itoa(s.pos) +
				": nested too deeply"}
		}
		s.pos++
		if c == '[' {
			return s.skipArray(depth + 1)
		}
		return s.skipObject(depth + 1)
	case c == '"':
		_, p := s.str()
		return p
	case c == '-' || request.IsDigit(c):
		return s.number()
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(s.src[s.pos:], []byte(word)) {
			s.pos += len(word)
			return nil
		}
	}
	return s.malformed("a value")
}

func (s *scanner) skipObject(depth int) *problem {
	for first := true; ; first = false {
		name, p := s.member(first)
		if p != nil || name == nil {
			return p
		}
		if p := s.skip(depth); p != nil {
			return p
		}
	}
}

func (s *scanner) skipArray(depth int) *problem {
	for first := true; ; first = false {
		more, p := s.element(first)
		if p != nil || !more {
			return p
		}
		if p := s.skip(depth); p != nil {
			return p
		}
	}
}

// number reads a number in any notation.
func (s *scanner) number() *problem {
	i := s.pos
	if i < len(s.src) && s.src[i] == '-' {
		i++
	}
	_, end, _ := request.Digits(s.src, i)
	if end == i {
		return s.malformedAt(end, "a digit")
	}
	if s.src[i] == '0' && end > i+1 {
		return s.malformedAt(i+1, "no digit after a leading zero")
	}
	i = end
	if i < len(s.src) && s.src[i] == '.' {
		_, end, _ = request.Digits(s.src, i+1)
		if end == i+1 {
			return s.malformedAt(end, "a digit")
		}
		i = end
	}
	if i < len(s.src) && s.src[i]|0x20 == 'e' {
		i++
		if i < len(s.src) && (s.src[i] == '+' || s.src[i] == '-') {
			i++
		}
		_, end, _ = request.Digits(s.src, i)
		if end == i {
			return s.malformedAt(end, "a digit")
		}
		i = end
	}
	s.pos = i
	return nil
}

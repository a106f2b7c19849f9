package wire

import (
	"bytes"
	"fmt"

	"twotier.dev/twotier/internal/request"
)

// maxDepth bounds how deeply a skipped value may nest: Skip is recursive.
const maxDepth = 200

// Skip reads any value and only checks that it is JSON. It is used after an error, to find out
// whether the rest is well-formed and where the next operation of a batch begins.
func (s *Scanner) Skip(depth int) *Problem {
	switch c := s.Peek(); {
	case c == '{' || c == '[':
		if depth >= maxDepth {
			return &Problem{Kind: Malformed,
				Detail: fmt.Sprintf("malformed JSON at byte %d: nested too deeply", s.Pos)}
		}
		s.Pos++
		if c == '[' {
			return s.skipArray(depth + 1)
		}
		return s.skipObject(depth + 1)
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

func (s *Scanner) skipObject(depth int) *Problem {
	for first := true; ; first = false {
		name, p := s.NextMember(first)
		if p != nil || name == nil {
			return p
		}
		if p := s.Skip(depth); p != nil {
			return p
		}
	}
}

func (s *Scanner) skipArray(depth int) *Problem {
	for first := true; ; first = false {
		more, p := s.NextElement(first)
		if p != nil || !more {
			return p
		}
		if p := s.Skip(depth); p != nil {
			return p
		}
	}
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

package tap

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// value is a value of RESP2 or RESP3.
type value struct {
	kind  byte   // its first byte; 0 for null
	text  []byte // of a value without elements, nil if it is empty or longer than maxText
	elems []*value
	left  int // elements still to come
}

const (
	// maxText is the longest text that is kept, in bytes.
	maxText = 64 << 10
	// maxKept bounds the bytes of a value that are kept, with perValue for each element.
	maxKept  = 256 << 10
	perValue = 64
	maxDepth = 64
	maxLine  = 64 << 10
	// maxBulk is the longest string that Redis accepts, and maxElements the longest array.
	maxBulk     = 512 << 20
	maxElements = 1 << 30
)

var (
	errForm = errors.New("this is not RESP, or an inline command")
	errDeep = errors.New("values are nested too deeply, or lines too long")
)

// scanner finds the values in one direction of a connection, in pieces of any size.
type scanner struct {
	// emit is called with each value on the top level. A long one is not complete.
	emit func(v *value, long bool) error

	line []byte   // the beginning of a header
	bulk int      // bytes of a string to come, with its end
	leaf *value   // this string
	skip bool     // it is too long to be kept
	open []*value // aggregates with elements to come, outermost first
	kept int      // bytes kept of the value on the top level; more than maxKept: it is too long
}

// scan reads the next bytes. After an error the scanner must not be used.
func (s *scanner) scan(b []byte) error {
	for len(b) > 0 {
		if s.bulk > 0 {
			n := min(s.bulk, len(b))
			s.keep(b[:max(0, min(n, s.bulk-len("\r\n")))])
			b, s.bulk = b[n:], s.bulk-n
			if s.bulk == 0 {
				if err := s.finish(s.leaf); err != nil {
					return err
				}
			}
			continue
		}
		end := bytes.IndexByte(b, '\n') + 1
		if end == 0 {
			end = len(b)
		}
		if len(s.line)+end > maxLine {
			return errDeep
		}
		s.line = append(s.line, b[:end]...)
		if b[end-1] == '\n' {
			line := s.line
			s.line = s.line[:0]
			if err := s.header(line); err != nil {
				return err
			}
		}
		b = b[end:]
	}
	return nil
}

// keep keeps a part of a text, unless it or its value is too long.
func (s *scanner) keep(part []byte) {
	if s.skip {
		return
	}
	if s.kept += len(part); s.kept <= maxKept {
		s.leaf.text = append(s.leaf.text, part...)
	}
}

// header reads the first line of a value.
func (s *scanner) header(line []byte) error {
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return errForm
	}
	v := &value{kind: line[0]}
	text := line[1 : len(line)-2]
	s.leaf, s.skip = v, false
	switch v.kind {
	case '+', '-', ':', '#', ',', '(':
		s.keep(text)
		return s.finish(v)
	case '_':
		v.kind = 0
		return s.finish(v)
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n < -1 {
		return fmt.Errorf("%w: %.20q", errForm, line)
	}
	switch {
	case bytes.IndexByte([]byte("$=!*~>%|"), v.kind) < 0 || n > maxElements:
		return fmt.Errorf("%w: %.20q", errForm, line)
	case n == -1:
		v.kind = 0
		return s.finish(v)
	case v.kind == '$' || v.kind == '=' || v.kind == '!':
		if n > maxBulk {
			return errForm
		}
		s.bulk, s.skip = n+len("\r\n"), n > maxText
		return nil
	case v.kind == '%' || v.kind == '|':
		n *= 2
	}
	if n == 0 {
		return s.finish(v)
	}
	if len(s.open) == maxDepth {
		return errDeep
	}
	v.left = n
	s.open = append(s.open, v)
	return nil
}

// finish adds a complete value to the aggregate that contains it, or emits it.
func (s *scanner) finish(v *value) error {
	for {
		isAttribute := v.kind == '|' // it precedes the value that it describes
		if len(s.open) == 0 {
			long := s.kept > maxKept
			s.kept = 0
			if isAttribute {
				return nil
			}
			return s.emit(v, long)
		}
		if isAttribute {
			return nil
		}
		in := s.open[len(s.open)-1]
		if s.kept += perValue; s.kept <= maxKept {
			in.elems = append(in.elems, v)
		}
		if in.left--; in.left > 0 {
			return nil
		}
		s.open = s.open[:len(s.open)-1]
		v = in
	}
}

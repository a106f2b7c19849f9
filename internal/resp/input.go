package resp

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

const (
	// smallInput is the size of the buffer that every connection has. largeInput is the size of the
	// buffer for deep pipelines and long commands, and also the maximum size of a command.
	smallInput = 4 << 10
	largeInput = 64 << 10
	// maxArgs bounds the arguments of a command.
	maxArgs = 4096
	// leastArg is the size of the shortest argument: "$0\r\n\r\n".
	leastArg = 6
)

// input holds received bytes that have not been executed yet, and the parser of the command at
// their front. Arguments are views into the buffer, valid until compact or moveTo is called.
type input struct {
	buf        []byte
	start, end int // received bytes are buf[start:end]
	// need is a lower bound on the size of the command at the front. The command is not parsed
	// again before that many bytes are there: otherwise one that arrives byte by byte would be
	// parsed for every byte.
	need int
	args [][]byte // of the command that nextCommand has parsed
	// inline is set if that command was not an array.
	inline bool
}

// freeSpace returns the free part of the buffer.
func (in *input) freeSpace() []byte { return in.buf[in.end:] }

// hasPartial reports whether the buffer holds an incomplete command.
func (in *input) hasPartial() bool { return in.end > in.start }

// isFull reports whether the buffer has no room for the rest of the command at its front.
func (in *input) isFull() bool { return in.end-in.start == len(in.buf) }

// compact moves the remaining bytes to the front of the buffer.
func (in *input) compact() {
	if in.start > 0 {
		in.end = copy(in.buf, in.buf[in.start:in.end])
		in.start = 0
	}
}

// moveTo replaces the buffer by another one that the remaining bytes fit in.
func (in *input) moveTo(buf []byte) {
	in.end = copy(buf, in.buf[in.start:in.end])
	in.buf, in.start = buf, 0
}

// nextCommand parses the command at the front, if it has been received completely, and removes it
// from the buffer. err reports why the input is not RESP. A command may have no arguments.
func (in *input) nextCommand() (ok bool, err error) {
	b := in.buf[in.start:in.end]
	if len(b) == 0 || len(b) < in.need {
		return false, nil
	}
	in.args = in.args[:0]
	size, need := 0, 0
	if in.inline = b[0] != '*'; in.inline {
		size, need, err = in.parseInline(b)
	} else {
		size, need, err = in.parseArray(b)
	}
	switch {
	case err != nil:
		return false, err
	case need > largeInput:
		return false, fmt.Errorf("a command has at most %d bytes", largeInput)
	}
	in.start += size
	in.need = need
	return need == 0, nil
}

// parseArray parses an array of bulk strings. If it is incomplete, need is a lower bound on its
// size.
func (in *input) parseArray(b []byte) (size, need int, err error) {
	n, at, err := parseHeader(b, 0, maxArgs, "multibulk")
	if err != nil || at == 0 {
		return 0, len(b) + 1, err
	}
	for ; n > 0; n-- {
		rest := (n - 1) * leastArg
		if at == len(b) {
			return 0, at + leastArg + rest, nil
		}
		if b[at] != '$' {
			return 0, 0, fmt.Errorf("expected '$', got %q", rune(b[at]))
		}
		length, from, err := parseHeader(b, at, largeInput, "bulk")
		if err == nil && length < 0 {
			err = errors.New("invalid bulk length")
		}
		if err != nil {
			return 0, 0, err
		}
		if from == 0 {
			return 0, max(len(b)+1, at+leastArg+rest), nil
		}
		if at = from + length + 2; at > len(b) {
			return 0, at + rest, nil
		}
		if b[at-2] != '\r' || b[at-1] != '\n' {
			return 0, 0, fmt.Errorf("a bulk string of %d bytes does not end after these", length)
		}
		in.args = append(in.args, b[from:from+length:from+length])
	}
	return at, 0, nil
}

// parseHeader parses the number behind the type at b[at], up to the end of its line. next is the
// index after the line, or 0 if the line is incomplete.
func parseHeader(b []byte, at, most int, what string) (n, next int, err error) {
	if at+3 < len(b) && b[at+2] == '\r' && b[at+3] == '\n' && '0' <= b[at+1] && b[at+1] <= '9' {
		return int(b[at+1] - '0'), at + 4, nil // a single digit, as most are
	}
	const longest = len("*-2147483648\r\n")
	line := b[at+1:]
	end := bytes.IndexByte(line[:min(len(line), longest)], '\n')
	if end < 0 {
		if len(line) >= longest {
			return 0, 0, fmt.Errorf("invalid %s length", what)
		}
		return 0, 0, nil
	}
	digits, ends := bytes.CutSuffix(line[:end], []byte{'\r'})
	v, ok := parseInteger(digits)
	if !ok || !ends || v > int64(most) {
		return 0, 0, fmt.Errorf("invalid %s length", what)
	}
	return int(v), at + 1 + end + 1, nil
}

// parseInline parses an inline command: words separated by spaces, up to the end of the line. Words
// may be in quotes, as in Redis.
func (in *input) parseInline(b []byte) (size, need int, err error) {
	end := bytes.IndexByte(b[:min(len(b), smallInput)], '\n')
	if end < 0 {
		if len(b) >= smallInput {
			return 0, 0, fmt.Errorf("too big inline request")
		}
		return 0, len(b) + 1, nil
	}
	for rest := bytes.TrimSpace(b[:end]); len(rest) > 0; rest = bytes.TrimLeft(rest, spaces) {
		var word []byte
		if word, rest, err = parseInlineWord(rest); err != nil {
			return 0, 0, err
		}
		in.args = append(in.args, word)
	}
	return end + 1, 0, nil
}

// parseInteger parses a decimal number in its shortest form.
func parseInteger(b []byte) (v int64, ok bool) {
	digits := b
	if len(b) > 0 && b[0] == '-' {
		digits = b[1:]
	}
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' || len(digits) > 19 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' || v > (1<<63-1-int64(c-'0'))/10 {
			return 0, false
		}
		v = v*10 + int64(c-'0')
	}
	if len(digits) < len(b) {
		v = -v
	}
	return v, true
}

// spaces separate the words of an inline command.
const spaces = " \t\r\v\f"

var errQuotes = errors.New("unbalanced quotes in request")

// parseInlineWord returns the first word of b, which does not begin with a space, and the rest of
// b. A word without quotes is taken literally. In double quotes, \n, \r, \t, \b, \a and \xHH are
// single bytes, and a backslash makes any other byte stand for itself; in single quotes only \' is
// an escape. A space or the end of b must follow a closing quote. The word is decoded in place.
func parseInlineWord(b []byte) (word, rest []byte, err error) {
	word = b[:0]
	for i := 0; i < len(b); {
		switch c := b[i]; {
		case bytes.IndexByte([]byte(spaces), c) >= 0:
			return word[:len(word):len(word)], b[i:], nil
		case c == '"' || c == '\'':
			n := 0
			if word, n = appendQuoted(word, b[i+1:], c); n < 0 {
				return nil, nil, errQuotes
			}
			if i += 1 + n; i < len(b) && bytes.IndexByte([]byte(spaces), b[i]) < 0 {
				return nil, nil, errQuotes
			}
		default:
			word = append(word, c)
			i++
		}
	}
	return word[:len(word):len(word)], nil, nil
}

// appendQuoted appends the bytes of b before the closing quote to word. It returns how many bytes
// of b it has read, with the quote, or -1 if there is no closing quote.
func appendQuoted(word, b []byte, quote byte) ([]byte, int) {
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case c == quote:
			return word, i + 1
		case c == '\\' && quote == '"' && i+1 < len(b):
			var n int
			c, n = decodeEscape(b[i+1:])
			i += n
		case c == '\\' && quote == '\'' && i+1 < len(b) && b[i+1] == '\'':
			c = '\''
			i++
		}
		word = append(word, c)
	}
	return word, -1
}

// decodeEscape decodes an escape whose backslash precedes b. It returns the byte and the length of
// the escape without the backslash.
func decodeEscape(b []byte) (c byte, n int) {
	if b[0] == 'x' && len(b) > 2 {
		if v, err := strconv.ParseUint(string(b[1:3]), 16, 8); err == nil {
			return byte(v), 3
		}
	}
	switch b[0] {
	case 'n':
		return '\n', 1
	case 'r':
		return '\r', 1
	case 't':
		return '\t', 1
	case 'b':
		return '\b', 1
	case 'a':
		return '\a', 1
	}
	return b[0], 1
}

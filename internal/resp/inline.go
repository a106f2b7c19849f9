package resp

import (
	"bytes"
	"errors"
	"strconv"
)

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

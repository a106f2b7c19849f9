package faultproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// maxBulk is the longest string that Redis accepts.
const maxBulk = 512 << 20

// readRaw returns the data that has arrived as one message.
func readRaw(br *bufio.Reader) ([]byte, error) {
	if _, err := br.Peek(1); err != nil {
		return nil, err
	}
	frame := make([]byte, br.Buffered())
	_, err := io.ReadFull(br, frame)
	return frame, err
}

// readRESP reads one value of RESP2 or RESP3 with everything nested in it, or one inline command,
// without parsing it. See
// https://github.com/redis/redis-specifications/blob/master/protocol/RESP3.md; it does not support
// streamed types. If the stream ends within a value, it returns the part that it has read along
// with the error.
func readRESP(br *bufio.Reader) ([]byte, error) {
	var frame []byte
	for left := 1; left > 0; left-- {
		line, err := br.ReadBytes('\n')
		frame = append(frame, line...)
		if err != nil {
			return frame, err
		}
		nested, bulk, err := header(line)
		if err != nil {
			return frame, err
		}
		left += nested
		start := len(frame)
		frame = append(frame, make([]byte, bulk)...)
		if n, err := io.ReadFull(br, frame[start:]); err != nil {
			return frame[:start+n], err
		}
	}
	return frame, nil
}

// header returns how many nested values and how many bytes follow the first line of a value.
func header(line []byte) (nested, bulk int, err error) {
	kind := line[0]
	if bytes.IndexByte([]byte("*~>%|$=!"), kind) < 0 {
		return 0, 0, nil // all on one line
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	if err != nil || n < -1 || n > maxBulk {
		return 0, 0, fmt.Errorf("bad header %.40q", line)
	}
	if n == -1 { // null
		return 0, 0, nil
	}
	switch kind {
	case '*', '~', '>':
		return n, 0, nil
	case '%':
		return 2 * n, 0, nil
	case '|': // attributes precede their value
		return 2*n + 1, 0, nil
	default:
		return 0, n + len("\r\n"), nil
	}
}

// isPush reports whether the message is a push, which no request asked for.
func isPush(frame []byte) bool { return frame[0] == '>' }

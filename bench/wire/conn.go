package wire

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"
)

// conn is a connection with memory for a request and its answer.
type conn struct {
	net.Conn
	out, in []byte
	closing bool // the server has announced it
	// used is the beginning of the last call, deadline the end of the connection.
	used, deadline time.Time
}

// head ends the header of a request. Zeros stand for the length of the body, which is known last.
const head = "\r\nContent-Type: application/json\r\nContent-Length: 00000000\r\n\r\n"

// post makes one call. The answer is valid until the next one.
func (k *conn) post(host, path string, build func([]byte) []byte) (status int, answer []byte,
	err error) {
	b := append(append(k.out[:0], "POST "...), path...)
	b = append(append(b, " HTTP/1.1\r\nHost: "...), host...)
	b = append(b, head...)
	begin := len(b)
	k.out = build(b)
	at := begin - len(endOfHeader)
	for length := len(k.out) - begin; length > 0; length /= 10 {
		at--
		k.out[at] = '0' + byte(length%10)
	}
	if _, err := k.Write(k.out); err != nil {
		return 0, nil, err
	}
	return k.answer()
}

var (
	endOfHeader   = []byte("\r\n\r\n")
	contentLength = []byte("\r\nContent-Length: ")
	willClose     = []byte("\r\nConnection: close")
)

// answer reads the answer to the one request in flight.
func (k *conn) answer() (status int, body []byte, err error) {
	have, begin := 0, -1
	for begin < 0 {
		if have == len(k.in) {
			return 0, nil, errors.New("the header of the answer has no end")
		}
		n, err := k.Read(k.in[have:])
		if err != nil {
			return 0, nil, err
		}
		have += n
		begin = bytes.Index(k.in[:have], endOfHeader)
	}
	status, length, err := k.header(k.in[:begin])
	if err != nil {
		return 0, nil, err
	}
	begin += len(endOfHeader)
	whole := begin + length
	if have > whole {
		return 0, nil, fmt.Errorf("%d bytes after the answer", have-whole)
	}
	k.in = slices.Grow(k.in[:have], whole-have)
	k.in = k.in[:cap(k.in)]
	for have < whole {
		n, err := k.Read(k.in[have:whole])
		if err != nil {
			return 0, nil, err
		}
		have += n
	}
	return status, k.in[begin:whole], nil
}

// header reads the status and the length of the body.
func (k *conn) header(b []byte) (status, length int, err error) {
	const version = "HTTP/1.1 "
	if !bytes.HasPrefix(b, []byte(version)) || len(b) < len(version)+3 {
		return 0, 0, fmt.Errorf("not an answer of HTTP/1.1: %.100q", b)
	}
	status, err1 := strconv.Atoi(string(b[len(version) : len(version)+3]))
	_, digits, found := bytes.Cut(b, contentLength)
	digits, _, _ = bytes.Cut(digits, []byte("\r\n"))
	length, err2 := strconv.Atoi(string(digits))
	if err := errors.Join(err1, err2); err != nil || !found || length < 0 {
		return 0, 0, fmt.Errorf("the answer does not state its length: %.100q", b)
	}
	k.closing = bytes.Contains(b, willClose)
	return status, length, nil
}

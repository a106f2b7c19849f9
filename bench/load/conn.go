package load

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// Conn is one connection. It is for one goroutine.
type Conn struct {
	net net.Conn
	buf []byte
}

// callTimeout is far above anything that a working server needs.
const callTimeout = 30 * time.Second

// Dial connects to a server.
func Dial(addr string) (*Conn, error) {
	c, err := net.DialTimeout("tcp", addr, callTimeout)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	return &Conn{net: c, buf: make([]byte, 64<<10)}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.net.Close() }

// Do sends a request and waits for its answer. An answer other than 200, or one without what a success says, is an error.
func (c *Conn) Do(r *Request) error {
	if err := c.net.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return fmt.Errorf("call: %w", err)
	}
	if _, err := c.net.Write(r.raw); err != nil {
		return fmt.Errorf("call: %w", err)
	}
	status, body, err := c.read()
	if err != nil {
		return fmt.Errorf("call: %w", err)
	}
	if status != "200" || !bytes.Contains(body, r.want) {
		return fmt.Errorf("call: status %s: %.300s", status, body)
	}
	return nil
}

var (
	headEnd    = []byte("\r\n\r\n")
	lengthHead = []byte("\r\nContent-Length: ")
)

// read reads one answer. The body is valid until the next read.
func (c *Conn) read() (status string, body []byte, err error) {
	have, head := 0, -1
	for need := 0; head < 0 || have < need; {
		if have == len(c.buf) {
			return "", nil, errors.New("answer is larger than the buffer")
		}
		n, err := c.net.Read(c.buf[have:])
		if err != nil {
			return "", nil, err
		}
		have += n
		if head < 0 {
			if head = bytes.Index(c.buf[:have], headEnd); head >= 0 {
				length, err := contentLength(c.buf[:head+2])
				if err != nil {
					return "", nil, err
				}
				need = head + len(headEnd) + length
			}
		}
	}
	return string(c.buf[9:12]), c.buf[head+len(headEnd) : have], nil
}

// contentLength finds the length in a head that ends with a line break.
func contentLength(head []byte) (int, error) {
	at := bytes.Index(head, lengthHead)
	if at < 0 || len(head) < 12 {
		return 0, fmt.Errorf("answer without Content-Length: %.100s", head)
	}
	value := head[at+len(lengthHead):]
	return strconv.Atoi(string(value[:bytes.IndexByte(value, '\r')]))
}

package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

const (
	// encryptionTimeout bounds how long servers are asked whether they speak TLS.
	encryptionTimeout = time.Second
	// encryptionAge is how long what they answered is relied on.
	encryptionAge = 10 * time.Second
)

// encryption is whether servers that do not answer would do so to somebody who spoke to them with
// TLS, or without. Each kind takes the other's first words for an unfinished message, or for a
// client that it drops, which looks like a server that is not there yet.
type encryption struct {
	secure  bool     // this is with TLS
	servers []string // the addresses of the URL, none of a Unix socket
	asked   time.Time
	mistake error // what was found out then, nil if nothing is wrong
}

// explain adds to the error of a first contact what is wrong, if that is the reason.
func (e *encryption) explain(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, ErrRejected) || errors.Is(err, ErrMismatch) {
		return err
	}
	if time.Since(e.asked) >= encryptionAge {
		e.mistake = e.find(ctx)
		e.asked = time.Now()
	}
	return cmp.Or(e.mistake, err)
}

// known returns a mistake that was found not long ago: there is no use in waiting for an answer
// again.
func (e *encryption) known() error {
	if time.Since(e.asked) >= encryptionAge {
		return nil
	}
	return e.mistake
}

// find asks the servers.
func (e *encryption) find(ctx context.Context) error {
	// The attempt that failed may have taken all of its time.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), encryptionTimeout)
	defer cancel()
	for _, address := range e.servers {
		switch {
		case e.secure && speaksPlain(ctx, address):
			return fmt.Errorf("%w: %s answers without TLS, and rediss asks for it: "+
				"write redis, or the port that has TLS", ErrRejected, address)
		case !e.secure && speaksTLS(ctx, address):
			return fmt.Errorf("%w: %s answers with TLS only: write rediss in place of redis",
				ErrRejected, address)
		}
	}
	return nil
}

// speaksPlain reports whether a server answers a command as Redis does without TLS, be it by an
// error.
func speaksPlain(ctx context.Context, address string) bool {
	conn, err := dial(ctx, address)
	if err != nil {
		return false
	}
	defer conn.Close()
	first := make([]byte, 1)
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	_, err = conn.Read(first)
	return err == nil && (first[0] == '+' || first[0] == '-')
}

// speaksTLS reports whether a server goes along with a handshake, or ends it as TLS does.
func speaksTLS(ctx context.Context, address string) bool {
	conn, err := dial(ctx, address)
	if err != nil {
		return false
	}
	defer conn.Close()
	// Nothing is said to it, whoever it is.
	anyone := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	err = tls.Client(conn, anyone).HandshakeContext(ctx)
	var plain tls.RecordHeaderError
	return err == nil || !errors.As(err, &plain) &&
		strings.Contains(err.Error(), "remote error: tls: ")
}

// dial connects; what is done with the connection ends with ctx.
func dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if by, ok := ctx.Deadline(); ok {
		err = conn.SetDeadline(by)
	}
	return conn, err
}

package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrMismatch is wrapped by errors about a Redis that can't be used as it is: it lacks a feature
// that was asked for, or holds counts in a different layout. Retrying does not help.
var ErrMismatch = errors.New("this Redis is not compatible")

// ErrRejected is wrapped by errors about a Redis that refuses this store's credentials: a wrong
// user, password or database, or a certificate that one side does not trust. Retrying does not help
// until that is changed.
var ErrRejected = errors.New("this Redis rejects these credentials")

// rejections are the prefixes, after ERR if there is one, of a server's errors for clients without
// access.
var rejections = [...]string{
	"WRONGPASS", "NOAUTH", "NOPERM", "DENIED", "AUTH", "Client sent AUTH", "invalid password",
	"DB index",
	"invalid DB index", "SELECT is not allowed", "This instance has cluster support disabled",
}

// Reject adds ErrRejected to an error that will not go away by itself.
func Reject(err error) error {
	if err == nil || errors.Is(err, ErrMismatch) {
		return err
	}
	var untrusted *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	told := slices.ContainsFunc(rejections[:], func(prefix string) bool {
		return redis.HasErrorPrefix(err, prefix)
	})
	// The other side's TLS alert has a type that can't be named.
	if told || errors.As(err, &untrusted) || errors.As(err, &plain) ||
		strings.Contains(err.Error(), "remote error: tls: ") {
		return fmt.Errorf("%w: %w%s", ErrRejected, err, databaseRemedy(err))
	}
	return err
}

// databaseRemedy returns the remedy for a server's refusal of the database in the URL, or "" if err
// is another error.
func databaseRemedy(err error) string {
	switch {
	case redis.HasErrorPrefix(err, "SELECT is not allowed"):
		return "; a Redis Cluster has only database 0: leave the database out of the URL, and " +
			"set --redis-prefix to keep services apart"
	case redis.HasErrorPrefix(err, "DB index"), redis.HasErrorPrefix(err, "invalid DB index"):
		return "; name a lower number, have the server make more (databases or, in a cluster of " +
			"Valkey 9, cluster-databases), or leave it out of the URL and set --redis-prefix"
	}
	return ""
}

const (
	// encryptionTimeout bounds how long servers are probed for TLS.
	encryptionTimeout = time.Second
	// encryptionAge is how long the result of a probe is used.
	encryptionAge = 10 * time.Second
)

// encryption finds out whether servers that do not answer would do so with TLS, or without. Either
// kind of server mistakes the other's first bytes for an unfinished message, or drops the client,
// which looks like a server that is not up yet.
type encryption struct {
	secure  bool     // the URL asks for TLS
	servers []string // the addresses of the URL, none of a Unix socket
	asked   time.Time
	mistake error // found by the last probe, nil if nothing is wrong
}

// ExplainTLS returns a mistake about TLS in place of the error of a first contact, if there is one.
func (c *Conn) ExplainTLS(ctx context.Context, err error) error {
	e := &c.encryption
	if err == nil || errors.Is(err, ErrRejected) || errors.Is(err, ErrMismatch) {
		return err
	}
	if time.Since(e.asked) >= encryptionAge {
		e.mistake = e.probeServers(ctx)
		e.asked = time.Now()
	}
	return cmp.Or(e.mistake, err)
}

// KnownTLSMistake returns a mistake that ExplainTLS has found recently, so that callers need not
// wait for a timeout again.
func (c *Conn) KnownTLSMistake() error {
	e := &c.encryption
	if time.Since(e.asked) >= encryptionAge {
		return nil
	}
	return e.mistake
}

// probeServers probes the servers.
func (e *encryption) probeServers(ctx context.Context) error {
	// The failed attempt may have used up all of its time.
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

// speaksPlain reports whether a server answers a command in Redis's protocol without TLS, even if
// with an error.
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

// speaksTLS reports whether a server takes part in a handshake, or ends it the way TLS does.
func speaksTLS(ctx context.Context, address string) bool {
	conn, err := dial(ctx, address)
	if err != nil {
		return false
	}
	defer conn.Close()
	// Any certificate will do: nothing is sent.
	anyone := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	err = tls.Client(conn, anyone).HandshakeContext(ctx)
	var plain tls.RecordHeaderError
	return err == nil || !errors.As(err, &plain) &&
		strings.Contains(err.Error(), "remote error: tls: ")
}

// dial connects. The connection is closed when ctx ends.
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

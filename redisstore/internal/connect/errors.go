package connect

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"

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

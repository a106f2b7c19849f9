package resp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/verdicts"
)

// Service executes the commands that a [Server] reads.
type Service interface {
	ask.Service
	ask.Keys
	ask.Resetter
}

// Options configure a [Server]. The zero value of each field is the documented default.
type Options struct {
	// Service executes the operations. Required.
	Service Service
	// Rules resolves the names of rules. Default: none, every name is unknown.
	Rules ask.Rules
	// Shadow determines the namespaces in which limits of commands refuse nothing. Default: none.
	Shadow twotier.Shadow
	// Holds makes and settles holds. Default: none.
	Holds *ask.Holds
	// Verdicts counts and records the verdicts of acquires. Default: nothing is.
	Verdicts *verdicts.Counters
	// Listen is the TCP address; port 0 picks a free one. Required.
	Listen string
	// Tokens resolves the passwords of AUTH. Default: anyone who can connect may do everything.
	// AdminToken also grants everything.
	Tokens     ask.Tokens
	AdminToken string
	// TLS is used for all connections. Default: none, connections are in plain text.
	TLS *tls.Config
	// Version is the version of the program that INFO and HELLO report.
	Version string
	// RequestTimeout bounds the execution of the commands of one read. Default 2s.
	RequestTimeout time.Duration
	// ReadTimeout bounds receiving one command, from its first byte, and how long a new connection
	// may take to authenticate; WriteTimeout bounds sending answers, give or take a quarter.
	// Default 10s each.
	ReadTimeout, WriteTimeout time.Duration
	// IdleTimeout is how long a connection is kept between commands, give or take a quarter.
	// Default 1h: clients keep connections in pools, many for half an hour.
	IdleTimeout time.Duration
	// MaxMemory bounds the bytes used by connections, approximately. Default 32 MiB, at least
	// 4 MiB.
	MaxMemory int64
	// MaxConns bounds the open connections. Default: [ConnsFor] MaxMemory.
	MaxConns int
	// MaxConnsPerAddress bounds the connections of one IPv4 address or IPv6 network (/64). An
	// address may use the same share of the memory. Default: half of MaxConns.
	MaxConnsPerAddress int
	// Logger receives state changes and panics. Default: none.
	Logger *slog.Logger
}

// Approximate memory, in bytes, of a connection that waits for a command: a goroutine, the buffer
// of smallInput bytes, and the state of TLS.
const (
	connBytes = 8<<10 + smallInput
	tlsBytes  = 32 << 10
)

// ConnsFor returns the default [Options].MaxConns for a [Options].MaxMemory of this many bytes.
func ConnsFor(bytes int64, secure bool) int {
	each := int64(connBytes)
	if secure {
		each += tlsBytes
	}
	return int(min(bytes/2/each, math.MaxInt32))
}

// withDefaults returns o with its defaults filled in, or an error if o can't be used.
func (o Options) withDefaults() (Options, error) {
	if o.Service == nil || o.Listen == "" {
		return o, errors.New("resp: Options needs Service and Listen")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxMemory == 0 {
		o.MaxMemory = 32 << 20
	}
	if o.MaxMemory < 4<<20 {
		return o, fmt.Errorf("resp: Options.MaxMemory is %d, want at least 4 MiB", o.MaxMemory)
	}
	err := listener.Bounds{RequestTimeout: &o.RequestTimeout, ReadTimeout: &o.ReadTimeout,
		WriteTimeout: &o.WriteTimeout, IdleTimeout: &o.IdleTimeout, MaxConns: &o.MaxConns,
		MaxConnsPerAddress: &o.MaxConnsPerAddress,
	}.Fill("resp", time.Hour, ConnsFor(o.MaxMemory, o.TLS != nil))
	return o, err
}

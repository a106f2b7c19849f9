package listener

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"time"
)

// Limits are the options of all servers. The zero value of each field is the documented default;
// [Defaults] has the defaults of a protocol.
type Limits struct {
	// TLS is used for all connections. Default: none, connections are in plain text.
	TLS *tls.Config
	// RequestTimeout bounds the execution of one request. Default 2s.
	RequestTimeout time.Duration
	// ReadTimeout bounds receiving one request, from its first byte; WriteTimeout bounds sending
	// one answer. Default 10s each. gRPC has multiples of RequestTimeout instead.
	ReadTimeout, WriteTimeout time.Duration
	// IdleTimeout is how long a connection is kept between requests. Default: by the protocol.
	IdleTimeout time.Duration
	// MaxMemory bounds the bytes used by connections, requests and answers together, approximately.
	// Default: by the protocol.
	MaxMemory int64
	// MaxConns bounds the open connections. Default: [Defaults].ConnsFor MaxMemory.
	MaxConns int
	// MaxConnsPerAddress bounds the connections of one IPv4 address or IPv6 network (/64). An
	// address may use the same share of the memory. Default: half of MaxConns.
	MaxConnsPerAddress int
	// Logger receives state changes and panics. Default: none.
	Logger *slog.Logger
}

// Defaults are the defaults of [Limits] in a protocol.
type Defaults struct {
	// Package is named in errors.
	Package string
	Idle    time.Duration
	// Memory is the default of MaxMemory, and LeastMemory its least value, in MiB.
	Memory, LeastMemory int64
	// Conn is the approximate memory of a connection between requests, in bytes, and TLS its
	// additional memory with TLS. Sixteenths is their share of MaxMemory.
	Conn, TLS, Sixteenths int64
}

// ConnsFor returns the default of MaxConns for a MaxMemory of this many bytes.
func (d Defaults) ConnsFor(bytes int64, secure bool) int {
	each := d.Conn
	if secure {
		each += d.TLS
	}
	return int(min(max(1, bytes/16*d.Sixteenths/each), math.MaxInt32))
}

// Fill sets limits that are 0 to their defaults. It returns an error about the first one that is
// out of bounds.
func (l *Limits) Fill(d Defaults) error {
	for _, t := range []struct {
		name   string
		value  *time.Duration
		preset time.Duration
	}{
		{"RequestTimeout", &l.RequestTimeout, 2 * time.Second},
		{"ReadTimeout", &l.ReadTimeout, 10 * time.Second},
		{"WriteTimeout", &l.WriteTimeout, 10 * time.Second},
		{"IdleTimeout", &l.IdleTimeout, d.Idle},
	} {
		if *t.value < 0 {
			return fmt.Errorf("%s: Options.%s is %v, want more than 0", d.Package, t.name, *t.value)
		}
		setDefault(t.value, t.preset)
	}
	if l.Logger == nil {
		l.Logger = slog.New(slog.DiscardHandler)
	}
	setDefault(&l.MaxMemory, d.Memory<<20)
	setDefault(&l.MaxConns, d.ConnsFor(l.MaxMemory, l.TLS != nil))
	setDefault(&l.MaxConnsPerAddress, max(1, l.MaxConns/2))
	switch {
	case l.MaxMemory < d.LeastMemory<<20:
		return fmt.Errorf("%s: Options.MaxMemory is %d, want at least %d MiB", d.Package,
			l.MaxMemory, d.LeastMemory)
	case l.MaxConns < 1:
		return fmt.Errorf("%s: Options.MaxConns is %d, want 1 or more", d.Package, l.MaxConns)
	case l.MaxConnsPerAddress < 1 || l.MaxConnsPerAddress > l.MaxConns:
		return fmt.Errorf("%s: Options.MaxConnsPerAddress is %d, want 1 to %d", d.Package,
			l.MaxConnsPerAddress, l.MaxConns)
	}
	return nil
}

func setDefault[T comparable](value *T, preset T) {
	var zero T
	if *value == zero {
		*value = preset
	}
}

// Account returns an account of most bytes, of which one address may use the same part as of the
// connections. It has room for at least twice an amount, and an address for the amount.
func (l *Limits) Account(most, least int64) *Account {
	part := float64(l.MaxConnsPerAddress) / float64(l.MaxConns)
	most = max(most, 2*least)
	return &Account{Most: most, Each: max(least, int64(float64(most)*part))}
}

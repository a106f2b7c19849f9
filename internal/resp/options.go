package resp

import (
	"errors"
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
	// Version is the version of the program that INFO and HELLO report.
	Version string
	// Limits have the defaults in [Defaults]. A request is the commands of one read. ReadTimeout is
	// also how long a new connection may take to authenticate. WriteTimeout and IdleTimeout are
	// kept give or take a quarter.
	listener.Limits
}

// Defaults returns the defaults of [Options].Limits. Clients keep connections in pools, many for
// half an hour. One that waits for a command is a goroutine and a buffer.
func Defaults() listener.Defaults {
	return listener.Defaults{Package: "resp", Idle: time.Hour, Memory: 32, LeastMemory: 4,
		Conn: 8<<10 + smallInput, TLS: 32 << 10, Sixteenths: 8}
}

// withDefaults returns o with its defaults filled in, or an error if o can't be used.
func (o Options) withDefaults() (Options, error) {
	if o.Service == nil || o.Listen == "" {
		return o, errors.New("resp: Options needs Service and Listen")
	}
	return o, o.Fill(Defaults())
}

package cli

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"

	"github.com/spf13/pflag"

	"twotier.dev/twotier/internal/mirror"
	"twotier.dev/twotier/internal/mirror/tap"
	"twotier.dev/twotier/internal/redisurl"
)

// tapFlags are the flags of a mirror that reads verdicts from connections to the old Redis.
type tapFlags struct {
	redis, listen, mapping string
}

func (f *tapFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.redis, "redis", "", "`URL` of the Redis of the old limiter: the application "+
		"connects to --listen-redis in its place, and changes nothing else")
	fs.StringVar(&f.listen, "listen-redis", "127.0.0.1:7911",
		"`ADDRESS` whose connections are passed on to --redis")
	fs.StringVar(&f.mapping, "mapping", "",
		"YAML `FILE` that declares which calls of --redis are verdicts")
}

// openTap starts to pass connections on, and returns the address and a function that stops it. It
// does nothing without --redis.
func (s *session) openTap(ctx context.Context, f *tapFlags, m *mirror.Mirror) (address string,
	closeTap func() error, err error) {
	if f.redis == "" {
		return "", func() error { return nil }, nil
	}
	opt, err := f.options()
	if err != nil {
		return "", nil, err
	}
	opt.Mirror = m
	opt.Logger = slog.New(slog.NewTextHandler(s.Stderr, nil))
	t, err := tap.New(opt)
	if err != nil {
		return "", nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return "", nil, fmt.Errorf("--listen-redis: %w", err)
	}
	return l.Addr().String(), t.Close, t.Open(l)
}

// check checks the flags without reading files.
func (f *tapFlags) check() error {
	if (f.redis == "") != (f.mapping == "") {
		return usagef("--redis and --mapping: give both or neither")
	}
	return nil
}

// options reads the URL and the mappings.
func (f *tapFlags) options() (opt tap.Options, err error) {
	u, err := redisurl.Parse(f.redis)
	switch {
	case err != nil:
		return opt, usagef("--redis: %w", err)
	case u.Kind != redisurl.Single:
		return opt, usagef("--redis: want one server; the application asks clusters and " +
			"sentinels for other addresses, and would pass the mirror by")
	case u.Username != "" || u.Password != "" || u.Database != 0:
		return opt, usagef("--redis: want neither a password nor a database; those of the " +
			"application are passed on")
	}
	opt.Address = u.Addresses[0]
	if u.Unix {
		opt.Network = "unix"
	}
	if u.TLS {
		host, _, err := net.SplitHostPort(opt.Address)
		if err != nil {
			return opt, usagef("--redis: %w", err)
		}
		opt.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	}
	if opt.Mappings, err = tap.Read(f.mapping); err != nil {
		return opt, fmt.Errorf("--mapping: %w", err)
	}
	return opt, nil
}

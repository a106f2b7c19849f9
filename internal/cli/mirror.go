package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/mirror"
	"twotier.dev/twotier/internal/mirror/tap"
	"twotier.dev/twotier/internal/redisurl"
)

type mirrorFlags struct {
	listen, ns  string
	limits      []limit
	rules       []string
	countDenied bool
	interval    time.Duration
	maxWaiting  int
	tap         tapFlags
}

func mirrorSpec() spec {
	return spec{
		name: "mirror", args: "[--redis URL --mapping FILE] [flags]",
		summary: "compare twotier with the limiter that it may replace",
		details: "Runs beside the old limiter until SIGTERM or SIGINT. The application posts " +
			"each verdict of the old limiter as JSON, one or more objects, and gets 202 at " +
			"once:\n\n" +
			"    {\"key\":\"alice\",\"rules\":[\"login\"],\"allowed\":true}\n\n" +
			"The fields are those of an acquire: key, ns, n, ts, limits and rules, or checks. " +
			"The mirror asks the server in the background. Events that the old limiter allowed " +
			"are counted, whatever the answer is, and nothing else. GET / returns the comparison " +
			"as JSON, and GET /text as text: how often the two agree, which keys differ, and " +
			"why. It is also printed at the end, and its first line to stderr at intervals.\n\n" +
			"With --redis the application posts nothing: it connects to --listen-redis in " +
			"place of the old limiter's Redis, and the mirror passes everything on unchanged " +
			"and reads along. " +
			"--mapping declares which scripts and commands are verdicts.",
		examples: "twotier mirror --rule login\n" +
			"curl --json '{\"key\":\"alice\",\"allowed\":true}' localhost:7910\n" +
			"curl localhost:7910/text\n" +
			"twotier mirror --redis redis://127.0.0.1:6379 --mapping mapping.yaml",
		alone: true,
		bind: func(fs *pflag.FlagSet) runner {
			f := mirrorFlags{interval: time.Minute}
			fs.StringVar(&f.listen, "listen", "127.0.0.1:7910",
				"`ADDRESS` for the application's verdicts; port 0 picks a free one")
			rulesVar(fs, &f.rules, "`NAME` of a rule for keys without rules and limits; may be "+
				"repeated")
			limitsVar(fs, &f.limits, "`MAX/WINDOW` for these keys; may be repeated")
			fs.StringVar(&f.ns, "ns", "", "`NAMESPACE` of keys without one")
			fs.BoolVar(&f.countDenied, "count-denied", false,
				"the old limiter counts refused events, too")
			fs.Var((*duration)(&f.interval), "interval",
				"`TIME` between summaries on stderr")
			fs.IntVar(&f.maxWaiting, "max-waiting", 1<<16,
				"`NUMBER` of verdicts that may wait before more are dropped")
			f.tap.addFlags(fs)
			return func(ctx context.Context, s *session, _ []string) error {
				return s.runMirror(ctx, &f)
			}
		},
	}
}

// drainMirror bounds how long a mirror compares waiting verdicts after the signal to end.
const drainMirror = 5 * time.Second

// runMirror compares verdicts until ctx is done, and prints the report.
func (s *session) runMirror(ctx context.Context, f *mirrorFlags) (err error) {
	opt, err := f.options()
	if err != nil {
		return err
	}
	c, err := s.newClient()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	opt.Twotier = c
	m, err := mirror.New(opt)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	redis, closeTap, err := s.openTap(ctx, &f.tap, m)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	m.Open(context.WithoutCancel(ctx)) // it compares what waits when ctx ends
	err = s.serveMirror(ctx, m, l, mirrorReady{true, l.Addr().String(), redis}, f.interval)
	err = errors.Join(err, closeTap())
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainMirror)
	defer cancel()
	m.Close(ending)
	if s.json {
		return errors.Join(err, json.NewEncoder(s.Stdout).Encode(m.Report()))
	}
	return errors.Join(err, s.printf("%s", m.Report()))
}

// mirrorReady is the line that a mirror prints when it is ready.
type mirrorReady struct {
	Ready  bool   `json:"ready"`
	Listen string `json:"listen"`
	Redis  string `json:"redis,omitempty"` // the address for the application's Redis clients
}

func (f *mirrorFlags) options() (opt mirror.Options, err error) {
	switch {
	case f.interval <= 0:
		return opt, usagef("--interval: %s is not more than 0", f.interval)
	case f.maxWaiting < 1:
		return opt, usagef("--max-waiting: %d is not a number from 1 on", f.maxWaiting)
	}
	if err := f.tap.check(); err != nil {
		return opt, err
	}
	opt = mirror.Options{CountDenied: f.countDenied, MaxWaiting: f.maxWaiting,
		Default: client.Check{Namespace: f.ns, Rules: f.rules}}
	for _, l := range f.limits {
		limit, err := mirror.ParseLimit(l.Window, l.Max)
		if err != nil {
			return opt, usagef("--limit: %w", err)
		}
		opt.Default.Limits = append(opt.Default.Limits, limit)
	}
	return opt, nil
}

// newClient returns a client of the server's cluster.
func (s *session) newClient() (*client.Client, error) {
	base := s.client.base
	if base.Path != "" && base.Path != "/" {
		return nil, usagef("--server: %s has a path, want only scheme, host and port",
			s.client.address())
	}
	opt := client.Options{Token: s.client.token, Timeout: s.client.timeout,
		Logger: slog.New(slog.NewTextHandler(s.Stderr, nil))}
	port := "80"
	if base.Scheme == "https" {
		port = "443"
		opt.TLS = cmp.Or(s.client.tls, &tls.Config{MinVersion: tls.VersionTLS12})
	}
	opt.Addresses = []string{net.JoinHostPort(base.Hostname(), cmp.Or(base.Port(), port))}
	if base.User != nil {
		password, _ := base.User.Password()
		opt.Authorization = "Basic " + base64.StdEncoding.EncodeToString(
			[]byte(base.User.Username()+":"+password))
	}
	return client.New(opt)
}

// serveMirror serves a mirror until ctx is done, and prints a summary at intervals.
func (s *session) serveMirror(ctx context.Context, m *mirror.Mirror, l net.Listener,
	ready mirrorReady, interval time.Duration) error {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return errors.Join(fmt.Errorf("RLIMIT_NOFILE: %w", err), l.Close())
	}
	server := m.NewServer(l, files.Cur)
	err := errors.Join(server.Open(ctx), json.NewEncoder(s.Stdout).Encode(ready))
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for err == nil && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			_, err = fmt.Fprintln(s.Stderr, m.Report().Summary())
		}
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainMirror)
	defer cancel()
	return errors.Join(err, server.Close(ending))
}

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

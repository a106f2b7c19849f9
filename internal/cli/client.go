package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/certs"
	"twotier.dev/twotier/internal/config"
)

// maxAnswer bounds an answer, in bytes. A server's longest answer is a backtest of 64 limits, each
// with 1000 keys.
const maxAnswer = 48 << 20

// caller makes one request to one server, through a proxy if the environment names one, and returns
// the answer verbatim: --json prints it, and errors are about that server and that request. A
// [client.Client] does not fit here: it sends operations in sessions of batches, repeats them, asks
// other nodes and keeps no answer's text. caller only shares the form of its errors.
type caller struct {
	base    *url.URL
	http    *http.Client
	timeout time.Duration
	token   string // empty to present none
	tls     *tls.Config
	unknown string // the hint for a write whose answer did not arrive
}

func newCaller(base *url.URL, token string, secure *tls.Config, timeout time.Duration) *caller {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 1,
		TLSClientConfig: secure}
	return &caller{base: base, token: token, tls: secure, timeout: timeout,
		unknown: "it may or may not have been counted", http: &http.Client{
			Transport: transport,
			Timeout:   timeout,
			// A twotier server never redirects. Following a redirect would hide that another
			// service answered.
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
		}}
}

func (c *caller) close() { c.http.CloseIdleConnections() }

// address returns the URL of the server without its password.
func (c *caller) address() string { return c.base.Redacted() }

// message holds the headers and the body of a request or an answer.
type message struct {
	header http.Header
	body   []byte // nil for none
}

// question is a request with a body in JSON, or none.
type question struct {
	method, path string
	query        url.Values
	body         any // nil for none
}

func get(path string, query url.Values) question {
	return question{http.MethodGet, path, query, nil}
}

func post(path string, body any) question { return question{http.MethodPost, path, nil, body} }

// do calls the server and returns the body of its answer, even if the error is a [Problem].
func (c *caller) do(ctx context.Context, q question) ([]byte, error) {
	m := message{header: http.Header{}}
	if q.body != nil {
		text, err := json.Marshal(q.body)
		if err != nil {
			return nil, err
		}
		m.body = text
		m.header.Set("Content-Type", "application/json")
	}
	answer, err := c.exchange(ctx, q.method, q.path, q.query, m)
	return answer.body, err
}

// exchange is do for bodies of any type, with headers.
func (c *caller) exchange(ctx context.Context, method, path string, query url.Values,
	m message) (answer message, err error) {
	u := c.base.JoinPath(path)
	u.RawQuery = query.Encode()
	write := m.body != nil
	request, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(m.body))
	if err != nil {
		return answer, err
	}
	request.Header = m.header
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return answer, c.explain(err, write)
	}
	defer response.Body.Close()
	answer.header = response.Header
	if answer.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer)); err != nil {
		return message{}, c.explain(err, write)
	}
	if response.StatusCode != http.StatusOK {
		return answer, c.parseProblem(response, answer.body)
	}
	return answer, nil
}

// explain replaces a transport error by one with advice for the user.
func (c *caller) explain(err error, write bool) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return fmt.Errorf("no server at %s: %w\nis it running? start it with: twotier serve\nor "+
			"name another one with --server or TWOTIER_SERVER", c.address(), op.Err)
	}
	unknown := ""
	if write {
		unknown = "\n" + c.unknown
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("no answer from %s within %s; --timeout waits longer%s", c.address(),
			c.timeout, unknown)
	}
	return fmt.Errorf("no answer from %s: %w%s", c.address(), err, unknown)
}

// Problem is an error in a server's answer.
type Problem struct {
	client.Problem
	// RetryAfter is the Retry-After header of the answer, empty if there was none.
	RetryAfter string `json:"-"`
}

// Error returns the detail and, if the user can do something about it, a hint.
func (p *Problem) Error() string {
	text := p.Problem.Error()
	if p.Outcome == "unknown" {
		text += "\nit may or may not have been counted"
	}
	switch {
	case p.Status != http.StatusUnauthorized:
	case strings.Contains(p.Detail, "--admin-token"):
		text += "\npresent it with --admin-token or TWOTIER_ADMIN_TOKEN"
	default:
		text += "\npresent one with --token-file or TWOTIER_TOKEN"
	}
	if p.RetryAfter != "" {
		text += "\ntry again in " + p.RetryAfter + " s"
	}
	return text
}

func (c *caller) parseProblem(response *http.Response, answer []byte) error {
	p := &Problem{RetryAfter: response.Header.Get("Retry-After")}
	isProblem := strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json")
	if !isProblem || json.Unmarshal(answer, p) != nil || p.Title == "" && p.Detail == "" {
		return fmt.Errorf("%s answered %s; is that a twotier server?", c.address(), response.Status)
	}
	return p
}

// connection holds the flags that all commands share: which server to call, and with which
// credentials.
type connection struct {
	server, token, tokenFile string
	ca, cert, key            string
	json                     bool
	timeout                  time.Duration
}

const (
	defaultServer  = "http://127.0.0.1:8080"
	defaultTimeout = 5 * time.Second
)

func (c *connection) addFlags(fs *pflag.FlagSet, timeout time.Duration) {
	fs.StringVar(&c.server, "server", "", "`URL` of a server (default $TWOTIER_SERVER, or "+
		defaultServer+")")
	fs.StringVar(&c.token, "token", "",
		"`TEXT` to present where there are --tokens (better $TWOTIER_TOKEN: ps shows this)")
	fs.StringVar(&c.tokenFile, "token-file", "",
		"`FILE` that holds the token (default $TWOTIER_TOKEN_FILE)")
	fs.StringVar(&c.ca, "ca", "",
		"PEM `FILE` of the authorities to trust (default $TWOTIER_CA, or the system's)")
	fs.StringVar(&c.cert, "cert", "",
		"PEM `FILE` of a certificate to present (default $TWOTIER_CERT)")
	fs.StringVar(&c.key, "key", "", "PEM `FILE` of its key (default $TWOTIER_KEY)")
	fs.BoolVar(&c.json, "json", false, "print the answer as JSON")
	c.timeout = cmp.Or(timeout, defaultTimeout)
	fs.Var((*duration)(&c.timeout), "timeout", "longest `TIME` to wait for an answer")
}

// duration is a flag in the spelling of all durations, with days and weeks.
type duration time.Duration

// String returns the duration without trailing zero units.
func (d *duration) String() string { return twotier.FormatDuration(time.Duration(*d)) }

// Type returns the name of the flag's value in the help.
func (d *duration) Type() string { return "duration" }

// Set reads a duration such as 90s or 1d12h.
func (d *duration) Set(text string) error {
	value, err := config.ParseDuration(text)
	*d = duration(value)
	return err
}

func (c *connection) newSession(o IO) (*session, error) {
	server := cmp.Or(c.server, o.getenv("TWOTIER_SERVER"), defaultServer)
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usagef("--server: %q is not a URL such as %s", server, defaultServer)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, usagef("--server: port %q is not a number from 1 to 65535", port)
		}
	}
	if c.timeout <= 0 {
		return nil, usagef("--timeout: %s is not more than 0", c.timeout)
	}
	token, err := c.readToken(o)
	if err != nil {
		return nil, err
	}
	secure, err := c.readTLS(o)
	if err != nil {
		return nil, err
	}
	return &session{IO: o, client: newCaller(u, token, secure, c.timeout), json: c.json}, nil
}

// readToken returns the token to present, or "" for none. Flags take precedence over the
// environment, and a token over a file that holds one.
func (c *connection) readToken(o IO) (string, error) {
	if c.token != "" || c.tokenFile == "" && o.getenv("TWOTIER_TOKEN") != "" {
		return cmp.Or(c.token, o.getenv("TWOTIER_TOKEN")), nil
	}
	path := cmp.Or(c.tokenFile, o.getenv("TWOTIER_TOKEN_FILE"))
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \r\n\t") {
		return "", fmt.Errorf("--token-file: %s does not hold one token and nothing else", path)
	}
	return token, nil
}

// readTLS returns the TLS configuration for an https server, or nil for the system's defaults.
func (c *connection) readTLS(o IO) (*tls.Config, error) {
	ca := cmp.Or(c.ca, o.getenv("TWOTIER_CA"))
	cert, key := cmp.Or(c.cert, o.getenv("TWOTIER_CERT")), cmp.Or(c.key, o.getenv("TWOTIER_KEY"))
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	if (cert == "") != (key == "") {
		return nil, usagef("--cert and --key: give both or neither")
	}
	return certs.ReadClient("--", ca, cert, key)
}

// session is one run of a command.
type session struct {
	IO
	client *caller
	json   bool
}

// call calls the server, prints its answer if --json is set, and decodes it into answer.
func (s *session) call(ctx context.Context, q question, answer any) error {
	raw, err := s.client.do(ctx, q)
	if err := s.printRaw(raw, err); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("%s did not answer with JSON; is that a twotier server? (%w)",
			s.client.address(), err)
	}
	return nil
}

// ask calls the server, and prints its answer with show or, if --json is set, unchanged.
func ask[A any](ctx context.Context, s *session, q question, show func(answer *A) error) error {
	var answer A
	if err := s.call(ctx, q, &answer); err != nil || s.json {
		return err
	}
	return show(&answer)
}

// printRaw prints an answer if --json is set, including problems. It returns err.
func (s *session) printRaw(raw []byte, err error) error {
	_, isProblem := errors.AsType[*Problem](err)
	if s.json && (err == nil || isProblem) {
		if err := s.printf("%s\n", bytes.TrimRight(raw, "\n")); err != nil {
			return err
		}
	}
	return err
}

func (s *session) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(s.Stdout, format, args...)
	return err
}

// watchPause is the time between two refreshes.
const watchPause = time.Second

// watch calls show once or, if it goes on, every second until ctx is done, and prints its output.
// On a terminal each output then replaces the previous one. It prints errors, too, and carries on,
// because they may be temporary.
func (s *session) watch(ctx context.Context, goesOn bool,
	show func(ctx context.Context, query url.Values) error, query url.Values) error {
	if !goesOn {
		return show(ctx, query)
	}
	screen := s.Stdout
	ticker := time.NewTicker(watchPause)
	defer ticker.Stop()
	for {
		var picture bytes.Buffer
		s.Stdout = &picture
		err := show(ctx, query)
		s.Stdout = screen
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			fmt.Fprintf(&picture, "%v\n", err)
		}
		home, gap := "", "\n"
		if s.isTerminal(screen) {
			home, gap = "\x1b[H\x1b[2J", ""
		}
		if _, err := io.WriteString(screen, home+picture.String()+gap); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"twotier.dev/twotier/httpapi/client"
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

// do calls the server and returns the body of its answer, even if the error is a [Problem].
func (c *caller) do(ctx context.Context, method, path string, query url.Values,
	body any) ([]byte, error) {
	m := message{header: http.Header{}}
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		m.body = text
		m.header.Set("Content-Type", "application/json")
	}
	answer, err := c.exchange(ctx, method, path, query, m)
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
	if p.Status == http.StatusUnauthorized {
		text += p.tokenHint()
	}
	if p.RetryAfter != "" {
		text += "\ntry again in " + p.RetryAfter + " s"
	}
	return text
}

// tokenHint names the flags and variables for the token that the server accepts.
func (p *Problem) tokenHint() string {
	if strings.Contains(p.Detail, "--admin-token") {
		return "\npresent it with --admin-token or TWOTIER_ADMIN_TOKEN"
	}
	return "\npresent one with --token-file or TWOTIER_TOKEN"
}

func (c *caller) parseProblem(response *http.Response, answer []byte) error {
	p := &Problem{RetryAfter: response.Header.Get("Retry-After")}
	isProblem := strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json")
	if !isProblem || json.Unmarshal(answer, p) != nil || p.Title == "" && p.Detail == "" {
		return fmt.Errorf("%s answered %s; is that a twotier server?", c.address(), response.Status)
	}
	return p
}

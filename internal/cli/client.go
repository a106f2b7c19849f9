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

// maxAnswer bounds an answer, in bytes. The longest that a server gives is a list of 1000 keys.
const maxAnswer = 16 << 20

// caller makes calls to one server and returns its answers verbatim, so that --json can print them
// and errors are about that server. [client.Client] is for programs: it chooses among nodes and
// decodes answers.
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
			// A twotier server never redirects. Following a redirect would hide that something else
			// answered.
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
		}}
}

func (c *caller) close() { c.http.CloseIdleConnections() }

// address returns the URL of the server without its password.
func (c *caller) address() string { return c.base.Redacted() }

// do calls the server and returns the body of its answer, also if the error is a [Problem].
func (c *caller) do(ctx context.Context, method, path string, query url.Values,
	body any) ([]byte, error) {
	u := c.base.JoinPath(path)
	u.RawQuery = query.Encode()
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, u.String(), content)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.explain(err, body != nil)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, c.explain(err, body != nil)
	}
	if response.StatusCode != http.StatusOK {
		return answer, c.problem(response, answer)
	}
	return answer, nil
}

// explain turns a transport error into one that says what the user can do about it.
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

// Problem is an error that the server answered.
type Problem struct {
	client.Problem
	// RetryAfter is the Retry-After header of the answer, empty if there was none.
	RetryAfter string `json:"-"`
}

// Error returns the detail and, if there is something the user can do, a hint.
func (p *Problem) Error() string {
	text := p.Problem.Error()
	if p.Outcome == "unknown" {
		text += "\nit may or may not have been counted"
	}
	if p.Status == http.StatusUnauthorized {
		text += "\npresent one with --token-file or TWOTIER_TOKEN"
	}
	if p.RetryAfter != "" {
		text += "\ntry again in " + p.RetryAfter + " s"
	}
	return text
}

func (c *caller) problem(response *http.Response, answer []byte) error {
	p := &Problem{RetryAfter: response.Header.Get("Retry-After")}
	isProblem := strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json")
	if !isProblem || json.Unmarshal(answer, p) != nil || p.Title == "" && p.Detail == "" {
		return fmt.Errorf("%s answered %s; is that a twotier server?", c.address(), response.Status)
	}
	return p
}

// call calls the server, prints its answer if --json is set, and decodes it into answer.
func (s *session) call(ctx context.Context, method, path string, query url.Values, body,
	answer any) error {
	raw, err := s.client.do(ctx, method, path, query, body)
	_, isProblem := errors.AsType[*Problem](err)
	if s.json && (err == nil || isProblem) {
		if _, err := fmt.Fprintf(s.Stdout, "%s\n", bytes.TrimRight(raw, "\n")); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("%s answered what is not JSON; is that a twotier server? (%w)",
			s.client.address(), err)
	}
	return nil
}

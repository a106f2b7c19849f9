package load

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// Client posts JSON to one server and never repeats a request, because the server would count it
// twice. It is safe for concurrent use.
type Client struct {
	http    *fasthttp.HostClient
	base    string
	token   string
	timeout time.Duration
}

// ClientOptions configures a client. URL, Connections and Timeout are required.
type ClientOptions struct {
	// URL is the server's URL, http or https.
	URL string
	// Token is the bearer token to present; empty means none.
	Token string
	// TLS is the configuration for an https URL; nil means the system's defaults.
	TLS *tls.Config
	// Connections bounds the number of requests in flight, and Timeout the duration of each.
	Connections int
	Timeout     time.Duration
}

// NewClient returns a client. It connects when it is first used.
func NewClient(o ClientOptions) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("URL: want http://host:port or https://host:port")
	}
	address := u.Host
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(),
			map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	return &Client{base: u.JoinPath("/").String(), token: o.Token, timeout: o.Timeout,
		http: &fasthttp.HostClient{
			Addr: address, IsTLS: u.Scheme == "https", TLSConfig: o.TLS, MaxConns: o.Connections,
			Dial: func(addr string) (net.Conn, error) {
				return fasthttp.DialDualStackTimeout(addr, o.Timeout)
			},
			NoDefaultUserAgentHeader:      true,
			DisableHeaderNamesNormalizing: true,
			MaxIdemponentCallAttempts:     1,
			RetryIfErr: func(*fasthttp.Request, int, error) (bool, bool) {
				return false, false
			},
		}}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// StatusError reports an answer whose status is not 200.
type StatusError struct {
	Code int
	// Body is the beginning of the answer, at most 300 characters.
	Body string
}

// Error returns only the status, so that failures can be grouped by it.
func (e *StatusError) Error() string { return "status " + strconv.Itoa(e.Code) }

// Post sends a body to a path, which begins with a slash, and passes the answer to read. The answer
// is valid until read returns. Any status other than 200 is a [StatusError].
func (c *Client) Post(path string, body []byte, read func(answer []byte) error) error {
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(request)
	defer fasthttp.ReleaseResponse(response)
	request.SetRequestURI(c.base + path[1:])
	request.Header.SetMethod(fasthttp.MethodPost)
	request.Header.SetContentType("application/json")
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	request.SetBodyRaw(body)
	request.SetTimeout(c.timeout)
	if err := c.http.Do(request, response); err != nil {
		return fmt.Errorf("post: %w", err)
	}
	if code := response.StatusCode(); code != fasthttp.StatusOK {
		return &StatusError{Code: code, Body: fmt.Sprintf("%.300s", response.Body())}
	}
	return read(response.Body())
}

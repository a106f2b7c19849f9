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

// Client posts JSON to one server and sends nothing twice: a request that is sent twice is counted
// twice. It may be used from several goroutines at once.
type Client struct {
	http    *fasthttp.HostClient
	base    string
	token   string
	timeout time.Duration
}

// ClientOptions describe a client. URL, Connections and Timeout are needed.
type ClientOptions struct {
	// URL is the server's, http or https.
	URL string
	// Token is what to present as a bearer; empty for none.
	Token string
	// TLS is for a URL with https; nil means the system's way.
	TLS *tls.Config
	// Connections is the number of requests under way at most, Timeout bounds each.
	Connections int
	Timeout     time.Duration
}

// NewClient returns a client, which connects when it is first used.
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

// Close closes the connections that nothing is under way on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// StatusError is an answer whose status is not 200.
type StatusError struct {
	Code int
	// Body is the beginning of the answer.
	Body string
}

// Error names the status only, so that failures can be counted by it.
func (e *StatusError) Error() string { return "status " + strconv.Itoa(e.Code) }

// Post sends a body to a path and has the answer read, which is valid until read returns. Any
// status but 200 is a [StatusError].
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

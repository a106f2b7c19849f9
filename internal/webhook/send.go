package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

const (
	// maxBatch bounds the notifications in one request.
	maxBatch = 50
	// maxAttempts bounds the requests for one batch.
	maxAttempts = 6
	// timeout bounds one request.
	timeout = 5 * time.Second
	// maxAnswer bounds how much of an answer is read, so that its connection can be used again.
	maxAnswer = 64 << 10
)

// newClient returns a client that follows no redirects, since notifications have keys and their URL
// may have a credential. A nil transport is the network.
func newClient(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1,
			IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}
	}
	return &http.Client{
		Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// statusError is an answer other than 2xx.
type statusError struct{ status int }

// Error returns the status, and the remedy if the webhook has moved.
func (e *statusError) Error() string {
	text := fmt.Sprintf("it answers %d %s", e.status, http.StatusText(e.status))
	if e.status/100 == 3 {
		text += "; redirects are not followed, so name the URL that it redirects to"
	}
	return text
}

// isFinal reports whether the same request can't succeed later.
func isFinal(err error) bool {
	e, ok := errors.AsType[*statusError](err)
	return ok && e.status < 500 && e.status != http.StatusTooManyRequests &&
		e.status != http.StatusRequestTimeout
}

// post sends a batch in one request. Its errors don't have the URL.
func (n *Notifier) post(ctx context.Context, batch []notification) (sent int, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, _ := json.Marshal(batch) // texts, numbers and a time of this century always marshal
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.opt.URL, bytes.NewReader(body))
	if err != nil {
		return 0, errors.New("the URL is not valid")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "twotier/"+n.opt.Version)
	res, err := n.client.Do(req)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return 0, err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	if res.StatusCode/100 != 2 {
		return 0, &statusError{res.StatusCode}
	}
	return len(batch), nil
}

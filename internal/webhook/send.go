package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"twotier.dev/twotier/internal/retry"
)

const (
	// maxBatch bounds the notifications in one request.
	maxBatch = 50
	// maxAttempts bounds the requests for one batch.
	maxAttempts = 6
	// timeout bounds one request.
	timeout = 5 * time.Second
	// firstPause is the longest pause after the first attempt. It doubles with each attempt.
	firstPause = time.Second
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

// runSend sends until Close, and then the rest of the queue.
func (n *Notifier) runSend() {
	defer close(n.done)
	for {
		batch := n.nextBatch()
		if len(batch) == 0 {
			return
		}
		n.sendBatch(batch)
	}
}

// nextBatch waits for a notification and returns it with the ones that wait behind it. It returns
// none if the notifier is closing and the queue is empty.
func (n *Notifier) nextBatch() (batch []notification) {
	select {
	case one := <-n.queue:
		batch = append(batch, one)
	case <-n.closing.Done():
	}
	for len(batch) < maxBatch {
		select {
		case one := <-n.queue:
			batch = append(batch, one)
		default:
			return batch
		}
	}
	return batch
}

// sendBatch sends a batch, again after a failure that may pass, or drops it.
func (n *Notifier) sendBatch(batch []notification) {
	body, _ := json.Marshal(batch) // texts, numbers and a time of this century always marshal
	for attempt := 0; ; attempt++ {
		err := n.post(body)
		if err == nil {
			n.recordSent(len(batch))
			return
		}
		final, _ := errors.AsType[*statusError](err)
		if final != nil && !final.mayPass() || attempt == maxAttempts-1 ||
			n.closing.Err() != nil {
			n.drop(len(batch), err)
			return
		}
		longest := firstPause << attempt
		retry.Pause(n.closing, longest/2+rand.N(longest/2))
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

// mayPass reports whether the same request may succeed later.
func (e *statusError) mayPass() bool {
	return e.status >= 500 || e.status == http.StatusTooManyRequests ||
		e.status == http.StatusRequestTimeout
}

// post makes one request. Its errors don't have the URL.
func (n *Notifier) post(body []byte) error {
	ctx, cancel := context.WithTimeout(n.sending, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.opt.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL is not valid")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "twotier/"+n.opt.Version)
	res, err := n.client.Do(req)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	if res.StatusCode/100 != 2 {
		return &statusError{res.StatusCode}
	}
	return nil
}

// recordSent records a batch that the webhook has accepted.
func (n *Notifier) recordSent(notifications int) {
	n.sent.Add(int64(notifications))
	if n.failing {
		n.failing = false
		n.opt.Logger.Info("notifications are sent again", "host", n.host, "dropped", n.Dropped())
	}
}

// drop drops a batch, and logs the reason unless it has been logged.
func (n *Notifier) drop(notifications int, err error) {
	n.dropped.Add(int64(notifications))
	if !n.failing {
		n.failing = true
		n.opt.Logger.Warn("notifications can't be sent and are dropped; "+
			"twotier_notifications_total counts them", "host", n.host, "error", err)
	}
}

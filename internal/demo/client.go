package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxAnswer bounds an answer in bytes.
const maxAnswer = 256 << 10

// client sends requests to the nodes.
type client struct {
	servers []string // without a slash at the end
	token   string   // for what not everybody may do; "" without
	http    *http.Client
}

func newClient(servers []string, token string, timeout time.Duration) *client {
	c := &client{token: token, http: &http.Client{Timeout: timeout,
		Transport: &http.Transport{MaxIdleConnsPerHost: 8}}}
	for _, server := range servers {
		c.servers = append(c.servers, strings.TrimRight(server, "/"))
	}
	return c
}

func (c *client) close() { c.http.CloseIdleConnections() }

// post has a node carry out a request or, if it refuses connections, the next node that does not.
func (c *client) post(ctx context.Context, node int, path, body string, answer any) (err error) {
	for i := range c.servers {
		at := (node + i) % len(c.servers)
		err = c.send(ctx, at, http.MethodPost, path, body, answer)
		if failed, ok := errors.AsType[*net.OpError](err); !ok || failed.Op != "dial" {
			return err
		}
	}
	return err
}

// send makes a request of a node and decodes the answer. The body is JSON, or YAML if the method is
// PUT.
func (c *client) send(ctx context.Context, node int, method, path, body string,
	answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, c.servers[node]+path,
		bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPut {
		request.Header.Set("Content-Type", "application/yaml")
		request.Header.Set("If-Match", "*")
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s answered %s: %s", request.URL.Host, response.Status, text)
	}
	return json.Unmarshal(text, answer)
}

// count returns a node's count of the events of a key in the last day.
func (c *client) count(ctx context.Context, node int, key string) (int64, error) {
	query := url.Values{"key": {key}, "window": {"24h"}}
	var answer struct{ Counts []struct{ Count int64 } }
	err := c.send(ctx, node, http.MethodGet, "/v1/count?"+query.Encode(), "", &answer)
	if err == nil && len(answer.Counts) != 1 {
		err = fmt.Errorf("%s answered with %d counts, want 1", c.servers[node], len(answer.Counts))
	}
	if err != nil {
		return 0, err
	}
	return answer.Counts[0].Count, nil
}

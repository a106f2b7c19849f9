package micro_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"twotier.dev/twotier/internal/load"
)

// connect returns a client for one server.
func connect(addr string) (*load.Client, error) {
	return load.NewClient(load.ClientOptions{URL: "http://" + addr, Connections: 64,
		Timeout: time.Minute})
}

// addRequest is an add, single or in a batch.
type addRequest struct {
	Op  string `json:"op,omitempty"`
	Key string `json:"key"`
	TS  int64  `json:"ts,omitempty"`
}

// postAdds adds one to each key in one request, a quiet batch if there are several: at a time in
// unix milliseconds, or now if that is 0.
func postAdds(c *load.Client, keys []string, ts int64) error {
	path, want := "/v1/add", `"key":`
	var request any = addRequest{Key: keys[0], TS: ts}
	if len(keys) > 1 {
		path, want = "/v1/batch", `"errors":[]`
		ops := make([]addRequest, len(keys))
		for i, key := range keys {
			ops[i] = addRequest{"add", key, ts}
		}
		request = map[string]any{"quiet": true, "ops": ops}
	}
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	return c.Post(path, body, func(answer []byte) error {
		if !bytes.Contains(answer, []byte(want)) {
			return fmt.Errorf("%s: %.300s", path, answer)
		}
		return nil
	})
}

// fillServer adds one to each of n keys of a server, 1,000 in a request, at a time as in postAdds.
func fillServer(addr string, n int, name func(int) string, ts int64) error {
	c, err := connect(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	var keys []string
	for key := range n {
		keys = append(keys, name(key))
		if len(keys) < 1000 && key < n-1 {
			continue
		}
		if err := postAdds(c, keys, ts); err != nil {
			return err
		}
		keys = keys[:0]
	}
	return nil
}

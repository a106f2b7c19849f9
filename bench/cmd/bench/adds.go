package main

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"twotier.dev/twotier/internal/load"
)

// connect returns a client for one server.
func connect(addr string) (*load.Client, error) {
	return load.NewClient(load.ClientOptions{URL: "http://" + addr, Connections: 64,
		Timeout: time.Minute})
}

// postAdds adds one to each key in one request, a quiet batch if there are several: at a time in
// unix milliseconds, or now if that is 0.
func postAdds(c *load.Client, keys []string, ts int64) error {
	path, want := "/v1/add", `"key":`
	body := appendAdd(make([]byte, 0, 64*len(keys)), "{", keys[0], ts)
	if len(keys) > 1 {
		path, want = "/v1/batch", `"errors":[]`
		body = append(body[:0], `{"quiet":true,"ops":[`...)
		for i, key := range keys {
			if i > 0 {
				body = append(body, ',')
			}
			body = appendAdd(body, `{"op":"add",`, key, ts)
		}
		body = append(body, "]}"...)
	}
	return c.Post(path, body, func(answer []byte) error {
		if !bytes.Contains(answer, []byte(want)) {
			return fmt.Errorf("%s: %.300s", path, answer)
		}
		return nil
	})
}

func appendAdd(body []byte, begin, key string, ts int64) []byte {
	body = append(append(append(append(body, begin...), `"key":"`...), key...), '"')
	if ts != 0 {
		body = strconv.AppendInt(append(body, `,"ts":`...), ts, 10)
	}
	return append(body, '}')
}

// fill adds one to each of n keys, 1,000 in a request.
func fill(c *load.Client, n int, name func(int) string, ts int64) error {
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

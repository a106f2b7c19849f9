package micro_test

import (
	"time"

	"twotier.dev/twotier/internal/load"
)

// connect returns a client for one server.
func connect(addr string) (*load.Client, error) {
	return load.NewClient(load.ClientOptions{URL: "http://" + addr, Connections: 64,
		Timeout: time.Minute})
}

// fillServer adds one to each of n keys of a server, 1,000 in a request: at a time in unix
// milliseconds, or now if that is 0.
func fillServer(addr string, n int, name func(int) string, ts int64) error {
	c, err := connect(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	r := request{path: "/v1/batch"}
	for key := range n {
		r.ops = append(r.ops, operation{Op: "add", Key: name(key), TS: ts})
		if len(r.ops) < 1000 && key < n-1 {
			continue
		}
		r.encode("adds")
		if err := r.post(c); err != nil {
			return err
		}
		r.ops = r.ops[:0]
	}
	return nil
}

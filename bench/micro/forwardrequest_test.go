package micro_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"twotier.dev/twotier/bench/wire"
	"twotier.dev/twotier/httpapi/client"
)

// request is one HTTP request with its operations.
type request struct {
	path string
	body []byte
	ops  []operation
	// The answer must contain the text want, many times.
	want string
	many int
}

// operation is the JSON of an add or an acquire.
type operation struct {
	Op     string  `json:"op,omitempty"`
	Key    string  `json:"key,omitempty"`
	Limits []limit `json:"limits,omitempty"`
	Checks []check `json:"checks,omitempty"`
}

type check struct {
	Key    string  `json:"key"`
	Limits []limit `json:"limits"`
}

type limit struct {
	Window string `json:"window"`
	Max    int64  `json:"max"`
}

// limitsOf returns limits that are never reached.
func limitsOf(windows ...string) (all []limit) {
	for _, w := range windows {
		all = append(all, limit{w, 1 << 40})
	}
	return all
}

// operationOf returns an operation of a kind on a key and, if it is a message, on another one.
func operationOf(kind, key, other string) operation {
	switch kind {
	case "adds":
		return operation{Op: "add", Key: key}
	case "acquires":
		return operation{Op: "acquire", Key: key, Limits: limitsOf("1m")}
	}
	return operation{Op: "acquire", Checks: []check{
		{key, limitsOf("1m", "24h")}, {other, limitsOf("59s", "59m")},
	}}
}

// requests returns requests with size operations of a kind, which use each key once or, in
// messages, twice.
func requests(kind string, keys []string, size int) (all []request) {
	for at := 0; at+size <= len(keys); at += size {
		r := request{path: "/v1/batch"}
		for k := at; k < at+size; k++ {
			other := keys[(k+len(keys)/2)%len(keys)]
			r.ops = append(r.ops, operationOf(kind, keys[k], other))
		}
		r.encode(kind)
		all = append(all, r)
	}
	return all
}

// encode fills in the request and the expectation of its answer.
func (r *request) encode(kind string) {
	body := map[string]any{"ops": r.ops}
	r.want, r.many = `"allowed":true`, len(r.ops)
	switch kind {
	case "messages": // each of the two checks is allowed too
		r.many *= 3
	case "adds":
		r.want, r.many = fmt.Sprintf(`"errors":[],"added":%d`, len(r.ops)), 1
		body["quiet"] = true
	}
	var document any = body
	if len(r.ops) == 1 && kind == "adds" {
		r.path, r.want = "/v1/add", `"over":false`
		document = operation{Key: r.ops[0].Key}
	}
	r.body, _ = json.Marshal(document) // strings and numbers
}

// post sends the request.
func (r *request) post(c *wire.Client) error {
	return c.Post(r.path, r.append, func(answer []byte) error {
		if n := bytes.Count(answer, []byte(r.want)); n != r.many {
			return fmt.Errorf("%d times %s, want %d: %.300s", n, r.want, r.many, answer)
		}
		return nil
	})
}

func (r *request) append(b []byte) []byte { return append(b, r.body...) }

// byClient executes the operations, which are adds, through the client.
func (r *request) byClient(ctx context.Context, c *client.Client) error {
	if len(r.ops) == 1 {
		_, err := c.Add(ctx, client.AddRequest{Key: r.ops[0].Key})
		return err
	}
	ops := make([]client.Op, len(r.ops))
	for i := range ops {
		ops[i] = client.Op{Add: &client.AddRequest{Key: r.ops[i].Key}}
	}
	results, err := c.Batch(ctx, ops)
	for i := range results {
		err = errors.Join(err, results[i].Err)
	}
	return err
}

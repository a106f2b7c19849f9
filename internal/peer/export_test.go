package peer

import (
	"context"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/batching"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// Reply is a reply received by a client.
type Reply []byte

// Claim parses the response to a claim.
func (b Reply) Claim() (*ownership.ClaimResponse, error) {
	a := new(ownership.ClaimResponse)
	return a, readResponse(b, a)
}

// Into parses the answer to a request.
func (b Reply) Into(answer any) error { return readResponse(b, answer) }

// Asked encodes a request and parses it again.
func Asked(request any) (any, error) {
	b, err := appendRequest(nil, request)
	if err != nil {
		return nil, err
	}
	return readRequest(b)
}

// Result parses the result of an operation.
func (b Reply) Result(op *twotier.Op, res *twotier.Result) error {
	r := reader{b: b}
	readResult(&r, op, res, &timeDeltas{})
	return r.checkEnd()
}

// Answered encodes an answer as a server does.
func Answered(answer any, err error) Reply { return appendResponse(nil, answer, err) }

// Said returns a server's reply without a secret, except the time.
func Said(raw []byte) string {
	r := reader{b: raw}
	_, status, _ := r.processName(), r.byte(), r.uint()
	return string(append(r.b, status))
}

// Message encodes a message with tasks, without a secret.
func Message(from, to string, seq uint64, calls ...[]rpc.Task) []byte {
	body := []byte{0, byte(len(calls))} // one group, with the deadline of the message
	for _, tasks := range calls {
		body = append(body, byte(len(tasks)))
		for i := range tasks {
			body = appendTask(body, &tasks[i])
		}
	}
	return encoded(from, to, seq, body)
}

// Batch encodes a message with a batch of operations, without a secret.
func Batch(from, to string, seq uint64, ops []twotier.Op) []byte {
	body := []byte{0, 1, byte(len(ops))}
	var last *twotier.Op
	for i := range ops {
		body = appendOp(body, &ops[i], last)
		last = &ops[i]
	}
	return encoded(from, to, seq, body)
}

func encoded(from, to string, seq uint64, body []byte) []byte {
	m := message{From: from, To: to, Seq: seq, Kind: kindTasks, Budget: maxBudget, Body: body}
	return m.append(nil, nil, new(sealCounter))
}

// Kept returns the total size of the buffers that a worker to a process keeps after it has sent
// tasks as one message.
func (c *Client) Kept(to *ring.Member, tasks []rpc.Task) (bytes int, err error) {
	l, err := c.link(to)
	if err != nil {
		return 0, err
	}
	k := &call{by: time.Now().Add(time.Minute)}
	w := work{tasks: tasks}
	w.encode(k)
	k.Reset()
	queue := batching.New[*call](batching.Options{Waiting: 1})
	err = queue.Put(k)
	queue.Close(rpc.ErrUnreachable) // ends the worker after this call
	n := newWorker(l, firstSpare+spareWorkers)
	n.run(queue, nil)
	if err == nil {
		_, err = k.Wait(context.Background(), batching.Forever)
	}
	return cap(n.body) + cap(n.raw), err
}

// Head is headOf.
func Head(op *twotier.Op) uint16 { return headOf(op) }

// ReadHead reads a head, writes it again, and reports whether it was accepted.
func ReadHead(head uint16) (op twotier.Op, again uint16, ok bool) {
	r := reader{b: []byte{1 << 1}} // a time
	verb := readHead(&r, head, &op)
	return op, headOf(&op) | uint16(verb), r.err == nil
}

// Leads returns how much earlier than its message each of some calls with these deadlines ends, in
// the order of the message, as the receiver reads it.
func Leads(now time.Time, deadlines ...time.Time) (leads []time.Duration) {
	calls := make([]*call, len(deadlines))
	for i, by := range deadlines {
		calls[i] = &call{body: []byte{}, by: by}
	}
	sortCalls(calls)
	r := reader{b: appendCalls(nil, calls, now)}
	for len(r.b) > 0 {
		lead := time.Duration(r.uint()) * time.Microsecond
		for range r.uint() {
			leads = append(leads, lead)
		}
	}
	return leads
}

package peer

import (
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/rpc"
)

// Reply is a reply that a client has received.
type Reply []byte

// Claim parses the response to a claim.
func (b Reply) Claim() (*ownership.ClaimResponse, error) {
	a := new(ownership.ClaimResponse)
	return a, readAnswer(b, a)
}

// Into parses the answer to a question.
func (b Reply) Into(answer any) error { return readAnswer(b, answer) }

// Asked encodes a question and parses it again.
func Asked(question any) (any, error) {
	b, err := appendQuestion(nil, question)
	if err != nil {
		return nil, err
	}
	return readQuestion(b)
}

// Result parses the result of a task.
func (b Reply) Result(t *rpc.Task, res *node.Result) error {
	r := reader{b: b}
	readResult(&r, t, res)
	return r.end()
}

// Answered encodes an answer as a server does.
func Answered(answer any, err error) Reply { return appendAnswer(nil, answer, err) }

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
	m := message{From: from, To: to, Seq: seq, Kind: kindTasks, Budget: maxBudget, Body: body}
	return m.append(nil, nil, new(counter))
}

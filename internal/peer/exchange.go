package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"twotier/internal/node"
)

// Pauses between attempts.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 100 * time.Millisecond
)

// exchange sends a message until it is answered or time is up. An error wraps node.ErrUnreachable if nothing was done, and
// syncer.ErrUnknownOutcome otherwise. A process that has not said anything to a copy of the message within the time of an
// attempt, or of two for what may take long, can't be reached: others need not wait for it.
func (n *lane) exchange(ctx context.Context, kind byte, body []byte, by time.Time) ([]byte, error) {
	m := message{From: n.l.c.opt.Self, To: n.l.to.Name, Lane: n.id, Seq: n.l.c.seq.Add(1), Kind: kind, Body: body}
	sent := false // it may have arrived
	silent := 0
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		m.Budget = time.Until(by)
		status, reply, err := n.attempt(ctx, &m, earlier(by, time.Now().Add(n.l.c.opt.AttemptTimeout)))
		switch {
		case err == nil && status == replyDone:
			n.l.succeed()
			return reply, nil
		case err == nil && status != replyBusy:
			// It is not there any more, or has gone on without us. If no earlier attempt can have arrived, nothing was done.
			return nil, n.lost(sent, errGone)
		case err == nil: // it has no time, or an earlier copy is under way there
			silent = 0
		case !errors.Is(err, node.ErrUnreachable):
			sent = true
			if silent++; silent > n.grace {
				n.fail(err)
			}
		case !sent:
			n.fail(err)
			return nil, n.lost(false, err)
		}
		if !n.wait(ctx, pause, by) {
			return nil, n.lost(sent, err)
		}
		n.l.c.resent.Add(1)
	}
}

// errGone says that another process answers at the address, or that the one that does takes the message for an old copy.
var errGone = errors.New("the process is gone")

func (n *lane) fail(err error) {
	if !n.quiet && n.l.ctx.Err() == nil {
		n.l.fail(err)
	}
}

// lost counts a message that gets no answer.
func (n *lane) lost(sent bool, err error) error {
	n.l.c.failed.Add(1)
	return outcome(sent, err)
}

// outcome is the error of a message without an answer.
func outcome(sent bool, err error) error {
	kind := node.ErrUnreachable
	if sent {
		kind = node.ErrUnknownOutcome
	}
	if err == nil {
		return kind
	}
	// The text only: that the last attempt did not arrive says nothing of those before.
	return fmt.Errorf("%w: %v", kind, err)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// wait reports whether there is time for another attempt.
func (n *lane) wait(ctx context.Context, pause time.Duration, by time.Time) bool {
	if time.Until(by) <= pause {
		return false
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// attempt sends a message once and reads the reply.
func (n *lane) attempt(ctx context.Context, m *message, until time.Time) (status byte, reply []byte, err error) {
	c := n.l.c
	key, err := c.keys.key("request", m.From, m.To)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", node.ErrUnreachable, err)
	}
	n.raw = m.append(n.raw[:0], key, &c.count)
	bound := [16]byte{}
	size := copy(bound[:], tag(n.raw))
	c.messages.Add(1)
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	raw, err := c.opt.Transport.Send(ctx, n.l.to.Address, n.raw)
	if err != nil {
		return 0, nil, err
	}
	return c.open(m, raw, bound[:size])
}

// open reads a reply.
func (c *Client) open(m *message, raw, bound []byte) (status byte, reply []byte, err error) {
	r := reader{b: raw}
	from := r.processName()
	if r.err != nil {
		return 0, nil, r.err
	}
	key, err := c.keys.key("reply", from, m.From)
	if err != nil {
		return 0, nil, err
	}
	text, err := unseal(key, r.b, bound)
	if err != nil {
		return 0, nil, err
	}
	if len(text) == 0 {
		return 0, nil, errFormat
	}
	status = text[0]
	if from != m.To {
		status = replyStranger
	}
	return status, text[1:], nil
}

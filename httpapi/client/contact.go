package client

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// contact tracks whether a node can be reached at all. A node that is only slow, or that refuses,
// can be.
type contact struct {
	answers atomic.Bool  // it has answered since it last was unreachable
	asked   atomic.Int64 // send time of the oldest unanswered request, in unix ns; 0 if none
}

// recordRequest records that a request is being sent to the node.
func (c *contact) recordRequest(now time.Time) { c.asked.CompareAndSwap(0, now.UnixNano()) }

// recordOutcome records the outcome of a request. A proxy's answer that it can't reach the node
// does not count as an answer.
func (c *contact) recordOutcome(answer *fasthttp.Response, err error) {
	switch {
	case err == nil && (answer.StatusCode() < 500 ||
		readProblem(answer.StatusCode(), answer.Body()).isFromTwotier()):
		c.answers.Store(true)
		c.asked.Store(0)
	case err == nil, errors.Is(err, errDial) && !errors.Is(err, errHandshake) && !isTimeout(err):
		c.answers.Store(false)
	}
}

// isUp reports whether the node seems to answer: it has answered, its address still accepts
// connections, and it has not been silent for longer than most.
func (c *contact) isUp(now time.Time, most time.Duration) bool {
	asked := c.asked.Load()
	return c.answers.Load() && (asked == 0 || now.Sub(time.Unix(0, asked)) < most)
}

// reachesAny reports whether any node answers. A node that leaves requests unanswered for
// Options.Timeout can't be reached.
func (c *Client) reachesAny() bool {
	if c.ctx.Err() != nil {
		return false
	}
	v, now := c.view.Load(), time.Now()
	for _, list := range [][]*link{v.members, v.any, c.seeds} {
		for _, l := range list {
			if l != nil && l.contact.isUp(now, c.opt.Timeout) {
				return true
			}
		}
	}
	return false
}

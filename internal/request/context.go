package request

import (
	"context"
	"sync"
	"time"

	"twotier.dev/twotier/internal/trace"
)

// Context is a context with a deadline that costs nothing until a goroutine waits on it. Most
// operations are answered from memory and never wait; context.WithDeadline would allocate a context
// and arm a timer for each of them.
//
// The first call of Done makes a real context, to which everything is delegated from then on.
// Contexts derived from this one attach to it without a goroutine.
//
// For the same reason, the trace of a request is determined only on demand.
type Context struct {
	deadline time.Time

	mu     sync.Mutex
	inner  context.Context
	cancel context.CancelFunc
	source trace.Source // nil if there is none, or it has been asked
	traced *trace.Context
}

// Reset prepares c for the next request, whose trace, if it has one, source finds. It must not be
// called once Done has been.
func (c *Context) Reset(deadline time.Time, source trace.Source) {
	c.deadline, c.source, c.traced = deadline, source, nil
}

// Finish ends the request and reports whether c may be reused: it may not if its channel was
// requested and may still be in use. The source is not asked any more.
func (c *Context) Finish() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.source = nil
	if c.inner == nil {
		return true
	}
	c.cancel()
	return false
}

// Deadline returns when the request is given up.
func (c *Context) Deadline() (time.Time, bool) { return c.deadline, true }

// Done returns a channel that is closed at the deadline or when the request has been answered.
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.inner, c.cancel = context.WithDeadline(context.Background(), c.deadline)
	}
	return c.inner.Done()
}

// Err returns the reason why the context is done, or nil if it is not.
func (c *Context) Err() error {
	if inner := c.made(); inner != nil {
		return inner.Err()
	}
	if !time.Now().Before(c.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// Value returns the trace of the request for [trace.Key], and otherwise values of the inner
// context. The context package uses it to recognise its own contexts.
func (c *Context) Value(key any) any {
	if key == (trace.Key{}) {
		return c.TraceContext()
	}
	if inner := c.made(); inner != nil {
		return inner.Value(key)
	}
	return nil
}

// TraceContext returns the trace of the request, or nil if it has none.
func (c *Context) TraceContext() *trace.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.source != nil {
		c.traced, c.source = c.source.TraceContext(), nil
	}
	return c.traced
}

func (c *Context) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inner
}

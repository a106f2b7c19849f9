package faultproxy

import "time"

// fate is the treatment of messages.
type fate uint8

const (
	pass fate = iota
	swallow
	drop
	refuse
	hang
	delay
	cut
	throttle
)

// mode is immutable. Changing the mode of a proxy replaces it.
type mode struct {
	fate  fate
	close bool          // swallow: hang up afterwards
	delay time.Duration // delay
	// bytes is, for cut, how many bytes of replies still pass on each connection, and for throttle
	// how many bytes of requests pass on each connection per second.
	bytes int64
	// gone is closed when another mode replaces this one.
	gone chan struct{}
}

// Pass forwards everything. It is the initial mode.
func (p *Proxy) Pass() { p.setMode(mode{fate: pass}) }

// SwallowReplies forwards requests and discards the replies, on existing and new connections. With
// thenClose the client sees the end of the connection in place of the first reply, and its data is
// still forwarded until it closes its side too. Without thenClose the client waits forever.
func (p *Proxy) SwallowReplies(thenClose bool) { p.setMode(mode{fate: swallow, close: thenClose}) }

// DropRequests discards requests: the server never sees them, and the client waits forever.
func (p *Proxy) DropRequests() { p.setMode(mode{fate: drop}) }

// Refuse resets new connections immediately. Existing ones continue: see [Proxy.CloseAll].
func (p *Proxy) Refuse() { p.setMode(mode{fate: refuse}) }

// Hang holds back all messages, in both directions. Nothing is lost: they are delivered when the
// mode changes.
func (p *Proxy) Hang() { p.setMode(mode{fate: hang}) }

// Delay holds back each reply for d before it is delivered, together with the replies that arrived
// with it.
func (p *Proxy) Delay(d time.Duration) { p.setMode(mode{fate: delay, delay: d}) }

// CutAfter lets n bytes of replies pass on each connection, counted from now, and then closes it.
func (p *Proxy) CutAfter(n int64) { p.setMode(mode{fate: cut, bytes: n}) }

// Throttle lets n bytes of requests per second pass on each connection, like a slow server.
func (p *Proxy) Throttle(n int64) { p.setMode(mode{fate: throttle, bytes: n}) }

func (p *Proxy) setMode(m mode) {
	m.gone = make(chan struct{})
	close(p.mode.Swap(&m).gone)
}

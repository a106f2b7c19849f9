package faultproxy

import "time"

// fate says what happens to messages.
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

// mode is immutable; changing it puts another in its place.
type mode struct {
	fate  fate
	close bool          // swallow: hang up afterwards
	delay time.Duration // delay
	// bytes is, for cut, how many of the replies still pass on each connection, and for throttle
	// how many of the requests pass on each in a second.
	bytes int64
	// gone is closed when another mode has taken its place.
	gone chan struct{}
}

// Pass forwards everything. It is the mode to begin with.
func (p *Proxy) Pass() { p.setMode(mode{fate: pass}) }

// SwallowReplies forwards requests and throws the replies away, on connections that exist and on
// new ones. With thenClose it hangs up in place of the first reply, yet still forwards what the
// client is writing until that closes too; without, the client waits for ever.
func (p *Proxy) SwallowReplies(thenClose bool) { p.setMode(mode{fate: swallow, close: thenClose}) }

// DropRequests throws requests away: the server never sees them. The client waits for ever.
func (p *Proxy) DropRequests() { p.setMode(mode{fate: drop}) }

// Refuse resets new connections as soon as they are made. Those that exist go on: see
// [Proxy.CloseAll].
func (p *Proxy) Refuse() { p.setMode(mode{fate: refuse}) }

// Hang keeps back what arrives, in both directions. Nothing is lost: it is delivered when the mode
// changes.
func (p *Proxy) Hang() { p.setMode(mode{fate: hang}) }

// Delay keeps each reply back for the given time before it is delivered, together with those that
// arrived with it.
func (p *Proxy) Delay(d time.Duration) { p.setMode(mode{fate: delay, delay: d}) }

// CutAfter lets n bytes of replies pass on each connection, counted from now, and then closes it.
func (p *Proxy) CutAfter(n int64) { p.setMode(mode{fate: cut, bytes: n}) }

// Throttle lets n bytes of requests pass in a second on each connection, as a server does that
// takes its time for each.
func (p *Proxy) Throttle(n int64) { p.setMode(mode{fate: throttle, bytes: n}) }

func (p *Proxy) setMode(m mode) {
	m.gone = make(chan struct{})
	close(p.mode.Swap(&m).gone)
}

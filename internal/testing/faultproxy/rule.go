package faultproxy

import (
	"bytes"
	"slices"
)

// rule is a fault for the next requests that match and that the mode lets reach the server.
type rule struct {
	match []byte
	left  int   // requests still to match, under Proxy.mu
	open  int   // replies still to lose, under Proxy.mu
	keep  int64 // bytes of the reply that are delivered
	close bool  // hang up afterwards
	fired chan struct{}
}

// SwallowNext forwards the next request that contains the given bytes, on any connection, discards
// its reply once the server has sent it, and hangs up. New connections work as usual. The channel
// is closed when the reply has been discarded, so that a test can wait until the server has
// executed the request.
func (p *Proxy) SwallowNext(match string) <-chan struct{} {
	return p.addRule(rule{match: []byte(match), left: 1, close: true})
}

// SwallowMatching is [Proxy.SwallowNext] for the next k such requests; the channel is closed after
// the last one. With thenClose false the connections stay open but deliver nothing more.
func (p *Proxy) SwallowMatching(match string, k int, thenClose bool) <-chan struct{} {
	return p.addRule(rule{match: []byte(match), left: k, close: thenClose})
}

// SwallowNextReplies discards the next k replies to any requests, including the handshake of a new
// connection.
func (p *Proxy) SwallowNextReplies(k int, thenClose bool) <-chan struct{} {
	return p.SwallowMatching("", k, thenClose)
}

// CutNext delivers only the first n bytes of the reply to the next request that contains the given
// bytes, and closes the connection. The channel is closed once that has happened.
func (p *Proxy) CutNext(match string, n int64) <-chan struct{} {
	return p.addRule(rule{match: []byte(match), left: 1, keep: n, close: true})
}

func (p *Proxy) addRule(r rule) <-chan struct{} {
	r.fired, r.open = make(chan struct{}), r.left
	if r.left < 1 {
		close(r.fired)
		return r.fired
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, &r)
	return r.fired
}

// ruleFor returns the first rule that matches the request and counts the match, or returns nil.
func (p *Proxy) ruleFor(request []byte) *rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range p.rules {
		if !bytes.Contains(request, r.match) {
			continue
		}
		if r.left--; r.left == 0 {
			p.rules = slices.Delete(p.rules, i, i+1)
		}
		return r
	}
	return nil
}

// lost records that a rule has been applied to a reply.
func (p *Proxy) lost(r *rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.open--; r.open == 0 {
		close(r.fired)
	}
}

// Package faultproxy is a TCP proxy that loses, delays and cuts what passes through it, on command,
// in process.
//
// It stands between a client and a server in tests: replies that get lost after the server has done
// its work, requests that never arrive, connections that hang, break in the middle of a reply, or
// are reset. It works on whole messages of the Redis protocol (requests, RESP2 and RESP3 replies),
// so that a test can lose the reply to one certain request; [NewRaw] works on any other protocol
// and takes what one read returns for a message.
//
// It promises what a network does: of one connection and direction it delivers a prefix of the
// messages that were sent. A connection that has lost a message never delivers a later one in that
// direction, whatever the mode becomes, so a client never takes a reply for another's. When a
// method that changes the mode has returned, every message that arrives is treated by the new mode.
// When the client hangs up, what it has sent before still reaches the server.
//
// All methods may be called from several goroutines at once. After [Proxy.Close] nothing of the
// proxy runs.
//
// It doesn't look at the contents of encrypted connections, and knows nothing of replies that no
// request asked for other than RESP3 pushes: no SUBSCRIBE in RESP2, MONITOR or CLIENT REPLY.
package faultproxy

// Package faultproxy is an in-process TCP proxy that loses, delays and cuts messages on command.
//
// It stands between a client and a server in tests: replies that get lost after the server has done
// its work, requests that never arrive, connections that hang, break in the middle of a reply, or
// are reset. It works on whole messages of the Redis protocol (requests, RESP2 and RESP3 replies),
// so that a test can lose the reply to one particular request. [NewRaw] works on any other protocol
// and treats the result of one read as a message.
//
// It keeps the promises of a network: for each connection and direction it delivers a prefix of the
// messages that were sent. A connection that has lost a message never delivers a later one in that
// direction, even after the mode changes, so a client never takes one reply for another. Once a
// method that changes the mode has returned, the new mode applies to every message that arrives.
// When the client hangs up, the messages it sent before still reach the server.
//
// All methods are safe for concurrent use. After [Proxy.Close] no goroutine of the proxy is
// running.
//
// It does not look into encrypted connections. Of unsolicited replies it supports only RESP3
// pushes, and so not SUBSCRIBE in RESP2, MONITOR or CLIENT REPLY.
package faultproxy

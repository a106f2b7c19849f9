// Package scripts runs the Lua scripts of a store in Redis, many calls in one pipeline, and
// classifies what became of each.
//
// The outcome of a call is one of three: it was carried out; it certainly was not
// (syncer.ErrNotApplied, and syncer.ErrRefused if a server refused it); or nobody knows
// (twotier.ErrUnknownOutcome). The client of a Redis Cluster sends commands again on its own, and
// returns the last outcome only, so hooks on its connections record every attempt. They also show
// whether a server that does not answer in time answers others meanwhile (syncer.ErrLate).
//
// The package holds the scripts and knows the form of a call, but not the meaning of its arguments
// and reply.
package scripts

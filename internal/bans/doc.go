// Package bans remembers which keys are refused for some time after a rule has refused them once.
//
// A ban is a companion of its key, see package companions. A [Log] remembers the bans that a node
// has seen start or refuse a request, so that they can be listed. An entry may be out of date: only
// the counters are authoritative.
package bans

// Package faultstore wraps a syncer.Store with the faults of a network and a server: replies and
// requests that get lost, requests that arrive after the caller gave up, refusals, delays, a store
// that is down, a store that comes back empty.
//
// It also watches its caller. Rounds of a partition and writer must come one at a time and be
// numbered without gaps; a new number may be used only after the one before it was answered; what
// is sent again under a number must be what was sent before; and what a caller says was
// acknowledged must have been. Every breach goes to Options.Report.
//
// Faults are chosen by Options.Decide, for which [Random] makes one from a seed. All methods may be
// called at the same time. It is for tests.
package faultstore

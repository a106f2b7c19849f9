// Package faultstore wraps a syncer.Store with the faults of a network and a server: replies and
// requests that get lost, requests that arrive after the caller has given up, refusals, delays, and
// a store that is down or full.
//
// It also watches its caller. Rounds of a partition and writer must come one at a time and be
// numbered without gaps. A new number may be used only after the previous one was answered. A round
// that is sent again under a number must be the same. And rounds that a caller reports as
// acknowledged must have been acknowledged. Every breach is reported to Options.Report.
//
// Options.Decide chooses the faults; [Random] returns one that draws from a seed. All methods are
// safe for concurrent use. The package is for tests.
package faultstore

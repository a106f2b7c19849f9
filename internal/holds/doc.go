// Package holds reserves an estimate now and settles it later.
//
// An acquire with a hold counts its events at once, like any other. Its answer has an id that
// contains all that it counted and until when it can be settled, sealed by a message authentication
// code (HMAC, RFC 2104, with SHA-256), so no node has to remember it, and any node settles it.
//
// Settling corrects the counts of each key by the difference, at the time of the hold. It is one
// operation per check, which also leaves a mark in the partition of the key: a companion counter
// (twotier.SettledKey) that refuses to settle the same hold again, and that lasts until ten minutes
// after the end of the hold. So each key is settled once, a settlement of unknown outcome can be
// repeated, and a late one counts as well. After a release, or a reset of the key, nothing of the
// estimate is left, and a settlement counts the whole number.
package holds

package redisstore

import "twotier.dev/twotier"

// The script's ways of counting.
const (
	modeAllowed = iota // count if allowed
	modeAlways         // count even if refused, unless a ban is active
	modeNewest         // take back from the newest buckets
	modeDry            // count nothing
	modeCharge         // count even if refused
)

func countingMode(op *twotier.Op) int64 {
	switch {
	case op.TakesNewest():
		return modeNewest
	case op.Kind != twotier.Count && op.Reads():
		return modeDry
	case op.Charge:
		return modeCharge
	case op.CountDenied:
		return modeAlways
	}
	return modeAllowed
}

// packedCompanion returns for the script: 0 for a check of events, the end of a lease, and for a
// ban a negative number that packs the watched limits.
func packedCompanion(c *twotier.Check) int64 {
	switch c.Kind {
	case twotier.BanCheck:
		return -1 - int64(c.Ban.From)<<16 - int64(c.Ban.To)
	case twotier.LeaseCheck:
		return c.Until
	}
	return 0
}

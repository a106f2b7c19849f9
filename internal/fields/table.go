package fields

import (
	"math"

	"twotier.dev/twotier"
)

// Set is a set of fields. Lists of fields are in the order of their bits.
type Set uint32

// The fields. 0 is an unknown field.
const (
	Op Set = 1 << iota
	NS
	Key
	Values
	N
	TS
	Ack
	Limits
	ValueLimits
	Concurrent
	Rules
	Window
	Max
	Zone
	Anchor
	At
	Bounds
	By
	Checks
	CountDenied
	Charge
	DryRun
	Hold
	OnExpiry
	For
)

// The fields of each operation, and of each part of one, in JSON.
const (
	// Booleans are fields of an acquire, which nodes send each other.
	Booleans        = CountDenied | Charge | DryRun
	OfAdd           = NS | Key | N | TS | Ack | Limits | Rules
	OfCount         = NS | Key | Window | At
	OfAcquire       = OfCheck | TS | Ack | Checks | Booleans | Hold | OnExpiry
	OfDistinct      = NS | Key | Values | TS | Ack | Limits | Rules | Window
	OfBatchDistinct = OfDistinct | At
	OfCheck         = NS | Key | Values | N | Limits | ValueLimits | Rules
	OfLimit         = Window | Max | Zone | Anchor | Concurrent
	OfValueLimit    = Window | Max
	OfSettle        = Hold | N | Checks
	OfSettledCheck  = NS | Key | N
	OfRenew         = Hold | For
	OfReset         = NS | Key
)

// The options of the commands in RESP.
const (
	OptionsOfAdd      = NS | N | TS | Ack
	OptionsOfCount    = NS | At | Bounds
	OptionsOfDistinct = NS | TS | Values | Limits | Rules | Window
	OptionsOfAcquire  = OptionsOfAdd | Booleans | Hold | OnExpiry | Values | Limits | ValueLimits |
		Concurrent | Rules | Checks
)

// row has the names of a field.
type row struct {
	name string // in JSON, in files of tests and in errors
	word string // of the option in RESP
	part bool   // the option begins a part of a check, or a check, and is listed last
	// Numbers with the same bounds everywhere have them here, and the error about others.
	least, most int64
	want        string
	// The rest is about booleans.
	flag, help string // on the command line
	step       bool   // steps in files of tests have it
	bit        uint16 // in the head of an operation between nodes
}

const wantTime = "want unix milliseconds, at least 1"

// table has a row for each field, in the order of their bits.
var table = [...]row{
	{name: "op"},
	{name: "ns", word: "NS"},
	{name: "key"},
	{name: "values", word: "VALUES", part: true},
	{name: "n", word: "N"},
	{name: "ts", word: "TS", least: 1, most: math.MaxInt64, want: wantTime},
	{name: "ack", word: "ACK"},
	{name: "limits", word: "LIMIT", part: true},
	{name: "value_limits", word: "VLIMIT", part: true},
	{name: "concurrent", word: "CONCURRENT", part: true, least: 1, most: math.MaxInt32,
		want: "want 1 to 2147483647"},
	{name: "rules", word: "RULE", part: true},
	{name: "window", word: "WINDOW"},
	{name: "max", most: math.MaxInt64, want: "want 0 or more"},
	{name: "zone"},
	{name: "anchor"},
	{name: "at", word: "AT", least: 1, most: math.MaxInt64, want: wantTime},
	{name: "bounds", word: "BOUNDS"},
	{name: "by", word: "BY"},
	{name: "checks", word: "KEY", part: true},
	{name: "count_denied", word: "COUNTDENIED", flag: "count-denied", bit: 1 << 4,
		help: "count the events even if they are refused, unless a ban is active"},
	{name: "charge", word: "CHARGE", flag: "charge", step: true, bit: 1 << 11,
		help: "count the events in any case"},
	{name: "dry_run", word: "DRYRUN", flag: "dry-run", bit: 1 << 7,
		help: "only ask, count nothing"},
	{name: "hold", word: "HOLD"},
	{name: "on_expiry", word: "ONEXPIRY"},
	{name: "for"},
}

// Value returns where an operation has a boolean, or nil for another field.
func (s Set) Value(op *twotier.Op) *bool {
	switch s {
	case CountDenied:
		return &op.CountDenied
	case Charge:
		return &op.Charge
	case DryRun:
		return &op.DryRun
	}
	return nil
}
